package encrypted

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
)

const (
	maxPassphrases    = 32       // a wrong blob costs one derivation for each
	maxPassphraseFile = 64 << 10 // bytes
)

// Keyring is the passphrases of a store, newest first: the newest encrypts, and each
// of them decrypts. It never changes, and may be used by many stores at once. It
// prints as how many there are.
type Keyring struct {
	passphrases [][]byte
	tags        []passphraseTag
	seed        []cipher.AEAD // keys of the seed's form
	file        string        // that they were read from, "" for none

	strangers atomic.Int32 // salts of blobs that fitted none of them
}

// NewKeyring returns the keyring of the passphrases, newest first, of which there is
// one at least and none is empty. It keeps copies.
func NewKeyring(passphrases ...[]byte) (*Keyring, error) {
	switch {
	case len(passphrases) == 0:
		return nil, errors.New("making a keyring: there is no passphrase")
	case len(passphrases) > maxPassphrases:
		return nil, fmt.Errorf("making a keyring: %d passphrases are too many, at most %d; rotate, and drop the oldest", len(passphrases), maxPassphrases)
	}
	k := new(Keyring)
	for i, p := range passphrases {
		if len(p) == 0 {
			return nil, fmt.Errorf("making a keyring: passphrase %d is empty", i+1)
		}
		if slices.ContainsFunc(k.passphrases, func(q []byte) bool { return bytes.Equal(p, q) }) {
			continue
		}
		key := sha256.Sum256(p)
		k.passphrases = append(k.passphrases, bytes.Clone(p))
		k.tags = append(k.tags, tagOf(p))
		k.seed = append(k.seed, newGCM(key[:]))
	}
	return k, nil
}

// OpenKeyring reads a file of passphrases: one a line, the newest first, of which one
// newline at the end is dropped. All other bytes count, a carriage return too. A file
// that others than its owner may write is refused. That they may read it is told to warn,
// which may be nil, as ErrOthersMayRead, and it is read.
func OpenKeyring(path string, warn func(error)) (*Keyring, error) {
	// Links are followed and pipes are read: the path comes from the user, and
	// secrets are often mounted as the one or handed over as the other.
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the passphrase file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening the passphrase file: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("opening the passphrase file: %s is a directory", path)
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o022 != 0:
		return nil, fmt.Errorf("opening the passphrase file: others than its owner may write %s (mode %04o): run chmod 600 on it", path, mode)
	case mode&0o044 != 0 && warn != nil:
		warn(fmt.Errorf("%w %s (mode %04o): run chmod 600 on it", ErrOthersMayRead, path, mode))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPassphraseFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the passphrase file: %w", err)
	}
	k, err := parseKeyring(data)
	if err != nil {
		return nil, fmt.Errorf("reading the passphrase file %s: %w", path, err)
	}
	k.file = path
	return k, nil
}

// parseKeyring is the one judge of what a passphrase file says.
func parseKeyring(data []byte) (*Keyring, error) {
	if len(data) > maxPassphraseFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxPassphraseFile)
	}
	data = bytes.TrimSuffix(data, []byte("\n"))
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	return NewKeyring(bytes.Split(data, []byte("\n"))...)
}

// Len returns how many different passphrases there are.
func (k *Keyring) Len() int { return len(k.passphrases) }

// String says how many passphrases there are, and nothing else of them.
func (k *Keyring) String() string { return fmt.Sprintf("keyring of %d passphrases", k.Len()) }

// Format is String under every verb, so that none prints the passphrases.
func (k *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// newest returns the wrapper of the newest passphrase under a salt.
func (k *Keyring) newest(ctx context.Context, s salted) (*wrapper, error) {
	return derive(ctx, k.passphrases[0], derivation{k.tags[0], s})
}

// find returns the wrapper of that passphrase whose key id is id, or ErrWrongKey.
func (k *Keyring) find(ctx context.Context, s salted, id keyID) (*wrapper, error) {
	for i, tag := range k.tags {
		w, err := derive(ctx, k.passphrases[i], derivation{tag, s})
		if err != nil {
			return nil, err
		}
		if w.id == id {
			return w, nil
		}
	}
	return nil, k.wrongKey()
}

// findForBlob is find for what a blob asks for. Blobs share the few salts of markers; a
// store that is full of others is out to keep its reader busy.
func (k *Keyring) findForBlob(ctx context.Context, s salted, id keyID) (*wrapper, error) {
	derived := true
	for _, tag := range k.tags {
		w := lookUp(derivation{tag, s})
		if w != nil && w.id == id {
			return w, nil
		}
		derived = derived && w != nil
	}
	if derived {
		return nil, k.wrongKey()
	}
	if k.strangers.Load() >= maxStrangers {
		return nil, fmt.Errorf("%w (%d blobs with salts of their own fitted none: no more are tried)", k.wrongKey(), maxStrangers)
	}
	w, err := k.find(ctx, s, id)
	if errors.Is(err, ErrWrongKey) {
		k.strangers.Add(1)
	}
	return w, err
}
