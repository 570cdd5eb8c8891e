package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// Defaults of Options.
const (
	DefaultTrashAge = 30 * 24 * time.Hour
	DefaultGrace    = time.Hour
)

// DebrisAge is how old a temporary or an index must be before it counts as left
// behind. The longest write of a file is shorter: its temporary is young as long as
// bytes come.
const DebrisAge = 24 * time.Hour

// Options say what may go. The zero value is a dry run with the defaults.
type Options struct {
	// Apply removes. Without it nothing is changed.
	Apply bool
	// TrashAge is how long a removed session stays in the trash; 0 means
	// DefaultTrashAge. Artifacts whose log is gone stay as long.
	TrashAge time.Duration
	// Retention is how long a session that nobody writes to stays before it goes to
	// the trash, at least Notice after the first warning; 0 means for ever.
	Retention time.Duration
	// Grace is how old a blob must be; 0 means DefaultGrace, and less than
	// localdir.MinGrace counts as that.
	Grace time.Duration
	// Forget are session files or homes elsewhere, as Report.Vanished names them, that
	// will not come back: what only they cite may go.
	Forget []string
	// Cited yields the blobs that something else than sessions and trash names in a home: the checkpoints of its
	// conversations, with all that they refer to. It is asked for every home that is looked at, and again before blobs
	// are removed, when it may leave out what it has yielded. An error keeps all blobs, and so does a home with
	// checkpoints where Cited is nil.
	Cited func(ctx context.Context, home string) iter.Seq2[blobref.Ref, error]
	// Progress is told how much of what has been looked at, from one goroutine at a
	// time; nil means that nobody is.
	Progress func(what string, done, total int)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS
}

// Class is how much of one kind can go, or went.
type Class struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

func (c *Class) add(count int, bytes int64) { c.Count, c.Bytes = c.Count+count, c.Bytes+bytes }

// Report says what can go, or with Apply what went.
type Report struct {
	Blobs       Class // that nothing names
	Trash       Class // sessions that were removed long ago
	Temporaries Class // and artifacts whose log is gone
	Indexes     Class // of what is not there any more

	// Retention is what the retention of sessions came to; nil where it is off.
	Retention *Retention
	// Vanished are session files and homes elsewhere that use the blobs of this home
	// and are not there.
	Vanished []string
	// Absent are homes of the user that are not there. What is in them was not read.
	Absent []string
	// Kept are sentences about what stays although it might go, with the reason.
	Kept []string
}

// Run collects the home of m.
func Run(ctx context.Context, m *session.Manager, o Options) (*Report, error) {
	c := newCollector(m, o)
	if o.Apply {
		unlock, err := c.lock(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	if err := c.run(ctx); err != nil {
		return c.report, fmt.Errorf("collecting %s: %w", c.home, err)
	}
	return c.report, nil
}

// collector is one run.
type collector struct {
	Options
	m      *session.Manager
	home   string // resolved
	now    time.Time
	marks  *marks
	report *Report

	foreign   bool // another program has sessions in the home
	trash     *session.TrashListing
	expired   []session.Trashed
	halfGone  []string           // directories of the trash that a killed process was deleting
	isGoing   map[string]bool    // the directories of expired and halfGone, resolved
	elsewhere map[string]outside // by path, as of the last look
	lost      map[string]bool    // of elsewhere: not there, and nothing is lost with it
	grace     time.Time          // blobs that are younger stay
	// besideBlobs are what has a dot before its name in directories of blobs, as of the
	// last look: they are too large to be listed once more for that.
	besideBlobs map[string][]fs.DirEntry
}

func newCollector(m *session.Manager, o Options) *collector {
	if o.FS == nil {
		o.FS = durable.OS
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.TrashAge == 0 {
		o.TrashAge = DefaultTrashAge
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	o.Forget = slices.Clone(o.Forget)
	c := &collector{
		Options: o, m: m, home: resolved(m.Home()), now: o.Now(), report: &Report{},
		elsewhere: map[string]outside{}, lost: map[string]bool{},
		isGoing: map[string]bool{}, besideBlobs: map[string][]fs.DirEntry{},
	}
	c.marks = newMarks(c.FS, o.Now)
	return c
}

func (c *collector) keep(format string, args ...any) {
	c.report.Kept = append(c.report.Kept, fmt.Sprintf(format, args...))
}

// run looks at everything, then removes class by class. What goes wrong with one
// class does not keep the others.
func (c *collector) run(ctx context.Context) error {
	stores, err := c.stores()
	if err != nil {
		return err
	}
	if c.foreign, err = catalog.Foreign(c.FS, c.home); err != nil {
		return err
	}
	if c.grace, err = graceEnd(ctx, stores, c.Grace); err != nil {
		return err
	}
	if c.trash, err = c.m.ListTrash(ctx); err != nil {
		return err
	}
	trash := resolved(catalog.TrashDir(c.home))
	for _, t := range c.trash.Sessions {
		if c.now.Sub(t.Removed) > c.TrashAge {
			c.expired = append(c.expired, t)
			c.isGoing[filepath.Join(trash, filepath.Base(t.Dir))] = true
		}
	}
	entries, err := c.readDir(trash)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), tempPrefix) {
			c.halfGone = append(c.halfGone, filepath.Join(trash, e.Name()))
			c.isGoing[filepath.Join(trash, e.Name())] = true
		}
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	if err := c.mark(ctx, stores); err != nil {
		return err
	}
	var failed error
	step := func(err error) { failed = errors.Join(failed, err) }
	trashErr := c.emptyTrash(ctx)
	step(trashErr)
	if trashErr != nil {
		c.keep("no blob goes: sessions in the trash that could not be removed may need it")
	} else {
		step(c.sweep(ctx, stores))
	}
	step(c.removeDebris(ctx, stores))
	step(c.retain(ctx))
	if c.Apply {
		step(c.remember(ctx))
	}
	return failed
}

// stores are the directories of blobs of the home, those there are.
func (c *collector) stores() ([]*localdir.Store, error) {
	var stores []*localdir.Store
	for _, dir := range []string{catalog.BlobsDir(c.home), catalog.KeptBlobsDir(c.home)} {
		s, err := localdir.Open(resolved(dir), localdir.Options{FS: c.FS, Sync: true})
		if err != nil {
			return nil, err
		}
		stores = append(stores, s)
	}
	return stores, nil
}

// graceEnd is the end of the grace period that all stores agree to. It comes before
// the first look at what names blobs: what is stored later is young.
func graceEnd(ctx context.Context, stores []*localdir.Store, grace time.Duration) (time.Time, error) {
	var end time.Time
	for _, s := range stores {
		at, err := s.GraceEnd(ctx, grace)
		if err != nil {
			return end, err
		}
		if end.IsZero() || at.Before(end) {
			end = at
		}
	}
	return end, nil
}

// sweep removes the blobs that nothing names.
func (c *collector) sweep(ctx context.Context, stores []*localdir.Store) error {
	if err := c.holdLost(ctx); err != nil {
		return err
	}
	if len(c.marks.problems) > 0 {
		for _, p := range c.marks.problems {
			c.keep("no blob goes: %v", p)
		}
		return nil
	}
	for _, s := range stores {
		got, err := s.Collect(ctx, localdir.CollectOptions{
			Keep: c.marks.has, Before: c.grace, Apply: c.Apply,
			Again: func() error {
				if !c.Apply {
					return nil
				}
				if err := errors.Join(c.mark(ctx, stores), c.holdLost(ctx)); err != nil {
					return err
				}
				if len(c.marks.problems) > 0 {
					return fmt.Errorf("it is not known any more what is needed: %w", c.marks.problems[0])
				}
				return nil
			},
		})
		c.report.Blobs.add(got.Count, got.Bytes)
		if err != nil {
			return err
		}
	}
	return nil
}

// emptyTrash deletes what was removed long ago.
func (c *collector) emptyTrash(ctx context.Context) error {
	for _, u := range c.trash.Unreadable {
		c.keep("%s stays: %s", u.Path, u.Reason)
	}
	remove := func(dir string, count int) error {
		bytes, err := c.bytesOf(dir)
		if err == nil && c.Apply {
			err = c.m.DeleteTrashed(ctx, dir)
		}
		if err == nil {
			c.report.Trash.add(count, bytes)
		}
		return err
	}
	for i, t := range c.expired {
		c.Progress("trash", i, len(c.expired))
		if err := remove(t.Dir, 1); err != nil {
			return err
		}
	}
	for _, dir := range c.halfGone {
		bytes, err := c.bytesOf(dir)
		if err == nil && c.Apply {
			err = durable.RemoveAll(c.FS, dir)
		}
		if err != nil {
			return err
		}
		c.report.Trash.add(0, bytes)
	}
	for _, dir := range c.trash.Remains {
		if at, err := c.newest(dir); err == nil && c.now.Sub(at) > DebrisAge {
			if err := remove(dir, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
