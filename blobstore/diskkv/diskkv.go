package diskkv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// Defaults of Options.
const (
	// DefaultMaxBytes is the largest blob that is stored or loaded by default.
	DefaultMaxBytes = 256 << 20

	// MaxBytes is the most that Options.MaxBytes can allow: SQLite takes rows up to
	// 1,000,000,000 bytes, of which the key needs some.
	MaxBytes = 1_000_000_000 - 4096

	// DefaultBusyTimeout is how long a lock of another process is waited for by
	// default.
	DefaultBusyTimeout = 10 * time.Second
)

// Options say how a file is used. The zero value is a Verified store that is written
// to and does not fsync.
type Options struct {
	Mode blobstore.Mode

	// Sync makes what was acknowledged survive power loss. Without, it survives the
	// death of the process, and power loss once Flush has returned.
	Sync bool

	// ReadOnly opens a file of our own as one of another program: nothing of it
	// changes, and a file that is not there is not made.
	ReadOnly bool

	// MaxBytes is the largest blob that is stored or loaded; a larger one is
	// blobstore.ErrTooLarge. 0 means DefaultMaxBytes.
	MaxBytes int64

	// BusyTimeout is how long a lock of another process is waited for before ErrBusy,
	// rounded down to milliseconds. 0 means DefaultBusyTimeout.
	BusyTimeout time.Duration

	// FS makes and moves files, and looks at them; nil means durable.OS. What SQLite
	// reads and writes does not pass here.
	FS durable.FS
}

// Damage is what Open found wrong with a file of our own, and what it did about it.
type Damage struct {
	File  string // the file
	Moved string // where it, and its log, stand now; a new file was begun
	Log   string // where a copy of its log is, if only that is damaged; what SQLite could read of it is in the file
	Cause error  // matches blobstore.ErrCorrupt
}

func (d *Damage) Error() string {
	if d.Moved == "" {
		return fmt.Sprintf("%s: %v; the log as it was is kept as %s", d.File, d.Cause, d.Log)
	}
	return fmt.Sprintf("%s was damaged (%v) and stands now as %s; a new one was begun", d.File, d.Cause, d.Moved)
}

// Unwrap returns the cause, which matches blobstore.ErrCorrupt.
func (d *Damage) Unwrap() error { return d.Cause }

// Store is a file with a table cursorDiskKV.
type Store struct {
	path string // absolute
	opts Options
	fsys durable.FS

	mu     sync.RWMutex // held for reading while an operation uses src
	src    *source      // nil as long as there is no file
	closed bool

	namesMu sync.Mutex
	names   []string // guarded by namesMu: directories in which one was made, and not synced
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

	_ blobstore.StreamSetter = (*Store)(nil)
)

// Open returns the store in the file path. Where there is none it is made with the
// first write, not now, and in an empty file as well. A file of our own that is damaged is moved aside, and the
// Damage says where to; it is nil otherwise. A file that SQLite cannot read, or that has not
// the table, is ErrFormat, and one of our own of the other mode blobstore.ErrMode.
// Whoever opens a store closes it.
func Open(ctx context.Context, path string, opts Options) (*Store, *Damage, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("opening %s: %w", path, err)
	}
	switch {
	case opts.Mode != blobstore.Verified && opts.Mode != blobstore.Opaque:
		return nil, nil, fmt.Errorf("opening %s: %w: %v", abs, blobstore.ErrMode, opts.Mode)
	case opts.MaxBytes < 0 || opts.MaxBytes > MaxBytes:
		return nil, nil, fmt.Errorf("opening %s: a limit of %d bytes; SQLite allows 0 to %d", abs, opts.MaxBytes, MaxBytes)
	case opts.MaxBytes == 0:
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.BusyTimeout == 0 {
		opts.BusyTimeout = DefaultBusyTimeout
	}
	if opts.FS == nil {
		opts.FS = durable.OS
	}
	s := &Store{path: abs, opts: opts, fsys: opts.FS}
	src, err := s.openSource(ctx)
	var damage *Damage
	if err != nil && s.mayMoveAside(err) {
		if damage, err = s.moveAside(ctx); err == nil {
			src, err = s.openSource(ctx)
		}
	}
	if err == nil && damage == nil {
		damage = src.damage
	}
	if err != nil && !errors.Is(err, errAbsent) {
		return nil, damage, fmt.Errorf("opening %s: %w", abs, err)
	}
	s.src = src
	return s, damage, nil
}

// Path returns the file, as an absolute path.
func (s *Store) Path() string { return s.path }

// Mode returns the mode that the store was opened with.
func (s *Store) Mode() blobstore.Mode { return s.opts.Mode }

// ReadOnly reports whether what there is can only be read: the file is another
// program's, or cannot be written to, or was opened with Options.ReadOnly.
func (s *Store) ReadOnly() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.opts.ReadOnly || s.src != nil && s.src.writer == nil
}

// Close waits for operations that began and frees everything. What was acknowledged
// is in the file. Later calls of all methods fail with an error that matches
// fs.ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	src := s.src
	s.src = nil
	if src == nil {
		return nil
	}
	if err := src.close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.path, err)
	}
	return nil
}

var errClosed = fmt.Errorf("the store is closed: %w", fs.ErrClosed)

// attempts is how often an operation is begun anew because the file was replaced, or
// changed by somebody who takes no locks.
const attempts = 8

// acquire returns the file, opened and as it is now, with s.mu held for reading. It
// is errAbsent when there is none.
func (s *Store) acquire(ctx context.Context) (*source, error) {
	for range attempts {
		s.mu.RLock()
		if s.closed {
			s.mu.RUnlock()
			return nil, errClosed
		}
		src := s.src
		if src != nil && src.current() {
			return src, nil
		}
		s.mu.RUnlock()
		if err := s.renew(ctx, src); err != nil {
			return nil, err
		}
	}
	return nil, errRestless
}

var errRestless = errors.New("the file changes all the time; close the program that it belongs to, or try again")

// renew opens the file anew unless somebody did already.
func (s *Store) renew(ctx context.Context, old *source) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.src != old {
		return nil
	}
	if old != nil {
		s.src = nil
		if err := old.close(); err != nil {
			return err
		}
	}
	src, err := s.openSource(ctx)
	if err != nil {
		return err
	}
	s.src = src
	return nil
}

// read calls do with a connection that reads one state of the file. It may call it
// again, when what it has read was no one state. It is errAbsent when there is no file.
func (s *Store) read(ctx context.Context, do func(src *source, c *conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for range attempts {
		src, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		err = src.with(ctx, func(c *conn) error { return do(src, c) })
		ok := src.own || src.current() && codeOf(err) != codeCantOpen
		s.mu.RUnlock()
		if ok {
			return err
		}
		if err := s.renew(ctx, src); err != nil {
			return err
		}
	}
	return errRestless
}

// write calls do in a transaction of the file, together with what others want to
// write, and returns when that is committed. It may call it again. weight is how many bytes do writes.
func (s *Store) write(ctx context.Context, weight int, do func(c *conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for range attempts {
		src, err := s.acquire(ctx)
		if errors.Is(err, errAbsent) && !s.opts.ReadOnly {
			if err := s.create(); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errAbsent) {
			return fmt.Errorf("%w, and there is no file", blobstore.ErrReadOnly)
		}
		if err != nil {
			return err
		}
		if src.writer == nil {
			err = fmt.Errorf("%w: %s", blobstore.ErrReadOnly, src.why)
			s.mu.RUnlock()
			return err
		}
		err = src.writer.do(ctx, weight, do)
		s.mu.RUnlock()
		if !errors.Is(err, errReplaced) {
			return err
		}
		if err := s.renew(ctx, src); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return errRestless
}
