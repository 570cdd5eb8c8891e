package encrypted

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"

	"golang.org/x/crypto/argon2"
)

// KDF says how much work it is to get from a passphrase to a key with Argon2id.
type KDF struct {
	Time      uint8  // passes
	Threads   uint8  // lanes
	MemoryKiB uint32 // of memory
}

// DefaultKDF is the second recommendation of RFC 9106, section 4, for places
// where 2 GiB are too much.
var DefaultKDF = KDF{Time: 3, Threads: 4, MemoryKiB: 64 << 10}

// What a blob may ask for. Blobs come from anywhere, and a reader does this work
// before it knows whether one is genuine.
const (
	maxKDFMemory  = 256 << 10        // KiB
	maxKDFThreads = 16               // RFC 9106 allows 2^24-1
	maxKDFWork    = 3 * maxKDFMemory // KiB x passes
	minKDFMemory  = 8                // KiB for each thread: RFC 9106, section 3.1
	maxStrangers  = 64               // salts of blobs that fitted no passphrase of a keyring, before no more are tried
	maxDerived    = 256              // keys that a process remembers
	saltSize      = 16               // RFC 9106, section 3.1
	keySize       = 32               // AES-256
	keyIDSize     = 16
)

// validate is the one judge of parameters that a blob, a marker or a caller gives.
func (k KDF) validate() error {
	switch {
	case k.Time < 1 || k.Threads < 1 || k.Threads > maxKDFThreads:
	case k.MemoryKiB < minKDFMemory*uint32(k.Threads) || k.MemoryKiB > maxKDFMemory:
	case uint64(k.Time)*uint64(k.MemoryKiB) > maxKDFWork:
	default:
		return nil
	}
	return fmt.Errorf("Argon2id with %d passes, %d threads and %d KiB is out of bounds (1 to %d threads, %d KiB each to %d KiB, at most %d KiB x passes)",
		k.Time, k.Threads, k.MemoryKiB, maxKDFThreads, minKDFMemory, maxKDFMemory, maxKDFWork)
}

// salted is what a passphrase becomes a key with.
type salted struct {
	kdf  KDF
	salt [saltSize]byte
}

type keyID [keyIDSize]byte

// wrapper is a key that wraps other keys: what Argon2id makes of a passphrase.
type wrapper struct {
	salted
	id   keyID
	aead cipher.AEAD
}

// known are the wrappers that this process has derived. One costs as long as
// hundreds of blobs, so that none is derived twice.
var known = struct {
	deriving chan struct{} // holds a token while one is derived: the memory of one is enough

	mu       sync.RWMutex
	wrappers map[derivation]*wrapper // guarded by mu
}{deriving: make(chan struct{}, 1), wrappers: make(map[derivation]*wrapper)}

// tagKey is what a passphrase's HMAC is made with: one is remembered as that, and not as itself. It is made when it is needed,
// since a program that only might encrypt should not wait for randomness, and a timer for more of it, when it starts.
var tagKey = sync.OnceValue(func() (key [sha256.Size]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
})

type passphraseTag [sha256.Size]byte

// derivation names a wrapper before it is derived.
type derivation struct {
	tag passphraseTag
	salted
}

func tagOf(passphrase []byte) (tag passphraseTag) {
	key := tagKey()
	mac := hmac.New(sha256.New, key[:])
	mac.Write(passphrase)
	mac.Sum(tag[:0])
	return tag
}

func lookUp(d derivation) *wrapper {
	known.mu.RLock()
	defer known.mu.RUnlock()
	return known.wrappers[d]
}

// derive returns the wrapper of a passphrase. It waits for one that is being derived
// already, as long as ctx lets it; Argon2id itself cannot be interrupted.
func derive(ctx context.Context, passphrase []byte, d derivation) (*wrapper, error) {
	if w := lookUp(d); w != nil {
		return w, nil
	}
	select {
	case known.deriving <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-known.deriving }()
	if w := lookUp(d); w != nil {
		return w, nil
	}
	out := argon2.IDKey(passphrase, d.salt[:], uint32(d.kdf.Time), d.kdf.MemoryKiB, d.kdf.Threads, keySize+keyIDSize)
	w := &wrapper{salted: d.salted, id: keyID(out[keySize:]), aead: newGCM(out[:keySize])}
	clear(out)
	known.mu.Lock()
	defer known.mu.Unlock()
	for one := range known.wrappers {
		if len(known.wrappers) < maxDerived {
			break
		}
		delete(known.wrappers, one) // any: a store keeps those of its marker itself
	}
	known.wrappers[d] = w
	return w, nil
}

// newGCM returns AES-256-GCM under a key of 32 bytes.
func newGCM(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("encrypted: " + err.Error()) // only of a key of another length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("encrypted: " + err.Error()) // AES has the block size that GCM wants
	}
	return aead
}
