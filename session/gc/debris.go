package gc

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/journal"
)

// tempPrefix begins the names of temporaries, see durable.CreateTemp.
const tempPrefix = ".tmp-"

// removeDebris removes what killed processes left, and indexes of what is gone.
func (c *collector) removeDebris(ctx context.Context, stores []*localdir.Store) error {
	release, importing, err := c.holdImports()
	if err != nil {
		return err
	}
	defer release()
	d := &debris{collector: c, importing: importing}
	d.moves()
	d.temporaries(c.home, nil)
	d.temporaries(catalog.TrashDir(c.home), nil)
	for _, s := range stores {
		d.temporaries(s.Dir(), c.besideBlobs[s.Dir()])
		n, bytes, err := s.StaleLeases(ctx, c.now.Add(-DebrisAge), c.Apply)
		c.report.Temporaries.add(n, bytes)
		d.failed = errors.Join(d.failed, err)
	}
	projects, err := c.readDir(catalog.SessionsDir(c.home))
	if err != nil {
		return err
	}
	d.temporaries(catalog.SessionsDir(c.home), projects)
	for i, e := range projects {
		c.Progress("directories", i, len(projects))
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.IsDir() && e.Name()[0] != '.' {
			d.project(filepath.Join(catalog.SessionsDir(c.home), e.Name()))
		}
	}
	return d.failed
}

// moves removes what killed moves left beside their journals, and the directory when
// it holds none: it makes every use of the home look for a move.
func (d *debris) moves() {
	dir := journal.Dir(d.home)
	d.temporaries(dir, nil)
	if d.Apply {
		_ = d.FS.Remove(dir) // with a journal in it, it is not empty
	}
	d.moving = journal.Any(d.FS, d.home)
}

// debris looks through the sessions of a home.
type debris struct {
	*collector
	importing bool // somebody imports now: its staging directory is not old
	moving    bool // a move is under way, or was interrupted: the next use of the home settles it
	failed    error
}

// holdImports keeps imports from beginning, so that a staging directory is either of
// one that was killed or, when importing is true, of one that runs.
func (c *collector) holdImports() (release func(), importing bool, err error) {
	lock, err := durable.OpenExistingLock(c.FS, filepath.Join(catalog.SessionsDir(c.home), ".import.lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	ok, err := lock.TryLock()
	if err != nil {
		lock.Close()
		return nil, false, err
	}
	return func() { lock.Close() }, !ok, nil
}

// readDir is ReadDir of a directory that may not be there.
func (c *collector) readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := c.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// temporaries removes the old temporaries of a directory; entries may be nil.
func (d *debris) temporaries(dir string, entries []fs.DirEntry) {
	if entries == nil {
		var err error
		if entries, err = d.readDir(dir); err != nil {
			d.failed = errors.Join(d.failed, err)
			return
		}
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, tempPrefix) {
			continue
		}
		if strings.HasPrefix(name, tempPrefix+"import") && d.importing || strings.HasPrefix(name, tempPrefix+"move") && d.moving {
			continue
		}
		d.remove(filepath.Join(dir, name), DebrisAge, &d.report.Temporaries)
	}
}

// remove removes a file or directory that nobody has changed for an age.
func (d *debris) remove(path string, age time.Duration, class *Class) {
	at, err := d.newest(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && d.now.Sub(at) <= age {
		return
	}
	var bytes int64
	if err == nil {
		bytes, err = d.bytesOf(path)
	}
	if err == nil && d.Apply {
		err = d.removeAll(path)
	}
	if err != nil {
		d.failed = errors.Join(d.failed, err)
		return
	}
	class.add(1, bytes)
}

// removeAll removes a directory under a name that says what it is from the first
// moment: a killed collector leaves no half of something.
func (d *debris) removeAll(path string) error {
	if !strings.HasPrefix(filepath.Base(path), tempPrefix) {
		if info, err := d.FS.Lstat(path); err == nil && info.IsDir() {
			gone := filepath.Join(filepath.Dir(path), tempPrefix+"gc-"+strconv.FormatUint(rand.Uint64(), 36))
			if err := d.FS.Rename(path, gone); err != nil {
				return err
			}
			path = gone
		}
	}
	return durable.RemoveAll(d.FS, path)
}

// project looks through the sessions of one working directory.
func (d *debris) project(dir string) {
	entries, err := d.readDir(dir)
	if err != nil {
		d.failed = errors.Join(d.failed, err)
		return
	}
	d.temporaries(dir, entries)
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(dir, name)
		switch stem, isIndex := strings.CutSuffix(name, ".index"); {
		case e.IsDir() && name[0] != '.':
			if d.isOrphan(entries, path) {
				d.removeOrphan(path)
			} else {
				d.artifacts(path)
			}
		case isIndex && e.Type().IsRegular() && !hasLog(entries, stem):
			d.remove(path, DebrisAge, &d.report.Indexes)
		}
	}
}

// hasLog reports whether a directory has the log of a stem, in whatever form, or
// anything that is called after one.
func hasLog(entries []fs.DirEntry, stem string) bool {
	log := stem + catalog.PlainExt
	at, _ := slices.BinarySearchFunc(entries, log, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	return at < len(entries) && strings.HasPrefix(entries[at].Name(), log)
}

// isOrphan reports whether a directory holds the artifacts of a session whose log is
// gone. It must be called like one; in a home that another program uses it must be
// ours; and a session in the trash, or one that is being moved, has its log elsewhere.
func (d *debris) isOrphan(entries []fs.DirEntry, path string) bool {
	name := filepath.Base(path)
	if _, _, named := catalog.ParseFileName(name + catalog.PlainExt); !named || hasLog(entries, name) || d.moving {
		return false
	}
	if d.foreign && !d.there(filepath.Join(path, ".index")) {
		return false
	}
	for _, t := range d.trash.Sessions {
		if stem, _ := catalog.Stem(t.Path); filepath.Base(stem) == name {
			return false
		}
	}
	return len(d.trash.Unreadable) == 0
}

// removeOrphan removes artifacts that have been without a log for as long as a session
// stays in the trash. Whoever removes or restores the session holds its lock.
func (d *debris) removeOrphan(path string) {
	lock, err := durable.OpenExistingLock(d.FS, catalog.LockPath(path+catalog.PlainExt))
	if err == nil {
		defer lock.Close()
		if ok, lerr := lock.TryLock(); !ok || lerr != nil {
			return
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		d.failed = errors.Join(d.failed, err)
		return
	}
	for _, log := range []string{path + catalog.PlainExt, path + catalog.ColdExt} {
		if d.there(log) {
			return
		}
	}
	d.remove(path, d.TrashAge, &d.report.Temporaries)
}

// artifacts looks through an artifact directory.
func (d *debris) artifacts(dir string) {
	entries, err := d.readDir(dir)
	if err != nil {
		d.failed = errors.Join(d.failed, err)
		return
	}
	d.temporaries(dir, entries)
	for _, e := range entries {
		if e.Name() != ".index" || !e.IsDir() {
			continue
		}
		index := filepath.Join(dir, e.Name())
		indexes, err := d.readDir(index)
		if err != nil {
			d.failed = errors.Join(d.failed, err)
			return
		}
		d.temporaries(index, indexes)
		for _, x := range indexes {
			number, ok := strings.CutSuffix(x.Name(), ".idx")
			if ok && x.Type().IsRegular() && !hasPrefix(entries, number+".") {
				d.remove(filepath.Join(index, x.Name()), DebrisAge, &d.report.Indexes)
			}
		}
	}
}

func hasPrefix(entries []fs.DirEntry, prefix string) bool {
	at, _ := slices.BinarySearchFunc(entries, prefix, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	return at < len(entries) && strings.HasPrefix(entries[at].Name(), prefix)
}

// newest is when anything in a file or directory was changed last.
func (c *collector) newest(path string) (time.Time, error) {
	id, err := c.FS.Identify(path)
	if err != nil {
		return time.Time{}, err
	}
	newest := time.Unix(0, id.ModTime)
	entries, err := c.entriesOf(path)
	for _, e := range entries {
		at, err := c.newest(filepath.Join(path, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return newest, err
		}
		if at.After(newest) {
			newest = at
		}
	}
	return newest, err
}

// bytesOf is the size of a file, or of all files in a directory.
func (c *collector) bytesOf(path string) (int64, error) {
	id, err := c.FS.Identify(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	entries, err := c.entriesOf(path)
	if err != nil {
		return 0, err
	}
	if entries == nil {
		return id.Size, nil
	}
	var total int64
	for _, e := range entries {
		n, err := c.bytesOf(filepath.Join(path, e.Name()))
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// entriesOf are the entries of a directory, and nil for anything else.
func (c *collector) entriesOf(path string) ([]fs.DirEntry, error) {
	info, err := c.FS.Lstat(path)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	entries, err := c.readDir(path)
	if entries == nil {
		entries = []fs.DirEntry{}
	}
	return entries, err
}
