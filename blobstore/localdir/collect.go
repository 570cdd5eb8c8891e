package localdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// MinGrace is the shortest grace period of a collector. It is longer than renewAfter
// by what the clocks of a machine and its file server may differ.
const MinGrace = 10 * time.Minute

// ErrCollecting is returned by Collect while another collector is at work.
var ErrCollecting = errors.New("another collector is at work on these blobs")

// CollectOptions say what to remove.
type CollectOptions struct {
	// Keep reports whether something names the blob. It is called a second time,
	// after Again, for those it was false for.
	Keep func(blobref.Ref) bool
	// Before is the end of the grace period: what has a later time stamp stays. A
	// caller gets it from GraceEnd before it begins to look for what names blobs.
	Before time.Time
	// Again is called once, when all that is to be removed is out of the way and
	// nothing is removed yet. Keep may know more afterwards. It may be nil.
	Again func() error
	// Apply is false for a dry run, which changes nothing.
	Apply bool
}

// Collected is what was removed, or would be.
type Collected struct {
	Count int   // blobs
	Bytes int64 // of their files
}

// GraceEnd is the time before which a blob may be collected that nothing names:
// grace before now, and before the oldest lease that is held. A grace below
// MinGrace counts as MinGrace.
func (s *Store) GraceEnd(ctx context.Context, grace time.Duration) (time.Time, error) {
	end := time.Now().Add(-max(grace, MinGrace))
	since, held, err := s.Leased(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if since = since.Add(-MinGrace); held && since.Before(end) {
		end = since
	}
	return end, nil
}

// Collect removes the blobs that nothing keeps. The links that oh-my-pi makes
// beside blobs, <hex>.png, go with them. What it could not finish, because of an
// error or the end of the process, the next Collect goes on with; no blob that
// something keeps is gone at any moment for those who read it through a Store.
func (s *Store) Collect(ctx context.Context, o CollectOptions) (Collected, error) {
	if s.opts.Mode != blobstore.Verified {
		return Collected{}, fmt.Errorf("collecting %s: %w: what names opaque blobs is not known", s.dir, blobstore.ErrMode)
	}
	c := collection{Store: s, o: o, dir: filepath.Join(s.dir, gcDir)}
	if err := c.run(ctx); err != nil {
		return c.done, fmt.Errorf("collecting %s: %w", s.dir, err)
	}
	return c.done, nil
}

// collection is one run of Collect.
type collection struct {
	*Store
	o    CollectOptions
	dir  string // of what is about to be removed
	done Collected
	last durable.Identity // of the file that was counted last
}

func (c *collection) run(ctx context.Context) error {
	if c.o.Apply {
		if _, err := c.fsys.Lstat(c.Store.dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := c.makeOwn(c.dir); err != nil {
			return err
		}
		lock, err := durable.OpenLock(c.fsys, filepath.Join(c.dir, ".lock"))
		if err != nil {
			return err
		}
		defer lock.Close()
		if ok, err := lock.TryLock(); err != nil {
			return err
		} else if !ok {
			return ErrCollecting
		}
	}
	if err := c.condemn(ctx); err != nil {
		return err
	}
	if c.o.Again != nil {
		if err := c.o.Again(); err != nil {
			return err
		}
	}
	return c.execute(ctx)
}

// blobOf returns the blob whose bytes a file of this name holds: <hex>, or
// <hex>.<extension> as oh-my-pi links it.
func blobOf(name string) (ref blobref.Ref, main, ok bool) {
	digest, ext, linked := strings.Cut(name, ".")
	ref, err := blobref.ParseHex(digest)
	return ref, !linked, err == nil && (!linked || ext != "")
}

// old reports whether a file is a regular one from before the grace period.
func (c *collection) old(id durable.Identity) bool {
	return regular(id) && time.Unix(0, id.ModTime).Before(c.o.Before)
}

// condemn moves what nothing keeps out of the way, and only counts it in a dry run.
func (c *collection) condemn(ctx context.Context) error {
	entries, err := c.fsys.ReadDir(c.Store.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		ref, main, ok := blobOf(e.Name())
		if !ok || c.o.Keep(ref) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(c.Store.dir, e.Name())
		id, err := c.fsys.Identify(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !c.old(id) {
			continue
		}
		if err == nil && !c.o.Apply {
			c.count(main, id)
			continue
		}
		if err == nil {
			err = c.fsys.Rename(path, filepath.Join(c.dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// count counts a file that goes. The links to a blob follow it in every listing.
func (c *collection) count(main bool, id durable.Identity) {
	if main {
		c.done.Count++
	}
	if !id.SameFile(c.last) {
		c.done.Bytes += id.Size
	}
	c.last = id
}

// execute judges what was moved out of the way a second time, what an earlier
// collector left there too, and removes it or puts it back.
func (c *collection) execute(ctx context.Context) error {
	entries, err := c.fsys.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		ref, main, ok := blobOf(e.Name())
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(failed, err)
		}
		path := filepath.Join(c.dir, e.Name())
		id, err := c.fsys.Identify(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			failed = errors.Join(failed, err)
		case c.o.Keep(ref) || !c.old(id):
			failed = errors.Join(failed, c.putBack(path, e.Name()))
		case !c.o.Apply:
			c.count(main, id)
		default:
			if err := c.fsys.Remove(path); err != nil {
				failed = errors.Join(failed, err)
			} else {
				c.count(main, id)
			}
		}
	}
	return failed
}

// putBack gives a blob its name back. Where it was stored anew meanwhile there are
// two files with the same bytes, and this one goes.
func (c *collection) putBack(path, name string) error {
	if !c.o.Apply {
		return nil
	}
	to := filepath.Join(c.Store.dir, name)
	err := c.fsys.RenameNoReplace(path, to)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	mine, err := c.fsys.Identify(path)
	if err != nil {
		return err
	}
	// One of another size is being written, or damaged: then this one stays here.
	if there, err := c.fsys.Identify(to); err != nil || there.Size != mine.Size {
		return err
	}
	return c.fsys.Remove(path)
}

// openCondemned opens a blob that has no name because a collector is judging it, or
// was killed while it did. It returns nil when there is none that is good.
func (s *Store) openCondemned(ref blobref.Ref, good judge) (durable.File, int64) {
	if s.opts.Mode != blobstore.Verified {
		return nil, 0
	}
	// The name again behind it: the blob may be put back between two looks.
	for _, path := range []string{filepath.Join(s.dir, gcDir, ref.Hex()), s.path(ref)} {
		f, err := s.fsys.OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		id, err := f.Identify()
		if err == nil {
			if ok, err := good(f, id.Size); ok && err == nil {
				return f, id.Size
			}
		}
		f.Close()
	}
	return nil, 0
}
