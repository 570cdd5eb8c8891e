// Package idlog keeps the queue of a writethrough store on disk: a log of ids that
// several processes append to.
//
// It is the file "queue" in a directory of its own: records of 88 bytes, each written
// twice over with checksums. A record is there as a whole or not at all: a write that
// a kill or a full disk cut off is overwritten by the next. Beside it lies "lock",
// which is held for the few system calls of an append; the log is compacted into a
// new file that takes its place, which every process notices by the identity of the
// file. With sync a record survives power loss, else the end of the process.
package idlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

const (
	logName  = "queue"
	lockName = "lock"

	// maxSize bounds what is read from a log, and with it the memory for it. A
	// log that is compacted as it should be has this size with millions of ids.
	maxSize = 256 << 20

	// lockWait is how long others may hold the lock; they hold it for
	// microseconds, and for the time of a rewrite when they compact.
	lockWait = 30 * time.Second

	// compactOver is the size in bytes below which compacting gains nothing.
	compactOver = 64 << 10
)

// State is what the records say, kept by the caller. The log calls it with its lock
// held, so one call at a time; State may lock itself, but must not call the log.
type State interface {
	// Apply adds records to the state, and how many more were too damaged to be
	// read. With reset the records are all that there are.
	Apply(reset bool, records []Record, damaged int)

	// Live returns the records from which Apply makes the same state again.
	Live() []Record
}

// Log is a log of ids. Safe for concurrent use.
type Log struct {
	fsys  durable.FS
	dir   string
	path  string
	sync  bool
	state State

	turn chan struct{} // holds one token: who has it owns all below
	lock *durable.Lock
	file durable.File
	id   durable.Identity
	off  int64 // where the next record goes
	next int64 // at which size it is looked at next whether compacting gains anything
	buf  []byte

	closed sync.Once
}

// Open opens the log in dir, makes both when they are not there, and applies all
// records to the state.
func Open(ctx context.Context, fsys durable.FS, dir string, sync bool, state State) (*Log, error) {
	if fsys == nil {
		fsys = durable.OS
	}
	if err := durable.MkdirAll(fsys, dir); err != nil {
		return nil, err
	}
	lock, err := durable.OpenLock(fsys, filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	l := &Log{fsys: fsys, dir: dir, path: filepath.Join(dir, logName), sync: sync, state: state, turn: make(chan struct{}, 1), lock: lock}
	l.turn <- struct{}{}
	err = l.locked(ctx, func() error {
		l.removeTemps()
		return l.catchUp()
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeTemps removes what a process left that was killed while it compacted. Nobody
// compacts while we hold the lock. One that stays is only space.
func (l *Log) removeTemps() {
	entries, err := l.fsys.ReadDir(l.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".tmp-"+logName+"-") {
			_ = l.fsys.Remove(filepath.Join(l.dir, e.Name()))
		}
	}
}

// locked runs do with the lock of this process and of all of them.
func (l *Log) locked(ctx context.Context, do func() error) error {
	select {
	case _, open := <-l.turn:
		if !open {
			return fmt.Errorf("using %s: %w", l.path, fs.ErrClosed)
		}
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", l.path, ctx.Err())
	}
	defer func() { l.turn <- struct{}{} }()
	if err := l.lock.Lock(ctx, lockWait); err != nil {
		return err
	}
	return errors.Join(do(), l.lock.Unlock())
}

// CatchUp applies what other processes appended.
func (l *Log) CatchUp(ctx context.Context) error {
	return l.locked(ctx, l.catchUp)
}

// Update catches up, asks next for records and appends them. When it returns nil they
// are as safe as the log is; on an error some may be in the log.
func (l *Log) Update(ctx context.Context, next func() []Record) error {
	return l.locked(ctx, func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		records := next()
		if len(records) == 0 {
			return nil
		}
		if err := l.append(records); err != nil {
			return err
		}
		if l.sync {
			if err := l.file.Sync(); err != nil {
				return fmt.Errorf("syncing %s: %w", l.path, err)
			}
		}
		return nil
	})
}

func (l *Log) append(records []Record) error {
	l.buf = l.buf[:0]
	for _, r := range records {
		l.buf = appendRecord(l.buf, r)
	}
	if _, err := l.file.WriteAt(l.buf, l.off); err != nil {
		// What got in is overwritten by the next append in any case: a whole
		// record of it counts for those who read it before.
		_ = l.file.Truncate(l.off)
		return fmt.Errorf("writing to %s: %w", l.path, err)
	}
	l.off += int64(len(l.buf))
	l.state.Apply(false, records, 0)
	return nil
}

// catchUp reads what was appended since, or all of a file that took the place of ours.
func (l *Log) catchUp() error {
	now, err := l.fsys.Identify(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.create()
	case err != nil:
		return err
	case l.file != nil && now.SameFile(l.id) && now.Size-now.Size%recordSize == l.off:
		return nil
	case now.Size > maxSize:
		return fmt.Errorf("reading %s: it has %d bytes, more than the %d of any queue: %w", l.path, now.Size, maxSize, durable.ErrTooLarge)
	}
	reset := l.file == nil || !now.SameFile(l.id) || now.Size < l.off
	if reset {
		if err := l.open(os.O_RDWR); err != nil {
			return err
		}
		l.off = 0
	}
	return l.read(reset, now.Size-now.Size%recordSize)
}

func (l *Log) open(flag int) error {
	file, err := l.fsys.OpenFile(l.path, flag, durable.FilePerm)
	if err != nil {
		return fmt.Errorf("opening the queue: %w", err)
	}
	id, err := file.Identify()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if l.file != nil {
		_ = l.file.Close() // nothing was written that is not in the new one
	}
	l.file, l.id = file, id
	return nil
}

// create makes the file. When there was one before, somebody removed it: what we know
// is written down again.
func (l *Log) create() error {
	again := l.file != nil
	if err := l.open(os.O_RDWR | os.O_CREATE); err != nil {
		return err
	}
	l.off = 0
	if l.sync {
		if err := l.fsys.SyncDir(l.dir); err != nil {
			return fmt.Errorf("syncing %s: %w", l.dir, err)
		}
	}
	if live := l.state.Live(); again && len(live) > 0 {
		return l.append(live)
	}
	return nil
}

// read applies the records from l.off to size.
func (l *Log) read(reset bool, size int64) error {
	data := make([]byte, size-l.off)
	if n, err := l.file.ReadAt(data, l.off); n < len(data) {
		return fmt.Errorf("reading %s: %w", l.path, err)
	}
	records, damaged := make([]Record, 0, len(data)/recordSize), 0
	for i := 0; i < len(data); i += recordSize {
		r, err := parseRecord(data[i : i+recordSize])
		switch {
		case err == nil:
			records = append(records, r)
		case errors.Is(err, errDamaged):
			damaged++
		default:
			return fmt.Errorf("reading %s: %w", l.path, err)
		}
	}
	l.off = size
	l.state.Apply(reset, records, damaged)
	return nil
}

// Compact rewrites the log when more than three quarters of it say nothing any more. It
// is cheap to call often.
func (l *Log) Compact(ctx context.Context) error {
	return l.locked(ctx, func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		if l.off < max(compactOver, l.next) {
			return nil
		}
		live := l.state.Live() // which costs: not for each record
		if int64(len(live))*recordSize*4 > l.off {
			l.next = 2 * l.off
			return nil
		}
		buf := make([]byte, 0, len(live)*recordSize)
		for _, r := range live {
			buf = appendRecord(buf, r)
		}
		if err := durable.WriteFile(l.fsys, l.path, l.sync, buf); err != nil {
			return err
		}
		if err := l.open(os.O_RDWR); err != nil {
			return err
		}
		l.off, l.next = int64(len(buf)), 0
		return nil
	})
}

// Close waits for calls that run and closes the log. Later calls fail with
// fs.ErrClosed.
func (l *Log) Close() error {
	var err error
	l.closed.Do(func() {
		<-l.turn
		close(l.turn)
		err = l.lock.Close()
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
	})
	return err
}
