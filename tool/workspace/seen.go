package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// Seen remembers, for a session, what files held when they were last shown to it or
// written by it. It is a directory with a small file for each, replaced in one step,
// so that any number of processes may use it. Losing it loses the guard, and nothing
// else; where it cannot be written, nothing is remembered.
//
// A file is named for the SHA-256 of the path, and holds a JSON object: path, size in
// bytes, crc32c of the content in eight hexadecimal digits, and time.
type Seen struct {
	dir string
	fs  durable.FS
}

// NewSeen returns what was seen as the directory dir remembers it, which is made when
// there is something to remember. A nil fsys means the real file system.
func NewSeen(dir string, fsys durable.FS) *Seen {
	if fsys == nil {
		fsys = durable.OS
	}
	return &Seen{dir, fsys}
}

// seen is one file as it was.
type seen struct {
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	CRC32C string    `json:"crc32c"`
	Time   time.Time `json:"time"`
}

// maxSeen bounds the file of one path: JSON writes a byte in six at most.
const maxSeen = 6*maxPath + 1<<10

func (s *Seen) name(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16]))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Note remembers that a file has this content now.
func (s *Seen) Note(path string, content []byte) {
	if s != nil {
		s.NoteSum(path, int64(len(content)), crc32.Checksum(content, castagnoli))
	}
}

// NoteSum is Note for content of which the size and the CRC-32C are known.
func (s *Seen) NoteSum(path string, size int64, crc uint32) {
	if s == nil {
		return
	}
	data, err := json.Marshal(seen{path, size, fmt.Sprintf("%08x", crc), time.Now().UTC().Truncate(time.Second)})
	if err != nil || durable.MkdirAll(s.fs, s.dir) != nil || durable.WriteFile(s.fs, s.name(path), false, data) != nil {
		s.Forget(path) // better nothing than what is not true any more
	}
}

// Forget forgets a file.
func (s *Seen) Forget(path string) {
	if s != nil {
		_ = s.fs.Remove(s.name(path)) // as good as never remembered
	}
}

// ErrChanged is matched by the error for a file that is not as it was when it was last
// read.
var ErrChanged = errors.New("it changed since it was read")

// changedError says the same with more words.
type changedError string

func (e changedError) Error() string        { return string(e) }
func (e changedError) Is(target error) bool { return target == ErrChanged }

// check returns an error that matches ErrChanged for content that is not what was seen.
func (s *Seen) check(path string, exists bool, content []byte) error {
	if s == nil {
		return nil
	}
	data, err := durable.ReadFile(s.fs, s.name(path), maxSeen)
	if err != nil {
		return nil // never seen, or forgotten
	}
	var was seen
	if json.Unmarshal(data, &was) != nil || was.Path != path {
		return nil
	}
	at := was.Time.Local().Format("15:04:05")
	switch {
	case !exists:
		// The next try is meant to make it: this sentence has told.
		s.Forget(path)
		return changedError(fmt.Sprintf("%s was removed since this session saw it last, at %s; repeat the call to make it anew", path, at))
	case was.Size != int64(len(content)) || was.CRC32C != fmt.Sprintf("%08x", crc32.Checksum(content, castagnoli)):
		return changedError(fmt.Sprintf("%s changed since this session saw it last, at %s; read it again, then decide what to change", path, at))
	}
	return nil
}

// notThere reports whether an error says that nothing is there.
func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
