package localdir

import (
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// syncedSet remembers which files of which blobs this store knows to be durable,
// so that storing the same screenshot again costs no fsync.
type syncedSet struct {
	mu    sync.Mutex
	files map[blobref.Ref]durable.Identity // guarded by mu
}

// maxSynced bounds the set to under 1 MiB. When it is full it starts anew, at the
// cost of one fsync for each blob that is stored once more.
const maxSynced = 4096

func (c *syncedSet) has(ref blobref.Ref, id durable.Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.files[ref]
	return ok && known.SameFile(id) && known.Size == id.Size && known.ModTime == id.ModTime
}

func (c *syncedSet) add(ref blobref.Ref, id durable.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil || len(c.files) >= maxSynced {
		c.files = make(map[blobref.Ref]durable.Identity)
	}
	c.files[ref] = id
}
