package session

import (
	"bytes"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session/entry"
)

// EntryBlobs returns the blobs that an entry needs to be restored, or to restore files,
// as often as it names them: not those that its text merely mentions.
func EntryBlobs(e entry.Entry) []blobref.Ref {
	raw := e.Raw()
	if !bytes.Contains(raw, []byte(blobWord)) {
		return nil
	}
	return blobsIn(raw)
}
