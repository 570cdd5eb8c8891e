package encrypted

import (
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// The header, as the package comment describes it. Frozen: version 1 is read for
// ever.
const (
	version1 = 1

	atVersion   = 16 // behind the magic
	atFlags     = atVersion + 1
	atChunk     = atFlags + 1
	atTime      = atChunk + 1
	atThreads   = atTime + 1
	atMemory    = atThreads + 1
	atSalt      = atMemory + 4
	atKeyID     = atSalt + saltSize
	atWrapNonce = atKeyID + keyIDSize
	atWrapped   = atWrapNonce + nonceSize
	atSubSalt   = atWrapped + keySize + tagSize
	atSealedID  = atSubSalt + subSaltSize
	atCRC       = atSealedID + idSize + 8 + tagSize
	headerSize  = atCRC + 4

	idSize      = sha256.Size
	nonceSize   = 12
	tagSize     = 16
	subSaltSize = 32
)

var _ [atVersion]struct{} = [len(blobstore.EncryptedMagic)]struct{}{}

// flagUnverified says that the writer did not check that the id is the hash of the
// plaintext: its store is opaque to what is above it.
const flagUnverified = 1

// Chunks of plaintext, as powers of two.
const (
	minChunkLog = 12
	maxChunkLog = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first part of a blob in our own form, parsed but not proven: keys
// are needed to believe it.
type header struct {
	raw      [headerSize]byte
	flags    byte
	chunkLog byte
	salted   salted
	keyID    keyID
}

// parseHeader is the one judge of the first bytes of a blob. data begins with the
// magic.
func parseHeader(data []byte) (*header, error) {
	if len(data) <= atVersion {
		return nil, ErrTruncated
	}
	if v := data[atVersion]; v != version1 {
		return nil, fmt.Errorf("%w: its form is version %d, and this program knows version %d", blobstore.ErrUnsupported, v, version1)
	}
	if len(data) < headerSize {
		return nil, ErrTruncated
	}
	h := new(header)
	copy(h.raw[:], data)
	// Anybody can compute the sum: it tells accidents, which deserve the name of
	// damage, from blobs under a key that we have not.
	if crc32.Checksum(h.raw[:atCRC], castagnoli) != binary.BigEndian.Uint32(h.raw[atCRC:]) {
		return nil, fmt.Errorf("%w (its header is damaged)", ErrTampered)
	}
	h.flags, h.chunkLog = h.raw[atFlags], h.raw[atChunk]
	h.salted.kdf = KDF{
		Time:      h.raw[atTime],
		Threads:   h.raw[atThreads],
		MemoryKiB: binary.BigEndian.Uint32(h.raw[atMemory:]),
	}
	h.salted.salt = [saltSize]byte(h.raw[atSalt:])
	h.keyID = keyID(h.raw[atKeyID:])
	if h.flags&^flagUnverified != 0 || h.chunkLog < minChunkLog || h.chunkLog > maxChunkLog {
		return nil, fmt.Errorf("%w (flags %#x, chunks of 2^%d bytes)", ErrTampered, h.flags, h.chunkLog)
	}
	if err := h.salted.kdf.validate(); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrTampered, err)
	}
	return h, nil
}

// contents is what a header proves of its blob to a holder of the key.
type contents struct {
	body
	unverified bool
}

// open believes the header, if one of the passphrases of s does.
func (h *header) open(ctx context.Context, s *Store) (contents, error) {
	dataKey, err := h.unwrap(ctx, s)
	if err != nil {
		return contents{}, err
	}
	aead := subkey(dataKey, h.raw[:])
	sealed, err := aead.Open(nil, idNonce[:], h.raw[atSealedID:atCRC], nil)
	if err != nil {
		return contents{}, ErrTampered
	}
	size := binary.BigEndian.Uint64(sealed[idSize:])
	if size > math.MaxInt64/2 {
		return contents{}, ErrTampered // no writer of ours
	}
	return contents{
		body: body{
			aead:  aead,
			id:    blobref.FromSum([idSize]byte(sealed)),
			size:  int64(size),
			chunk: 1 << h.chunkLog,
		},
		unverified: h.flags&flagUnverified != 0,
	}, nil
}

func (h *header) unwrap(ctx context.Context, s *Store) ([]byte, error) {
	w, err := s.wrapperOf(ctx, h)
	if err != nil {
		return nil, err
	}
	dataKey, err := w.aead.Open(nil, h.raw[atWrapNonce:atWrapped], h.raw[atWrapped:atSubSalt], wrapAD(h.raw[:]))
	if err != nil {
		return nil, ErrTampered
	}
	return dataKey, nil
}

// wrapAD is what a wrapped data key is bound to: everything before it, and the salt
// of the subkeys, by which it is bound to its blob.
func wrapAD(raw []byte) []byte {
	ad := make([]byte, 0, atWrapNonce+subSaltSize)
	return append(append(ad, raw[:atWrapNonce]...), raw[atSubSalt:atSealedID]...)
}

// subkey derives the key of one blob. Version, flags and chunk size are in it, so
// that none can be changed.
func subkey(dataKey, raw []byte) cipher.AEAD {
	info := "agentrun blob" + string(raw[atVersion:atTime])
	key, err := hkdf.Key(sha256.New, dataKey, raw[atSubSalt:atSealedID], info, keySize)
	if err != nil {
		panic("encrypted: " + err.Error()) // only of a length that HKDF has not
	}
	return newGCM(key)
}

// newHeader writes the header of a new blob to raw and returns the body to seal.
func newHeader(raw []byte, w *wrapper, id blobref.Ref, size int64, chunkLog, flags byte) body {
	copy(raw, blobstore.EncryptedMagic)
	raw[atVersion], raw[atFlags], raw[atChunk] = version1, flags, chunkLog
	_, _ = rand.Read(raw[atSubSalt:atSealedID]) // never fails
	var dataKey [keySize]byte
	_, _ = rand.Read(dataKey[:])
	aead := subkey(dataKey[:], raw)
	var plain [idSize + 8]byte
	sum := id.Sum()
	copy(plain[:], sum[:])
	binary.BigEndian.PutUint64(plain[idSize:], uint64(size))
	aead.Seal(raw[atSealedID:atSealedID], idNonce[:], plain[:], nil)
	wrap(raw, w, dataKey[:])
	return body{aead: aead, id: id, size: size, chunk: 1 << chunkLog}
}

// wrap writes the part of a header that says under which passphrase the data key
// lies, and the sum at its end: all that a rotation changes.
func wrap(raw []byte, w *wrapper, dataKey []byte) {
	raw[atTime], raw[atThreads] = w.kdf.Time, w.kdf.Threads
	binary.BigEndian.PutUint32(raw[atMemory:], w.kdf.MemoryKiB)
	copy(raw[atSalt:], w.salt[:])
	copy(raw[atKeyID:], w.id[:])
	_, _ = rand.Read(raw[atWrapNonce:atWrapped])
	w.aead.Seal(raw[atWrapped:atWrapped], raw[atWrapNonce:atWrapped], dataKey, wrapAD(raw))
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[:atCRC], castagnoli))
}
