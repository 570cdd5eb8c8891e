package gc

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/session/internal/catalog"
)

// holdLost notes the sessions whose entries are gone while their artifacts are there: a
// log that was emptied or removed by hand. What they cited is not known, and may be
// wanted when the log comes back. Artifacts without a log hold it for as long as they
// stay themselves, see removeOrphan.
func (c *collector) holdLost(ctx context.Context) error {
	registered, err := c.registry()
	if err != nil {
		return err
	}
	homes := c.homes(registered)
	for _, home := range homes {
		dirs, err := catalog.Open(home, catalog.Options{FS: c.FS}).Directories("")
		if err != nil {
			c.marks.problem(err)
		}
		for _, dir := range dirs {
			if err := ctx.Err(); err != nil {
				return err
			}
			lost, err := catalog.FindLost(c.FS, resolved(dir))
			if err != nil {
				c.marks.problem(err)
			}
			for _, l := range lost {
				if l.Gone && !c.holds(home, &l) {
					continue
				}
				c.marks.problem(fmt.Errorf("%s: %v while its artifacts or its index are there, and which blobs it cites is not known; agentrun doctor --all says more", l.Log, &l))
			}
		}
	}
	for path, o := range c.elsewhere {
		if !o.there {
			continue // what it cited is in the registry
		}
		for _, f := range o.files {
			if f.path != catalog.PlainPath(path) && f.path != catalog.ColdPath(path) {
				continue
			}
			l, err := catalog.LostAt(c.FS, f.real)
			switch {
			case err != nil:
				c.marks.problem(err)
			case l != nil:
				c.marks.problem(fmt.Errorf("%s: %v while its artifacts or its index are there, and which blobs it cites is not known; agentrun doctor %[1]s says more", l.Log, l))
			}
		}
	}
	return nil
}

// holds reports whether artifacts without a log may be of one that cited blobs of ours:
// not those of a session in the trash, nor those of another program that leaves them
// behind, nor those that are removed in this run or the next one.
func (c *collector) holds(home string, l *catalog.Lost) bool {
	for _, t := range c.trash.Sessions {
		if stem, _ := catalog.Stem(t.Path); filepath.Base(stem) == filepath.Base(l.Dir) {
			return false
		}
	}
	if c.foreign && !c.kept(l.Dir) {
		return false
	}
	newest, err := c.newest(l.Dir)
	return err != nil || home != c.home || c.now.Sub(newest) <= c.TrashAge
}

// kept reports whether a directory of artifacts has what only this program keeps there.
func (c *collector) kept(dir string) bool {
	entries, err := c.entriesOf(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		if e.Name() == ".index" || strings.HasPrefix(e.Name(), ".artifact-") {
			return true
		}
	}
	return false
}
