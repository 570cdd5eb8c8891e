// Package localdir keeps blobs as files: one flat directory, one file a blob,
// named by the 64 hexadecimal digits of its SHA-256, holding the raw bytes. It is
// the layout of oh-my-pi's blobs directory, and both programs may use one at the
// same time.
//
// # Promises
//
//   - The file under a blob's name holds that blob, whole, from the moment the
//     name exists. A new blob is written to a temporary in the same directory
//     and published under its name without replacing anything, so neither a
//     crash nor two writers at once leave a wrong blob under a right name.
//   - With Options.Sync a blob that was acknowledged survives power loss: the file
//     is fsynced before it is published and the directory after it. Without, it
//     survives the death of the process. This holds for bytes that were there
//     already, too: another process may have written them without Sync.
//   - Storing bytes that are there compares them with what is there and changes
//     nothing on the disk, not even a time stamp.
//   - What is read is verified, all of it, before a byte is handed out. A blob
//     whose bytes changed is blobstore.ErrCorrupt; its file is moved to
//     .corrupt/<hex> inside the directory, where the latest such file is kept,
//     and storing the right bytes again heals it. Where the file cannot be moved
//     (a read-only home) it is reported all the same.
//   - Nothing but a regular file is ever opened under a blob's name: a symbolic
//     link, FIFO, device or directory there is an error that names it.
//
// # Beside blobs
//
// oh-my-pi puts hard links with an extension, <hex>.png, beside its blobs. They
// and every other name that is not 64 digits are left alone by all methods.
// Temporaries (.tmp-*) that a crash left count as nothing; Sweep removes them.
// oh-my-pi also rewrites a blob in place when it stores it again: a reader that
// falls into that moment looks twice before it calls the blob corrupt, and a
// file that was moved aside and then completed is taken back.
//
// # Opaque
//
// In mode blobstore.Opaque nothing is hashed, and Set replaces what an id held
// by an atomic rename. Such a directory is marked with a file, .agentrun-opaque,
// before its first blob. One kind of directory is refused by the other mode, and
// a directory called "blobs" is never opaque: oh-my-pi would take the ciphertext
// for images, and delete it.
//
// All methods may be called concurrently, also by several processes.
package localdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

const (
	corruptDir = ".corrupt"         // holds what was found under a name that it does not hash to
	marker     = ".agentrun-opaque" // its presence makes a directory opaque
	tempPrefix = ".tmp-"            // as durable.CreateTemp names them
	ompDir     = "blobs"            // what oh-my-pi calls its blob directory
)

// DefaultMaxGetBytes is the largest blob that Get loads by default.
const DefaultMaxGetBytes = 1 << 30

// Options say how a directory is used. The zero value is a Verified store that
// does not fsync.
type Options struct {
	Mode blobstore.Mode

	// Sync makes a stored blob survive power loss, not only the process.
	Sync bool

	// MaxGetBytes is the largest blob that Get loads into memory; a larger one
	// is blobstore.ErrTooLarge and can be streamed with Open. 0 means
	// DefaultMaxGetBytes.
	MaxGetBytes int64

	// FS is the file system; nil means durable.OS. Tests inject faults here.
	FS durable.FS
}

// Store is a directory of blobs.
type Store struct {
	dir  string // absolute
	opts Options
	fsys durable.FS

	ready   atomic.Bool // the directory exists and is of our mode
	readyMu sync.Mutex  // held while that is being established

	synced syncedSet
}

var (
	_ blobstore.Store       = (*Store)(nil)
	_ blobstore.Stater      = (*Store)(nil)
	_ blobstore.Walker      = (*Store)(nil)
	_ blobstore.Deleter     = (*Store)(nil)
	_ blobstore.Opener      = (*Store)(nil)
	_ blobstore.RangeReader = (*Store)(nil)
	_ blobstore.Putter      = (*Store)(nil)
	_ blobstore.BytesPutter = (*Store)(nil)
	_ blobstore.Moder       = (*Store)(nil)
)

// Open returns the store in dir. It makes nothing on disk: the directory appears
// with the first blob. A directory of the other mode is blobstore.ErrMode.
func Open(dir string, opts Options) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("opening blob directory %s: %w", dir, err)
	}
	if opts.MaxGetBytes == 0 {
		opts.MaxGetBytes = DefaultMaxGetBytes
	}
	if opts.FS == nil {
		opts.FS = durable.OS
	}
	s := &Store{dir: abs, opts: opts, fsys: opts.FS}
	if err := s.checkMode(); err != nil {
		return nil, fmt.Errorf("opening blob directory %s: %w", abs, err)
	}
	return s, nil
}

// Dir returns the directory, as an absolute path.
func (s *Store) Dir() string { return s.dir }

// Mode returns the mode that the store was opened with.
func (s *Store) Mode() blobstore.Mode { return s.opts.Mode }

// Flush has nothing to wait for: every call finishes its own work.
func (s *Store) Flush(context.Context) error { return nil }

// path is the one place where a reference becomes a file name.
func (s *Store) path(ref blobref.Ref) string {
	return s.dir + string(filepath.Separator) + ref.Hex()
}

func (s *Store) corruptPath(ref blobref.Ref) string {
	return filepath.Join(s.dir, corruptDir, ref.Hex())
}

// checkMode holds the mode of the store against what is on the disk.
func (s *Store) checkMode() error {
	info, err := s.fsys.Lstat(s.dir)
	switch {
	case err == nil && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0:
		return errors.New("it is a file, not a directory")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	_, err = s.fsys.Lstat(filepath.Join(s.dir, marker))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	marked := err == nil
	switch s.opts.Mode {
	case blobstore.Verified:
		if marked {
			return fmt.Errorf("%w: it holds opaque blobs (%s says so), whose bytes do not hash to their names", blobstore.ErrMode, marker)
		}
		return nil
	case blobstore.Opaque:
		return s.checkOpaque(marked)
	}
	return fmt.Errorf("%w: %v", blobstore.ErrMode, s.opts.Mode)
}

func (s *Store) checkOpaque(marked bool) error {
	// What a symbolic link points to is called by its own name too.
	real, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		real = s.dir
	}
	if filepath.Base(s.dir) == ompDir || filepath.Base(real) == ompDir {
		return fmt.Errorf("%w: a directory called %q belongs to verified blobs; give opaque ones a directory of another name", blobstore.ErrMode, ompDir)
	}
	if marked {
		return nil
	}
	entries, err := s.fsys.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			return fmt.Errorf("%w: it is in use, but not for opaque blobs (it holds %s and no %s); give them an empty directory", blobstore.ErrMode, e.Name(), marker)
		}
	}
	return nil
}

// prepare makes the directory, and its marker, before the first write.
func (s *Store) prepare() error {
	if s.ready.Load() {
		return nil
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	if s.ready.Load() {
		return nil
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	// Again, for what another process did since Open.
	if err := s.checkMode(); err != nil {
		return fmt.Errorf("writing to blob directory %s: %w", s.dir, err)
	}
	if s.opts.Mode == blobstore.Opaque {
		if _, err := s.fsys.Lstat(filepath.Join(s.dir, marker)); errors.Is(err, fs.ErrNotExist) {
			text := "The blobs in this directory do not hash to their names: agentrun keeps ciphertext here.\n"
			if err := durable.WriteFile(s.fsys, filepath.Join(s.dir, marker), s.opts.Sync, []byte(text)); err != nil {
				return err
			}
		}
	}
	s.ready.Store(true)
	return nil
}

func (s *Store) makeDir() error {
	var missing []string // innermost first
	for dir := s.dir; ; dir = filepath.Dir(dir) {
		_, err := s.fsys.Lstat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		missing = append(missing, dir)
	}
	if err := durable.MkdirAll(s.fsys, s.dir); err != nil {
		return err
	}
	if !s.opts.Sync {
		return nil
	}
	for _, dir := range missing {
		if err := s.fsys.SyncDir(filepath.Dir(dir)); err != nil {
			return fmt.Errorf("syncing the directory of %s: %w", dir, err)
		}
	}
	return nil
}

// syncedSet remembers which files of which blobs this store knows to be durable,
// so that storing the same screenshot again costs no fsync.
type syncedSet struct {
	mu    sync.Mutex
	files map[blobref.Ref]durable.Identity // guarded by mu
}

// maxSynced bounds the set to under 1 MiB. When it is full it starts anew, at the
// cost of one fsync for each blob that is stored once more.
const maxSynced = 4096

func (c *syncedSet) has(ref blobref.Ref, id durable.Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.files[ref]
	return ok && known.SameFile(id) && known.Size == id.Size && known.ModTime == id.ModTime
}

func (c *syncedSet) add(ref blobref.Ref, id durable.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil || len(c.files) >= maxSynced {
		c.files = make(map[blobref.Ref]durable.Identity)
	}
	c.files[ref] = id
}
