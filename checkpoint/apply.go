package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// Applied is what became of a plan.
type Applied struct {
	// Entry is the record of the rewind, "" when there was nothing to do. A rewind to
	// it gives back what was.
	Entry string
	// Changed is how many files were changed.
	Changed int
}

// errRaced is in the error about a file that is not any more as it was planned with.
var errRaced = errors.New("it changed while the rewind was at work")

// Apply carries a plan out. It stores what the files hold now, appends the record of
// what it is about to do, and then does it, file by file. Files that changed since the
// plan was made are left alone: their items become Skip. Where something fails it goes
// on with the others, their items become Refuse, and the errors are returned together;
// an error of storing or recording comes before anything was changed.
//
// Files that stay as they are although the record says otherwise are corrected by
// another record.
func (r *Recorder) Apply(ctx context.Context, p *Plan) (Applied, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.update(ctx); err != nil {
		return Applied{}, err
	}
	r.sweep()
	all := Record{Cause: CauseRewind, Target: p.Entry, Undoes: p.Undoes}
	made := map[string]bool{}
	items, err := r.keepAll(ctx, p)
	if err != nil {
		return Applied{}, err
	}
	for _, it := range items {
		if it.Action == Recreate {
			all.Made = append(all.Made, r.missing(filepath.Dir(it.Path), made)...)
		}
		all.Files = append(all.Files, File{r.history.at(it.Path), it.present, it.target})
	}
	if len(items) == 0 {
		return Applied{}, nil
	}
	var a Applied
	if a.Entry, err = r.append(ctx, all); err != nil {
		return a, err
	}
	for dir := range made {
		r.history.made[dir] = true
	}
	failed := r.doAll(ctx, items, a.Entry)
	correction := Record{Cause: CauseRewind, Target: p.Entry, Undoes: p.Undoes, Corrects: a.Entry}
	for _, it := range items {
		switch {
		case it.Action.Changes():
			a.Changed++
		case !r.is(ctx, it.Path, it.target):
			correction.Files = append(correction.Files, File{r.history.at(it.Path), it.target, it.present})
		}
	}
	if len(correction.Files) > 0 {
		if _, err := r.append(context.WithoutCancel(ctx), correction); err != nil {
			failed = append(failed, fmt.Errorf("recording what the rewind did not do: %w", err))
		}
	}
	return a, errors.Join(failed...)
}

// keepAll stores what the files of a plan hold that it changes, and returns their items.
func (r *Recorder) keepAll(ctx context.Context, p *Plan) (items []*Item, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range p.Items {
		it := &p.Items[i]
		if !it.Action.Changes() {
			continue
		}
		items = append(items, it)
		g.Go(func() error {
			err := r.keep(gctx, it)
			if errors.Is(err, errRaced) {
				it.Action, it.Reason = Skip, errRaced.Error()
				return nil
			}
			if err != nil {
				return fmt.Errorf("keeping %s before the rewind: %w", it.Path, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(items, func(it *Item) bool { return !it.Action.Changes() }), nil
}

// keep stores what a file holds that is about to be replaced or deleted, and finds out
// whether it still is as it was planned with.
func (r *Recorder) keep(ctx context.Context, it *Item) error {
	info, obstacle, err := r.history.inTheWay(it.Path)
	if err != nil {
		return err
	}
	if obstacle != "" || (info == nil) != (it.present == nil) {
		return errRaced
	}
	if info == nil {
		return nil
	}
	var stored error
	now, err := observe(r.opts.FS, it.Path, r.opts.Now, func(f io.ReadSeeker) (blobref.Ref, int64, error) {
		ref, n, err := r.s.PutBlob(ctx, f)
		stored = err
		return ref, n, err
	})
	switch {
	case stored != nil:
		return stored
	case errors.Is(err, errUnsteady):
		return errRaced
	case err != nil:
		return err
	case !same(now, it.present):
		return errRaced
	}
	it.present = now
	return nil
}

// missing are the directories that have to be made for dir, outermost first, each once.
func (r *Recorder) missing(dir string, made map[string]bool) []Place {
	if made[dir] {
		return nil
	}
	if _, err := r.opts.FS.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	list := append(r.missing(filepath.Dir(dir), made), r.history.at(dir))
	made[dir] = true
	return list
}

// doAll changes the files of a rewind: first those that come back, several at once,
// then those that go. It returns what failed, and says so in the items.
func (r *Recorder) doAll(ctx context.Context, items []*Item, entryID string) (failed []error) {
	var mu sync.Mutex // guards failed and done
	done := 0
	do := func(it *Item) {
		err := r.do(ctx, it, entryID)
		mu.Lock()
		defer mu.Unlock()
		done++
		r.opts.Progress(done, len(items))
		switch {
		case err == nil:
		case errors.Is(err, errRaced):
			it.Action, it.Reason = Skip, errRaced.Error()
		default:
			it.Action, it.Reason = Refuse, cause(err)
			failed = append(failed, fmt.Errorf("bringing back %s: %w", it.Path, err))
		}
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	var gone []*Item
	for _, it := range items {
		if it.Action == Delete {
			gone = append(gone, it)
			continue
		}
		g.Go(func() error { do(it); return nil })
	}
	_ = g.Wait() // what failed is in failed
	for _, it := range gone {
		do(it)
	}
	return failed
}

// is reports whether a file is in a state now. An error of a file that is, such as one
// of the fsync of its directory, leaves the record of it true.
func (r *Recorder) is(ctx context.Context, path string, s *State) bool {
	ctx = context.WithoutCancel(ctx)
	info, obstacle, err := r.history.inTheWay(path)
	if err != nil || obstacle != "" || info == nil || s == nil {
		return err == nil && obstacle == "" && info == nil && s == nil
	}
	now, err := observe(r.opts.FS, path, r.opts.Now, sum(ctx))
	return err == nil && same(now, s)
}

// tempPrefix is what the temporaries of a rewind begin with.
func tempPrefix(entryID string) string { return "agentrun-" + entryID }

// sweep removes temporaries that the last rewind left beside the files when it was
// killed. No other program makes such names.
func (r *Recorder) sweep() {
	h := r.history
	at := len(h.records) - 1
	for at >= 0 && (h.records[at].Cause != CauseRewind || h.records[at].Corrects != "") {
		at--
	}
	if at < 0 || len(h.records[at].id) < idSize {
		return
	}
	prefix := ".tmp-" + tempPrefix(h.records[at].id) + "-"
	first, end, dirs := h.first(at), h.end(at), map[string]bool{}
	for path, t := range h.files {
		for _, e := range t.events {
			if e.seq < first || e.seq >= end || h.forbidden(path) != "" {
				continue
			}
			if _, obstacle, err := h.inTheWay(path); err == nil && obstacle == "" {
				dirs[filepath.Dir(path)] = true
			}
		}
	}
	for dir := range dirs {
		entries, err := r.opts.FS.ReadDir(dir)
		if err != nil {
			continue // what cannot be read, a rewind did not write to
		}
		for _, e := range entries {
			if e.Type().IsRegular() && strings.HasPrefix(e.Name(), prefix) {
				_ = r.opts.FS.Remove(filepath.Join(dir, e.Name())) // it is only space
			}
		}
	}
}

// idSize is how long the ids of entries of ours are.
const idSize = 24

// do changes one file, if it is as it was planned with, for the rewind that an entry
// records.
func (r *Recorder) do(ctx context.Context, it *Item, entryID string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch it.Action {
	case Delete:
		return r.remove(ctx, it)
	case Recreate:
		if err := r.makeDirs(filepath.Dir(it.Path)); err != nil {
			return err
		}
		err := durable.WriteNewTemp(r.opts.FS, it.Path, tempPrefix(entryID), r.opts.Durability == session.Sync, r.content(ctx, it))
		if errors.Is(err, fs.ErrExist) {
			return errRaced
		}
		return err
	}
	return durable.WriteFileTemp(r.opts.FS, it.Path, tempPrefix(entryID), r.opts.Durability == session.Sync, r.content(ctx, it))
}

// content writes the file as it was, and looks last whether the one that it is to
// replace is still the one that was kept.
func (r *Recorder) content(ctx context.Context, it *Item) func(io.Writer) error {
	return func(w io.Writer) error {
		store, ok := blobstore.As[blobstore.Opener](r.m.Blobs())
		if !ok {
			return errors.New("the blob store cannot be read as streams")
		}
		blob, err := store.Open(ctx, it.target.Ref)
		if err != nil {
			return err
		}
		defer blob.Close()
		if _, err := io.Copy(w, reader{ctx, blob}); err != nil {
			return err
		}
		if f, ok := w.(durable.File); ok {
			if err := f.Chmod(it.target.Mode); err != nil {
				return err
			}
		}
		return r.still(ctx, it)
	}
}

// still returns errRaced unless a file is as it was kept.
func (r *Recorder) still(ctx context.Context, it *Item) error {
	info, obstacle, err := r.history.inTheWay(it.Path)
	switch {
	case err != nil:
		return err
	case obstacle != "" || (info == nil) != (it.present == nil):
		return errRaced
	case info == nil || it.present.unchanged(info, r.opts.Now()):
		return nil
	}
	now, err := observe(r.opts.FS, it.Path, r.opts.Now, sum(ctx))
	if errors.Is(err, errUnsteady) || err == nil && !same(now, it.present) {
		return errRaced
	}
	return err
}

// remove deletes a file, and then directories that a rewind has made and that are
// empty.
func (r *Recorder) remove(ctx context.Context, it *Item) error {
	if err := r.still(ctx, it); err != nil {
		return err
	}
	dir := filepath.Dir(it.Path)
	if err := r.opts.FS.Remove(it.Path); err != nil {
		return err
	}
	for r.history.made[dir] && r.emptyDir(dir) {
		if r.opts.FS.Remove(dir) != nil {
			break // somebody uses it
		}
		dir = filepath.Dir(dir)
	}
	return r.syncDir(dir)
}

func (r *Recorder) syncDir(dir string) error {
	if r.opts.Durability != session.Sync {
		return nil
	}
	return r.opts.FS.SyncDir(dir)
}

func (r *Recorder) emptyDir(dir string) bool {
	entries, err := r.opts.FS.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// makeDirs makes a directory of the user and those above it, as mkdir -p does.
func (r *Recorder) makeDirs(dir string) error {
	_, err := r.opts.FS.Lstat(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := r.makeDirs(parent); err != nil {
		return err
	}
	if err := r.opts.FS.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.syncDir(parent)
}
