package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// maxPasses bounds how often everything is listed. A session can only be missed by a
// look that is moved from a directory not listed yet to one that was; the next look
// finds it, unless it moves back meanwhile, each time.
const maxPasses = 8

// archiveDir is where oh-my-pi puts sessions that it has compressed.
const archiveDir = "archive"

// maxTopFile is the largest file directly in a home that is looked into: settings and
// state of other programs.
const maxTopFile = 1 << 30

// mark reads everything that may name blobs, until a look finds nothing new.
func (c *collector) mark(ctx context.Context, stores []*localdir.Store) error {
	if c.marks.cached == nil {
		c.marks.loadCache(c.home)
	}
	for range maxPasses {
		files, err := c.files(ctx)
		if err != nil {
			return err
		}
		n, err := c.marks.mark(ctx, files, func(done, total int) { c.Progress("files", done, total) })
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	if err := c.markCheckpoints(ctx); err != nil {
		return err
	}
	c.markVanished()
	err := c.markBlobs(ctx, stores)
	c.marks.saveCache(c.home)
	return err
}

// files lists what may name blobs, in all homes and elsewhere.
func (c *collector) files(ctx context.Context) ([]file, error) {
	registered, err := c.registry()
	if err != nil {
		return nil, err
	}
	var files []file
	add := func(dir string) error {
		more, err := c.marks.walk(ctx, dir, c.isExpired)
		files = append(files, more...)
		return err
	}
	homes := c.homes(registered)
	for _, home := range slices.Concat(homes, c.otherHomes(homes)) {
		for _, dir := range []string{catalog.SessionsDir(home), catalog.TrashDir(home), filepath.Join(home, archiveDir)} {
			if err := add(resolved(dir)); err != nil {
				return nil, err
			}
		}
		files = append(files, c.topFiles(home)...)
	}
	clear(c.elsewhere)
	for _, r := range registered {
		if r.Home || slices.ContainsFunc(homes, func(home string) bool { return below(catalog.SessionsDir(home), r.Path) }) {
			continue
		}
		logs := c.logsOf(r.Path)
		c.elsewhere[r.Path] = outside{Registered: r, there: len(logs) > 0}
		if len(logs) == 0 {
			continue
		}
		start := len(files)
		files = append(files, logs...)
		if dir, ok := catalog.ArtifactsDir(r.Path); ok {
			if err := add(dir); err != nil {
				return nil, err
			}
		}
		c.elsewhere[r.Path] = outside{Registered: r, there: true, files: slices.Clone(files[start:])}
	}
	return files, nil
}

// outside is a session file elsewhere that uses the blobs of this home.
type outside struct {
	session.Registered
	there bool
	files []file // of it and its artifacts
}

func below(dir, path string) bool { return strings.HasPrefix(path, dir+string(filepath.Separator)) }

func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// registry is the registry without what is to be forgotten.
func (c *collector) registry() ([]session.Registered, error) {
	all, err := c.m.Registry()
	if err != nil {
		c.marks.problem(err)
		return nil, nil
	}
	return slices.DeleteFunc(all, func(r session.Registered) bool { return slices.Contains(c.Forget, r.Path) }), nil
}

// forget refuses to forget what is not known, or is there.
func (c *collector) forget(context.Context) error {
	if len(c.Forget) == 0 {
		return nil
	}
	all, err := c.m.Registry()
	if err != nil {
		return err
	}
	there, absent, err := c.m.KnownHomes()
	if err != nil {
		return err
	}
	for i, path := range c.Forget {
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		c.Forget[i] = abs
		if !slices.ContainsFunc(all, func(r session.Registered) bool { return r.Path == abs }) && !slices.Contains(slices.Concat(there, absent), abs) {
			return fmt.Errorf("%s is not known: nothing has to be forgotten", abs)
		}
		if _, err := c.FS.Lstat(abs); err == nil {
			return fmt.Errorf("%s is there: only what has vanished can be forgotten", abs)
		}
	}
	return nil
}

// homes are the homes whose sessions may cite these blobs.
func (c *collector) homes(registered []session.Registered) []string {
	homes := []string{c.home}
	add := func(home string) {
		if !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	for _, dir := range []string{catalog.BlobsDir(c.home), catalog.KeptBlobsDir(c.home)} {
		if real := resolved(dir); real != dir {
			add(filepath.Dir(real)) // whose blobs these are
		}
	}
	for _, r := range registered {
		if !r.Home {
			continue
		}
		if info, err := c.FS.Lstat(r.Path); err != nil || !info.IsDir() {
			c.vanished(r.Path)
			c.marks.problem(fmt.Errorf("the home %s has its blobs here and is not there; mount it, or say --forget %[1]s", r.Path))
			continue
		}
		add(r.Path)
	}
	return homes
}

// otherHomes are homes that have blobs of their own. A session that was copied or moved
// there by hand may name blobs that are only here. One that is not there is passed over.
func (c *collector) otherHomes(homes []string) []string {
	there, vanished, err := c.m.KnownHomes()
	if err != nil {
		c.marks.problem(err)
	}
	c.report.Absent = slices.DeleteFunc(vanished, func(home string) bool { return slices.Contains(homes, home) || slices.Contains(c.Forget, home) })
	return slices.DeleteFunc(there, func(home string) bool { return slices.Contains(homes, home) })
}

func (c *collector) vanished(path string) {
	if !slices.Contains(c.report.Vanished, path) {
		c.report.Vanished = append(c.report.Vanished, path)
	}
}

// isExpired reports whether path is a session in the trash whose time is over.
func (c *collector) isExpired(path string) bool { return c.isGoing[path] }

// topFiles are the files directly in a home.
func (c *collector) topFiles(home string) []file {
	entries, err := c.FS.ReadDir(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.marks.problem(err)
	}
	var files []file
	for _, e := range entries {
		if !e.Type().IsRegular() || rebuildable(e.Name()) || e.Name() == "registry" {
			continue
		}
		path := filepath.Join(home, e.Name())
		if id, err := c.FS.Identify(path); err == nil && id.Size <= maxTopFile {
			files = append(files, file{path, path})
		}
	}
	return files
}

// logsOf are the files of a log elsewhere, none when it has vanished.
func (c *collector) logsOf(path string) []file {
	var files []file
	for _, p := range []string{path, catalog.PlainPath(path), catalog.ColdPath(path)} {
		if _, err := c.FS.Identify(p); !errors.Is(err, fs.ErrNotExist) && !slices.Contains(files, file{p, p}) {
			files = append(files, file{p, p})
		}
	}
	if len(files) > 0 {
		if damaged := catalog.DamagedPath(path); c.there(damaged) {
			files = append(files, file{damaged, damaged})
		}
	}
	return files
}

func (c *collector) there(path string) bool {
	_, err := c.FS.Identify(path)
	return err == nil
}

// markVanished keeps what session files elsewhere cite that are not there. One whose
// blobs are all named by others as well has most likely moved, and is forgotten.
func (c *collector) markVanished() {
	for path, o := range c.elsewhere {
		if o.there {
			continue
		}
		all := o.Whole && !slices.ContainsFunc(o.Blobs, func(ref blobRef) bool { return !c.marks.has(ref) })
		if all && !slices.Contains(c.report.Vanished, path) {
			c.lost[path] = true
			continue
		}
		c.vanished(path)
		c.marks.add(o.Blobs)
		if !o.Whole {
			c.marks.problem(fmt.Errorf("%s is not there, and what it cites is not known: bring it back, or say --forget %[1]s", path))
		}
		if o.Seen.Before(c.grace) && c.foreign {
			// oh-my-pi may have written to it, and does not tell.
			c.grace = o.Seen
		}
	}
}

// remember tells the registry what was read of the sessions elsewhere.
func (c *collector) remember(ctx context.Context) error {
	if len(c.Forget) > 0 {
		if err := c.m.ForgetHomes(ctx, c.Forget...); err != nil {
			return err
		}
	}
	if _, err := c.m.Registry(); err != nil {
		return nil // that was said
	}
	return c.m.UpdateRegistry(ctx, func(all []session.Registered) []session.Registered {
		kept := all[:0]
		for _, r := range all {
			o, known := c.elsewhere[r.Path]
			if slices.Contains(c.Forget, r.Path) || known && c.lost[r.Path] {
				continue
			}
			if known && o.there {
				for _, f := range o.files {
					r.Blobs = append(r.Blobs, c.marks.of(f.real)...)
				}
				r.Blobs, r.Whole, r.Seen = distinct(r.Blobs), true, c.now
			}
			kept = append(kept, r)
		}
		return kept
	})
}
