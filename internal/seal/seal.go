// Package seal tells what this program wrote down in a home from what somebody else did, or changed.
//
// A home has a key: 32 random bytes in the file settings.key, mode 0600. It is made when something is sealed first, and it stays in the
// home: nothing exports or prints it. A seal is an HMAC-SHA256 with that key over the settings of a run, byte for byte,
// and the session and the run that they are for. So it holds for no other session, run or home. A home whose key was lost
// or changed has seals that do not hold, and makes a new key: they are a proof and encrypt nothing.
//
// All functions are safe for concurrent use, also by several processes.
package seal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/agentrun/agentrun/internal/durable"
)

// Name is that of the file of the key in a home.
const Name = "settings.key"

// size is that of a key in bytes: what SHA-256 has of security, see RFC 2104, section 3.
const size = 32

// A Key makes and checks seals. nil is a key that was never made: no seal holds for it.
type Key struct{ secret [size]byte }

// String is not the key.
func (k *Key) String() string { return Name }

// GoString is not the key either.
func (k *Key) GoString() string { return Name }

// Load reads the key of a home. The error matches fs.ErrNotExist when none was made yet.
func Load(fsys durable.FS, home string) (*Key, error) {
	path := filepath.Join(home, Name)
	data, err := durable.ReadFile(fsys, path, size)
	if err != nil && !errors.Is(err, durable.ErrTooLarge) {
		return nil, fmt.Errorf("reading the key of the home: %w", err)
	}
	if len(data) != size {
		return nil, fmt.Errorf("reading the key of the home: %s is not one, which has %d bytes: remove it, and another is made", path, size)
	}
	k := new(Key)
	copy(k.secret[:], data)
	return k, nil
}

// Make reads the key of a home, or makes it when there is none: one, however many make it at once. It is on the disk when
// Make returns.
func Make(fsys durable.FS, home string) (*Key, error) {
	k, err := Load(fsys, home)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := durable.MkdirAll(fsys, home); err != nil {
		return nil, fmt.Errorf("making the key of the home: %w", err)
	}
	k = new(Key)
	_, _ = rand.Read(k.secret[:]) // never fails
	err = durable.WriteNewFunc(fsys, filepath.Join(home, Name), true, func(w io.Writer) error {
		_, err := w.Write(k.secret[:])
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return Load(fsys, home)
	}
	if err != nil {
		return nil, fmt.Errorf("making the key of the home: %w", err)
	}
	return k, nil
}

// Seal is the seal of the settings of a run of a session, in hexadecimal.
func (k *Key) Seal(session, run string, settings []byte) string {
	return hex.EncodeToString(k.sum(session, run, settings))
}

// Holds reports whether a seal is that of the settings of a run of a session.
func (k *Key) Holds(seal, session, run string, settings []byte) bool {
	if k == nil {
		return false
	}
	sum, err := hex.DecodeString(seal)
	return err == nil && hmac.Equal(sum, k.sum(session, run, settings))
}

// sum is over each part behind its length, so that no two ways of parting the same bytes have one.
func (k *Key) sum(session, run string, settings []byte) []byte {
	mac := hmac.New(sha256.New, k.secret[:])
	for _, part := range [][]byte{[]byte("agentrun settings 1"), []byte(session), []byte(run), settings} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write(part)
	}
	return mac.Sum(nil)
}
