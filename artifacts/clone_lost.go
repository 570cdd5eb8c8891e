package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/agentrun/agentrun/internal/durable"
)

// Errors of artifacts that are not there to come along.
var (
	errDirectory = errors.New("a directory stands in its place")
	errNoTrace   = errors.New("the log cites it, and there is neither its file nor its provenance")
	errMeanwhile = errors.New("it was written meanwhile")
)

// losses names what a directory of a session has lost before it was cloned, and leaves
// a note of it.
func (d *cloneDir) losses(ctx context.Context, listed []fs.DirEntry) error {
	lost, err := d.source.lostOf(ctx, listed)
	if err != nil {
		return ctx.Err() // what cannot be listed again is no failure of the clone, which is whole
	}
	for _, l := range lost {
		if d.rel == "" && d.only != nil && !d.only.Numbers[l.ID] {
			continue // it was not to come along
		}
		if err := d.missing(output{id: l.ID, name: filepath.Base(l.Path)}, errors.New(l.Note)); err != nil {
			return err
		}
	}
	return nil
}

// untraced names artifacts of which there is nothing but what the log says, and leaves a
// note of them.
func (d *cloneDir) untraced(ctx context.Context, listed []fs.DirEntry) error {
	if d.opt.Cited == nil {
		return nil
	}
	used := usedNames(listed)
	list, err := d.opt.Cited(ctx, used)
	if err != nil || len(list) == 0 {
		return err
	}
	if d.source.addPacked(used, listed) != nil {
		return nil // what cannot be read may have them
	}
	for _, u := range list {
		if u.Dir == "" && used[u.ID] {
			continue
		}
		in := cloneDir{cloner: d.cloner, from: filepath.Join(d.from, u.Dir), to: filepath.Join(d.to, u.Dir), rel: u.Dir}
		why := errNoTrace
		if now, err := Open(in.from, Options{FS: d.fs}).Used(); err == nil && now[u.ID] {
			why = errMeanwhile
		}
		if err := in.missing(output{id: u.ID, name: strconv.FormatInt(u.ID, 10) + logSuffix}, why); err != nil {
			return err
		}
	}
	return nil
}

// nothing is the clone of a directory that is not there: notes of what the log cites.
func (c *cloner) nothing(ctx context.Context, from, to string) error {
	if c.opt.Cited == nil {
		return nil
	}
	list, err := c.opt.Cited(ctx, nil)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := c.fs.Mkdir(to, durable.DirPerm); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", to, errTaken)
	} else if err != nil {
		return err
	}
	d := cloneDir{cloner: c, from: from, to: to}
	for _, u := range list {
		if err := d.missing(output{id: u.ID, name: strconv.FormatInt(u.ID, 10) + logSuffix}, errNoTrace); err != nil {
			return err
		}
	}
	if c.opt.Sync {
		return c.fs.SyncDir(to)
	}
	return nil
}

// compare names an artifact that came along and does not have the size that it was
// finished with. Whether all bytes are right takes reading them.
func (d *cloneDir) compare(o output, side sidecar) {
	_, tool, _ := parseLog(o.name)
	if !o.final || side.State == "" || side.Tool != tool || side.Bytes == o.at.Size {
		return
	}
	failure := CloneFailure{
		Name: filepath.Join(d.rel, o.name), ID: o.id,
		Err: fmt.Errorf("it had %d bytes when it was finished and has %d now", side.Bytes, o.at.Size),
	}
	if d.rel != "" {
		failure.ID = -1
	}
	d.done.Changed = append(d.done.Changed, failure)
}

// sorted brings failures into an order that does not depend on how they were found, each
// once.
func sorted(failures []CloneFailure) []CloneFailure {
	slices.SortStableFunc(failures, compareFailures)
	return slices.CompactFunc(failures, func(a, b CloneFailure) bool { return a.ID == b.ID && a.Name == b.Name })
}
