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
//     nothing on the disk but the time stamp of a blob that is older than a minute.
//   - What is read is verified, all of it, before a byte is handed out. A blob
//     whose bytes changed is blobstore.ErrCorrupt; its file is moved to
//     .corrupt/<hex> inside the directory, where the latest such file is kept,
//     and storing the right bytes again heals it. Where the file cannot be moved
//     (a read-only home), or may be another program's (Options.Adopt), it is
//     reported all the same, and stays. What begins like ciphertext of
//     package encrypted is blobstore.ErrEncrypted and stays where it is. In a directory
//     of another program in which nothing hashes to its name, all matches both.
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
// # Collecting
//
// Collect removes blobs that nothing names. What names them is the caller's to know;
// that none is lost that is being stored meanwhile is promised here, without a lock
// that writers would wait for:
//
//   - Nothing younger than a grace period is touched, and a blob that is stored again
//     is made young. The collector moves a blob to .gc/<name> first and looks at its
//     age then: a writer that saw it under its name has made it young before that,
//     and it is put back; any other writer finds the name missing and stores it anew.
//   - Nothing that was stored while a Lease was held, and is held still, is touched.
//   - Readers find what is in .gc. A collector that was killed leaves blobs there; the
//     next one judges them again.
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
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

const (
	corruptDir = ".corrupt"           // holds what was found under a name that it does not hash to
	gcDir      = ".gc"                // holds what a collector is about to remove
	marker     = ".agentrun-opaque"   // its presence makes a directory opaque
	ourMark    = ".agentrun-verified" // verified blobs, in a directory that was empty when we came
	tempPrefix = ".tmp-"              // as durable.CreateTemp names them
	ompDir     = "blobs"              // what oh-my-pi calls its blob directory
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

	// Adopt says that another program may have made the directory. Mode Opaque then
	// has one in which nothing says that it is opaque: the bytes of some of its blobs
	// are looked at, and none of them may hash to its name. Mode Verified moves and
	// replaces nothing there that does not hash to its name, unless the directory is
	// marked as ours, and stores nothing there when none of the blobs that it looks at
	// hashes to its name. One that is empty is marked before its first blob.
	Adopt bool

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

	looked atomic.Int32 // blobs of another program that do not hash to their names; -1 where one does, 0 before a look

	synced syncedSet
}

var (
	_ blobstore.Store           = (*Store)(nil)
	_ blobstore.Stater          = (*Store)(nil)
	_ blobstore.Walker          = (*Store)(nil)
	_ blobstore.Deleter         = (*Store)(nil)
	_ blobstore.Opener          = (*Store)(nil)
	_ blobstore.RangeReader     = (*Store)(nil)
	_ blobstore.Putter          = (*Store)(nil)
	_ blobstore.BytesPutter     = (*Store)(nil)
	_ blobstore.ExclusiveSetter = (*Store)(nil)
	_ blobstore.Moder           = (*Store)(nil)
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
