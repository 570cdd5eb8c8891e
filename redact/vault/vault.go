// Package vault numbers the secrets of a session that were replaced, and keeps them for their owner if that is wanted.
//
// The numbers are in a file of the directory of artifacts, .redacted, a line of JSON each:
//
//	{"n":1,"kind":"github","hash":"<64 hex>","age":"<base64>"}
//
// hash is the HMAC-SHA-256 of the secret under a key of the home (<home>/redact.key), so that the same secret has the same n, in
// every process that works on the session and after every resume, and so that the file alone tells nobody whether a
// guess is right. A fork has a copy of it, and so has a bundle: numbers go on there, and in a home with another key a secret
// gets a new one; none ever stands for two secrets.
//
// age is there where it was asked for: the secret, encrypted in the format of age (age-encryption.org/v1) to a recipient. Without one it is to
// an identity made for the home (<home>/redact.identity). Who has neither that file nor another identity can not read it. It goes with the session.
//
// # Crashes and faults
//
// A line is written before its number is given out, and is durable with Options.Sync. A line that was torn is passed
// over, and its number, which nobody was told, given out again. Where the file can not be read or written, the number is 0: the secret
// is replaced all the same, and Err says why.
package vault

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/agentrun/agentrun/internal/durable"
)

// Names of files.
const (
	Name         = ".redacted" // in the directory of artifacts
	keyName      = "redact.key"
	identityName = "redact.identity"
)

const (
	maxFile  = 64 << 20 // of a session's file
	lockWait = 10 * time.Second
)

// Options say whose secrets to number.
type Options struct {
	Home string
	// Dir is the directory of the session's artifacts as it is now; it is made where there is something to write. ""
	// is none, and gives no numbers.
	Dir func() string
	// Reversible keeps the secrets, encrypted.
	Reversible bool
	// Recipient is whom for, as age writes it (age1...); "" is the identity of the home.
	Recipient string
	Sync      bool
	FS        durable.FS // nil is the real one
}

// Vault numbers the secrets of one session. It is safe for concurrent use, and holds nothing open.
type Vault struct {
	opts Options
	fs   durable.FS

	mu   sync.Mutex
	key  []byte
	to   age.Recipient
	seen map[string]item // by hash
	last int64           // the highest number
	read int64           // how much of the file is known
	err  error
}

// item is a line of the file.
type item struct {
	N    int64  `json:"n"`
	Kind string `json:"kind"`
	Hash string `json:"hash"`
	Age  []byte `json:"age,omitempty"`
}

// New returns a vault. Nothing is read or made before there is something to number.
func New(o Options) *Vault {
	v := &Vault{opts: o, fs: o.FS, seen: map[string]item{}}
	if v.fs == nil {
		v.fs = durable.OS
	}
	return v
}

// Number returns the number of a secret, 0 if none is to be had. It does not keep the slice.
func (v *Vault) Number(kind string, secret []byte) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.number(kind, secret)
	if err != nil {
		if v.err == nil {
			v.err = fmt.Errorf("numbering a secret that was replaced: %w", err)
		}
		return 0
	}
	return n
}

// Err says why a secret got no number, nil when all did.
func (v *Vault) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

func (v *Vault) number(kind string, secret []byte) (int64, error) {
	if v.key == nil {
		key, err := v.loadKey()
		if err != nil {
			return 0, err
		}
		v.key = key
	}
	mac := hmac.New(sha256.New, v.key)
	mac.Write(secret)
	hash := hex.EncodeToString(mac.Sum(nil))
	if known, ok := v.seen[hash]; ok && (known.Age != nil || !v.opts.Reversible) {
		return known.N, nil
	}
	return v.assign(item{Kind: kind, Hash: hash}, secret)
}

// assign looks whether somebody else has numbered the secret, and else does.
func (v *Vault) assign(it item, secret []byte) (n int64, err error) {
	dir := v.opts.Dir()
	if dir == "" {
		return 0, errors.New("the session has no directory of artifacts")
	}
	if err := durable.MkdirAll(v.fs, dir); err != nil {
		return 0, err
	}
	lock, err := durable.OpenLock(v.fs, filepath.Join(dir, Name))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if err := lock.Lock(context.Background(), lockWait); err != nil {
		return 0, err
	}
	defer func() { _ = lock.Unlock() }() // closing does so too
	f := lock.File()
	id, err := f.Identify()
	if err != nil {
		return 0, err
	}
	torn, err := v.catchUp(f, id.Size)
	if err != nil {
		return 0, err
	}
	known, ok := v.seen[it.Hash]
	if ok && (known.Age != nil || !v.opts.Reversible) {
		return known.N, nil
	}
	if it.N = v.last + 1; ok {
		it.N = known.N
	}
	if v.opts.Reversible {
		if it.Age, err = v.encrypt(secret); err != nil {
			return 0, err
		}
	}
	line, err := json.Marshal(it)
	if err != nil {
		return 0, err
	}
	if torn {
		line = append([]byte{'\n'}, line...)
	}
	if err := v.append(f, id.Size, append(line, '\n'), dir); err != nil {
		return 0, err
	}
	v.read = id.Size + int64(len(line)) + 1
	v.learn(it)
	return it.N, nil
}

// append writes a line at the end of the file, and takes it back where that fails.
func (v *Vault) append(f durable.File, size int64, line []byte, dir string) error {
	n, err := f.WriteAt(line, size)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err == nil && v.opts.Sync {
		if err = f.Sync(); err == nil {
			err = v.fs.SyncDir(dir)
		}
	}
	if err != nil {
		_ = f.Truncate(size) // a torn line is passed over
	}
	return err
}

// catchUp reads what others have written. It reports whether the file ends in the middle of a line.
func (v *Vault) catchUp(f durable.File, size int64) (torn bool, err error) {
	if size > maxFile {
		return false, fmt.Errorf("%s has %d bytes, more than %d", Name, size, maxFile)
	}
	if size < v.read {
		v.seen, v.last, v.read = map[string]item{}, 0, 0 // it is another file, or was cut
	}
	b := make([]byte, size-v.read)
	if _, err := io.ReadFull(io.NewSectionReader(f, v.read, size-v.read), b); err != nil {
		return false, err
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	for _, it := range parse(b[:end]) {
		v.learn(it)
	}
	v.read += int64(end)
	return end < len(b), nil
}

func (v *Vault) learn(it item) {
	if known, ok := v.seen[it.Hash]; !ok || known.Age == nil {
		if ok {
			it.N = known.N
		}
		v.seen[it.Hash] = it
	}
	v.last = max(v.last, it.N)
}

// parse reads whole lines. What is none of ours is passed over.
func parse(b []byte) []item {
	const maxNumber = 1 << 53 // as JSON has them everywhere
	var items []item
	for line := range bytes.Lines(b) {
		var it item
		if json.Unmarshal(line, &it) != nil || it.N < 1 || it.N >= maxNumber || len(it.Hash) != 2*sha256.Size || !isKind(it.Kind) {
			continue
		}
		if _, err := hex.DecodeString(it.Hash); err == nil {
			items = append(items, it)
		}
	}
	return items
}

// isKind reports whether s may be the name of a kind.
func isKind(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// loadKey reads the key of the home, and makes it where there is none.
func (v *Vault) loadKey() ([]byte, error) {
	path := filepath.Join(v.opts.Home, keyName)
	text, err := v.ours(path, func() string {
		var key [32]byte
		_, _ = rand.Read(key[:])
		return hex.EncodeToString(key[:])
	})
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%s is no key: move it away, and secrets get new numbers", path)
	}
	return key, nil
}

// ours reads a small file of the home, which fresh fills where it is not there.
func (v *Vault) ours(path string, fresh func() string) (string, error) {
	for try := 0; ; try++ {
		b, err := durable.ReadFile(v.fs, path, 4096)
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || try == 2 {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		err = durable.WriteNewFunc(v.fs, path, true, func(w io.Writer) error {
			_, err := io.WriteString(w, fresh()+"\n")
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("making %s: %w", path, err)
		}
	}
}

// encrypt encrypts a secret for its owner.
func (v *Vault) encrypt(secret []byte) ([]byte, error) {
	if v.to == nil {
		to, err := v.recipient()
		if err != nil {
			return nil, err
		}
		v.to = to
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, v.to)
	if err == nil {
		_, err = w.Write(secret)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encrypting a secret: %w", err)
	}
	return b.Bytes(), nil
}

func (v *Vault) recipient() (age.Recipient, error) {
	if v.opts.Recipient != "" {
		return ParseRecipient(v.opts.Recipient)
	}
	path := filepath.Join(v.opts.Home, identityName)
	var made error
	text, err := v.ours(path, func() string {
		id, err := age.GenerateX25519Identity()
		if err != nil {
			made = err
			return ""
		}
		return id.String()
	})
	if err = errors.Join(err, made); err != nil {
		return nil, err
	}
	id, err := age.ParseX25519Identity(text)
	if err != nil {
		return nil, fmt.Errorf("%s is no identity of age: move it away, and later secrets get a new one", path)
	}
	return id.Recipient(), nil
}

// ParseRecipient reads a recipient such as age1....
func ParseRecipient(s string) (age.Recipient, error) {
	to, err := age.ParseX25519Recipient(s)
	if err != nil {
		return nil, fmt.Errorf("%.80q is no recipient of age: give one as age-keygen -y prints it", s)
	}
	return to, nil
}

// Secret is one that was replaced.
type Secret struct {
	N    int64
	Kind string
	// Text is nil where it was not kept, or none of the identities is the one that it was encrypted for.
	Text []byte
	Kept bool
}

// Reveal returns the secrets that were replaced in a session, in the order of their numbers, from the directory of its artifacts. identity is a file of
// identities as age-keygen writes it; "" is that of the home. Nothing is changed.
func Reveal(fsys durable.FS, home, dir, identity string) ([]Secret, error) {
	if fsys == nil {
		fsys = durable.OS
	}
	b, err := durable.ReadFile(fsys, filepath.Join(dir, Name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was replaced: %w", err)
	}
	ids, err := identities(fsys, home, identity)
	if err != nil {
		return nil, err
	}
	var secrets []Secret
	at := map[int64]int{}
	for _, it := range parse(b[:bytes.LastIndexByte(b, '\n')+1]) {
		s := Secret{N: it.N, Kind: it.Kind, Kept: it.Age != nil}
		if s.Kept && len(ids) > 0 {
			s.Text = decrypt(it.Age, ids)
		}
		if i, again := at[s.N]; again {
			if secrets[i].Text == nil && s.Kept {
				secrets[i] = s
			}
			continue
		}
		at[s.N] = len(secrets)
		secrets = append(secrets, s)
	}
	return secrets, nil
}

func identities(fsys durable.FS, home, path string) ([]age.Identity, error) {
	given := path != ""
	if !given {
		path = filepath.Join(home, identityName)
	}
	b, err := durable.ReadFile(fsys, path, 1<<20)
	if !given && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the identity: %w", err)
	}
	ids, err := age.ParseIdentities(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s holds no identity of age: give a file as age-keygen writes it", path)
	}
	return ids, nil
}

// maxSecret bounds what is decrypted; no environment variable is longer.
const maxSecret = 1 << 20

func decrypt(b []byte, ids []age.Identity) []byte {
	r, err := age.Decrypt(bytes.NewReader(b), ids...)
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSecret))
	if err != nil {
		return nil
	}
	return text
}
