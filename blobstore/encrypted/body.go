package encrypted

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
)

// body is the chunks of one blob in our own form.
type body struct {
	aead  cipher.AEAD // under the subkey of this blob
	id    blobref.Ref // of the plaintext: the additional data of every chunk
	size  int64       // of the plaintext
	chunk int64       // bytes of plaintext in each chunk but the last
}

// idNonce seals the id in the header. Nonces of chunks begin with 0.
var idNonce = [nonceSize]byte{0: 1}

// chunkNonce is the counter of a chunk and whether it is the last, as in the STREAM
// construction. No blob shares its subkey, so that this is all a nonce needs.
func chunkNonce(i int64, last bool) (nonce [nonceSize]byte) {
	binary.BigEndian.PutUint64(nonce[3:], uint64(i))
	if last {
		nonce[11] = 1
	}
	return nonce
}

// chunks returns how many there are. The empty blob has one, without plaintext.
func (b *body) chunks() int64 { return max(1, (b.size+b.chunk-1)/b.chunk) }

// sealedSize is the length of the whole blob in its store.
func (b *body) sealedSize() int64 { return headerSize + b.size + tagSize*b.chunks() }

// offset is where chunk i begins in the store.
func (b *body) offset(i int64) int64 { return headerSize + i*(b.chunk+tagSize) }

// length is how many bytes of plaintext chunk i has.
func (b *body) length(i int64) int64 { return min(b.chunk, b.size-i*b.chunk) }

// seal appends chunk i to dst.
func (b *body) seal(dst, plain []byte, i int64) []byte {
	nonce, id := chunkNonce(i, i == b.chunks()-1), b.id.Sum()
	return b.aead.Seal(dst, nonce[:], plain, id[:])
}

// open decrypts chunk i in place and returns its plaintext, a part of sealed.
func (b *body) open(sealed []byte, i int64) ([]byte, error) {
	nonce, id := chunkNonce(i, i == b.chunks()-1), b.id.Sum()
	plain, err := b.aead.Open(sealed[:0], nonce[:], sealed, id[:])
	if err != nil {
		return nil, fmt.Errorf("%w (chunk %d of %d)", ErrTampered, i+1, b.chunks())
	}
	return plain, nil
}

// openRun decrypts the chunks from first on that sealed holds, in place, and returns
// their plaintext in one piece: a part of sealed.
func (b *body) openRun(sealed []byte, first int64) ([]byte, error) {
	done := 0
	for i, rest := first, sealed; len(rest) > 0; i++ {
		if i >= b.chunks() {
			return nil, ErrTampered
		}
		n := min(b.length(i)+tagSize, int64(len(rest)))
		plain, err := b.open(rest[:n:n], i)
		if err != nil {
			return nil, err
		}
		if i > first { // the first is where it belongs, the others close up
			copy(sealed[done:], plain)
		}
		done += len(plain)
		rest = rest[n:]
	}
	return sealed[:done:done], nil
}

// complete compares the length of what is stored with what the header says.
func (b *body) complete(stored int64) error {
	switch want := b.sealedSize(); {
	case stored < want:
		return fmt.Errorf("%w (%d bytes of %d)", ErrTruncated, stored, want)
	case stored > want:
		return fmt.Errorf("%w (%d bytes, %d more than there should be)", ErrTampered, stored, stored-want)
	}
	return nil
}
