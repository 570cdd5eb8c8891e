package encrypted

import (
	"errors"

	"github.com/agentrun/agentrun/blobstore"
)

// ErrWrongKey means that none of the passphrases opens the blob or the store. The
// blob may be whole: this does not match blobstore.ErrCorrupt.
var ErrWrongKey = errors.New("no passphrase of the keyring opens it; add the one that it was encrypted with below the newest")

// ErrTruncated means that the end of a blob is missing. It matches
// blobstore.ErrCorrupt.
var ErrTruncated error = &damage{"the encrypted blob is cut off"}

// ErrTampered means that a blob is not what the holder of the key stored under its
// id: bytes were changed, or a blob stands under the id of another. It matches
// blobstore.ErrCorrupt.
var ErrTampered error = &damage{"the encrypted blob was changed since it was stored, or belongs under another id"}

type damage struct{ what string }

func (d *damage) Error() string        { return d.what }
func (d *damage) Is(target error) bool { return target == blobstore.ErrCorrupt }
