package encrypted

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// seedOverhead is what the seed's form adds to a plaintext: a nonce and a tag.
const seedOverhead = nonceSize + tagSize

// sealSeed returns data in the seed's form, under the newest passphrase.
func (k *Keyring) sealSeed(data []byte) []byte {
	sealed := make([]byte, nonceSize, len(data)+seedOverhead)
	_, _ = rand.Read(sealed) // never fails
	return k.seed[0].Seal(sealed, sealed, data, nil)
}

// openSeed decrypts a blob in the seed's form, in place where there is but one
// passphrase, and returns which one opened it. It cannot tell a wrong key from a
// changed blob: the error is ErrTampered.
func (k *Keyring) openSeed(sealed []byte) (plain []byte, key int, err error) {
	if len(sealed) < seedOverhead {
		return nil, 0, fmt.Errorf("%w (%d bytes)", ErrTruncated, len(sealed))
	}
	nonce, ciphertext := sealed[:nonceSize], sealed[nonceSize:]
	dst := ciphertext[:0]
	if len(k.seed) > 1 {
		// A failed attempt wipes where it writes to.
		dst = make([]byte, 0, len(ciphertext)-tagSize)
	}
	for i, aead := range k.seed {
		if plain, err := aead.Open(dst, nonce, ciphertext, nil); err == nil {
			return plain[:len(plain):len(plain)], i, nil
		}
	}
	return nil, 0, ErrTampered
}

// openSeedIn is openSeed with what the marker of the store knows of its passphrases.
func (s *Store) openSeedIn(ctx context.Context, sealed []byte) ([]byte, error) {
	plain, _, err := s.keys.openSeed(sealed)
	if err == nil || errors.Is(err, ErrTruncated) {
		return plain, err
	}
	if fits, merr := s.passphrasesFit(ctx); merr != nil {
		return nil, merr
	} else if !fits {
		return nil, fmt.Errorf("%w; or the blob was changed since it was stored, which this form cannot tell from a wrong passphrase", s.keys.wrongKey())
	}
	return nil, err
}
