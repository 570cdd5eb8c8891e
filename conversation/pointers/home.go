package pointers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

const (
	// maxJournal bounds what is read of one conversation: about 400,000 checkpoints.
	maxJournal = 64 << 20
	// lockWait is how long a writer waits for another one, which only appends a line.
	lockWait = 30 * time.Second

	journalExt = ".jsonl"
	lockName   = ".lock"
)

// DirOf is where a home has its pointers.
func DirOf(home string) string { return filepath.Join(home, "checkpoints") }

// Dir is a store of pointers in a directory, a file of lines for each conversation. Several changes are made together.
// They are on disk, synced, when CompareAndSet returns.
type Dir struct {
	dir string
	fs  durable.FS
	now func() time.Time
}

var (
	_ Pointers = (*Dir)(nil)
	_ Remover  = (*Dir)(nil)
	_ Repairer = (*Dir)(nil)
)

// DirOptions are what a Dir may be told.
type DirOptions struct {
	FS durable.FS // nil means the real one; tests inject faults here
}

// OpenDir returns the pointers in a directory, which is made by the first of them.
func OpenDir(dir string, opts DirOptions) *Dir {
	if opts.FS == nil {
		opts.FS = durable.OS
	}
	return &Dir{dir: dir, fs: opts.FS, now: time.Now}
}

func (d *Dir) path(conversation string) string {
	return filepath.Join(d.dir, conversation+journalExt)
}

// read reads what is set of a conversation; nothing where there is no file.
func (d *Dir) read(ctx context.Context, conversation string) (journal, error) {
	if err := ctx.Err(); err != nil {
		return journal{}, err
	}
	data, err := durable.ReadFile(d.fs, d.path(conversation), maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return journal{}, nil
	}
	if err != nil {
		return journal{}, err
	}
	return d.parse(conversation, data), nil
}

func (d *Dir) parse(conversation string, data []byte) journal {
	j := parseJournal(data)
	for i, s := range j.sets {
		if s.damaged != nil {
			j.sets[i].damaged = fmt.Errorf("%s: %w", d.path(conversation), s.damaged)
		}
	}
	return j
}

// Get returns a pointer.
func (d *Dir) Get(ctx context.Context, conversation, bubble string) (Pointer, error) {
	if err := CheckGet(conversation, bubble); err != nil {
		return Pointer{}, err
	}
	j, err := d.read(ctx, conversation)
	if err != nil {
		return Pointer{}, fmt.Errorf("reading %s: %w", Name(conversation, bubble), err)
	}
	return j.get(conversation, bubble)
}

// CompareAndSet makes changes, all of them or none. Where the newest of a pointer is damaged, its Old is what can be read
// of it: see DamagedError.
func (d *Dir) CompareAndSet(ctx context.Context, conversation string, changes ...Change) (err error) {
	if err := CheckChanges(conversation, changes); err != nil {
		return err
	}
	err = d.locked(ctx, func() error { return d.set(conversation, changes) })
	if err != nil {
		if errors.Is(err, ErrConflict) {
			return err // says of what
		}
		return fmt.Errorf("setting %s: %w", Name(conversation, changes[0].Bubble), err)
	}
	return nil
}

// locked calls change while nobody else changes anything in the directory, which is made if it is not there.
func (d *Dir) locked(ctx context.Context, change func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := durable.MkdirAll(d.fs, d.dir); err != nil {
		return err
	}
	lock, err := durable.OpenLock(d.fs, filepath.Join(d.dir, lockName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := lock.Lock(ctx, lockWait); err != nil {
		return err
	}
	return change()
}

// set makes changes; it is locked.
func (d *Dir) set(conversation string, changes []Change) (err error) {
	f, err := d.fs.OpenFile(d.path(conversation), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return d.setFirst(conversation, changes)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, maxJournal+1))
	if err != nil {
		return err
	}
	if len(data) > maxJournal {
		return fmt.Errorf("%s: %w", f.Name(), durable.ErrTooLarge)
	}
	j := d.parse(conversation, data)
	s, err := j.change(conversation, changes, d.now())
	if err != nil {
		return err
	}
	if len(s.Set) == 0 {
		return f.Sync() // who set that may have died before it was safe
	}
	line := s.line()
	if j.open {
		line = append([]byte{'\n'}, line...)
	}
	return d.append(f, j.whole, line)
}

// setFirst makes the file of a conversation with its first line in it. It is never there without: that would be damage.
func (d *Dir) setFirst(conversation string, changes []Change) error {
	s, err := journal{}.change(conversation, changes, d.now())
	if err != nil {
		return err
	}
	path := d.path(conversation)
	if err := durable.WriteFile(d.fs, path, true, s.line()); err != nil {
		// The file may stand, and only its directory not be synced: its writer is told that it is not there.
		if rmErr := d.fs.Remove(path); !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
		return err
	}
	return nil
}

// append writes a line where the last whole one ends, and makes it safe. When that fails the line is taken back: its
// writer was told that it is not there.
func (d *Dir) append(f durable.File, end int64, line []byte) error {
	if err := f.Truncate(end); err != nil { // of a line without an end
		return err
	}
	_, err := f.WriteAt(line, end)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.fs.SyncDir(d.dir)
	}
	if err != nil {
		return errors.Join(err, f.Truncate(end))
	}
	return nil
}

// List yields the pointers of all conversations.
func (d *Dir) List(ctx context.Context) iter.Seq2[Pointer, error] {
	return func(yield func(Pointer, error) bool) {
		entries, err := d.fs.ReadDir(d.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(Pointer{}, fmt.Errorf("listing checkpoints: %w", err))
			return
		}
		for _, e := range entries {
			conversation, ok := strings.CutSuffix(e.Name(), journalExt)
			if !ok || CheckID("conversation", conversation) != nil {
				continue
			}
			j, err := d.listed(ctx, conversation)
			if errors.Is(err, errRemoved) {
				continue
			}
			if err != nil && !yield(Pointer{Conversation: conversation}, fmt.Errorf("listing checkpoints: %w", err)) {
				return
			}
			if !yieldAll(ctx, j.now(conversation), yield) {
				return
			}
		}
	}
}

// errRemoved means that a file was removed since it was listed.
var errRemoved = errors.New("removed meanwhile")

// listed reads a file that is there, as far as it can be read. One in which nothing is set was never left so by a writer: it
// may have been emptied, and what it referred to is not known.
func (d *Dir) listed(ctx context.Context, conversation string) (journal, error) {
	j, err := d.read(ctx, conversation)
	if err != nil {
		return j, err
	}
	gives := "agentrun state forget --damaged " + conversation
	err = j.damage()
	if len(j.healthy()) == 0 {
		gives = "agentrun state forget " + conversation
	}
	if len(j.sets) == 0 {
		if _, err := d.fs.Lstat(d.path(conversation)); errors.Is(err, fs.ErrNotExist) {
			return j, errRemoved
		}
		err = fmt.Errorf("%s: %w: there is no whole line in it", d.path(conversation), ErrDamaged)
	}
	if err != nil {
		err = fmt.Errorf("%w; put the file back from a backup, or give up what cannot be read: %s", err, gives)
	}
	return j, err
}

// History yields what was set.
func (d *Dir) History(ctx context.Context, conversation string) iter.Seq2[Pointer, error] {
	return func(yield func(Pointer, error) bool) {
		err := CheckID("conversation", conversation)
		var j journal
		if err == nil {
			j, err = d.read(ctx, conversation)
		}
		if err != nil {
			yield(Pointer{Conversation: conversation}, fmt.Errorf("reading the history of checkpoints: %w", err))
			return
		}
		if !yieldAll(ctx, j.history(conversation), yield) {
			return
		}
		if err := j.damage(); err != nil {
			yield(Pointer{Conversation: conversation}, fmt.Errorf("reading the history of checkpoints: %w", err))
		}
	}
}
