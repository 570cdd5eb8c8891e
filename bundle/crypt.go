package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
)

// cryptMagic begins every file of age.
const cryptMagic = "age-encryption.org/v1\n"

// Work factors of scrypt, as powers of two: 18 is what age writes, about a second
// and 256 MiB. More is not asked of whoever opens a hostile file.
const (
	workFactor    = 18
	maxWorkFactor = 18
)

// maxPassphrase bounds the file of a passphrase, in bytes.
const maxPassphrase = 64 << 10

// ReadPassphrase reads a passphrase from a file: all of it but the newline at its
// end. Its content is in no error.
func ReadPassphrase(name string) (string, error) {
	f, err := os.Open(name) // often a pipe, as the shell makes it of <(...)
	if err != nil {
		return "", fmt.Errorf("reading the passphrase: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPassphrase+1))
	if err != nil {
		return "", fmt.Errorf("reading the passphrase: %w", err)
	}
	if len(data) > maxPassphrase {
		return "", fmt.Errorf("reading the passphrase: %s has more than %d bytes; name a file that holds a passphrase", name, maxPassphrase)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return "", fmt.Errorf("reading the passphrase: %s is empty; put a passphrase into it", name)
	}
	return string(data), nil
}

// encryptTo returns a writer that encrypts to w. Close it.
func encryptTo(w io.Writer, passphrase string, work int) (io.WriteCloser, error) {
	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	if work == 0 {
		work = workFactor
	}
	to.SetWorkFactor(work)
	return age.Encrypt(w, to)
}

// errPassphrase is returned for a passphrase that does not open a bundle.
var errPassphrase = errors.New("the passphrase does not open it: check the file of --passphrase-file")

// unlocker opens an encrypted bundle more than once, and makes a key of the
// passphrase only once.
type unlocker struct {
	scrypt *age.ScryptIdentity
	key    []byte
}

func newUnlocker(passphrase string) (*unlocker, error) {
	id, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, fmt.Errorf("decrypting: %w", err)
	}
	id.SetMaxWorkFactor(maxWorkFactor)
	return &unlocker{scrypt: id}, nil
}

// Unwrap implements age.Identity.
func (u *unlocker) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if u.key != nil {
		return u.key, nil
	}
	key, err := u.scrypt.Unwrap(stanzas)
	u.key = bytes.Clone(key)
	return key, err
}

func (u *unlocker) open(r io.Reader) (io.Reader, error) {
	plain, err := age.Decrypt(r, u)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) || errors.Is(err, age.ErrIncorrectIdentity) {
		return nil, errPassphrase
	}
	if err != nil {
		return nil, fmt.Errorf("decrypting it: %w", err)
	}
	return plain, nil
}
