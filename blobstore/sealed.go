package blobstore

import (
	"bytes"
	"errors"

	"github.com/agentrun/agentrun/blobref"
)

// ErrEncrypted means that a blob, or a whole store, is encrypted, and was opened
// without the layer that decrypts: see package encrypted. Nothing is wrong with it.
var ErrEncrypted = errors.New("blob is encrypted; open its store with the passphrase, as with ?encrypted=passphrase-file:FILE in its URL")

// EncryptedMagic is what every blob in the form of package encrypted begins with.
// It stands here so that a store knows ciphertext from damage without the package
// that can decrypt.
const EncryptedMagic = "agentrun-sealed\n"

// IsEncrypted reports whether data begins like a blob, or a marker, that package
// encrypted wrote. A blob in the form of the seed looks like noise and is not
// known by its bytes: only the marker of its store tells.
func IsEncrypted(data []byte) bool {
	return bytes.HasPrefix(data, []byte(EncryptedMagic))
}

// EncryptionMarkers returns the two ids under which package encrypted keeps equal
// copies of what a store of encrypted blobs says about itself.
func EncryptionMarkers() [2]blobref.Ref {
	return [2]blobref.Ref{
		blobref.Of([]byte("agentrun: marker of a store of encrypted blobs")),
		blobref.Of([]byte("agentrun: marker of a store of encrypted blobs, second copy")),
	}
}
