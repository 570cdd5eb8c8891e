package encrypted

import (
	"errors"

	"github.com/agentrun/agentrun/blobstore"
)

// ErrWrongKey means that none of the passphrases opens the blob or the store. The
// blob may be whole: this does not match blobstore.ErrCorrupt.
var ErrWrongKey = errors.New("none of the passphrases opens it; add the one that it was encrypted with below the newest")

// ErrOthersMayRead is what the warning about a file of passphrases matches that others
// than its owner may read. The file is used.
var ErrOthersMayRead = errors.New("others than its owner may read")

// wrongKeyError is ErrWrongKey of passphrases that are in a file.
type wrongKeyError struct{ file string }

func (e *wrongKeyError) Error() string {
	return "none of the passphrases in " + e.file + " opens it; add the one that it was encrypted with below the newest"
}

func (e *wrongKeyError) Is(target error) bool { return target == ErrWrongKey }

// wrongKey is ErrWrongKey, with the file of the passphrases where there is one.
func (k *Keyring) wrongKey() error {
	if k.file == "" {
		return ErrWrongKey
	}
	return &wrongKeyError{k.file}
}

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
