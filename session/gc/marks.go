package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// workers is how many files are read at once.
var workers = min(8, max(2, runtime.GOMAXPROCS(0)))

// stamp tells a state of a file from every other state of it.
type stamp struct {
	ino         uint64
	size, mtime int64
}

func stampOf(id durable.Identity) stamp { return stamp{id.Ino, id.Size, id.ModTime} }

// settled is how old a state must be for another one to have another time.
const settled = 2 * time.Second

// mentioned is what a file mentions.
type mentioned struct {
	stamp stamp
	refs  []blobref.Ref // sorted, each once
	young bool          // it may change without a trace in its stamp: not for the cache
}

// place is a file that was read in this run. A file that comes to another name, or
// another one that comes to its name, is read as well.
type place struct {
	path string
	ino  uint64
}

// marks is what is named by anything.
type marks struct {
	fsys durable.FS
	now  func() time.Time

	mu       sync.Mutex // guards all below
	refs     map[blobref.Ref]struct{}
	files    map[string]mentioned          // of this run
	blobs    map[blobref.Ref][]blobref.Ref // what blobs mention, which never changes
	newBlobs bool                          // there are some that the cache does not know
	grown    bool                          // a blob has marked another one
	cached   map[string]mentioned          // of earlier runs
	read     map[place]bool
	problems []error
	told     map[string]bool // the texts of problems
}

func newMarks(fsys durable.FS, now func() time.Time) *marks {
	return &marks{
		fsys: fsys, now: now, refs: map[blobref.Ref]struct{}{}, files: map[string]mentioned{},
		blobs: map[blobref.Ref][]blobref.Ref{}, read: map[place]bool{}, told: map[string]bool{},
	}
}

func (m *marks) has(ref blobref.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.refs[ref]
	return ok
}

func (m *marks) add(refs []blobref.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ref := range refs {
		m.refs[ref] = struct{}{}
	}
}

// problem notes something that may name blobs and cannot be read.
func (m *marks) problem(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.told[err.Error()] {
		m.told[err.Error()] = true
		m.problems = append(m.problems, err)
	}
}

// file is one that may name blobs.
type file struct {
	path string
	real string // where it is when path is a link
}

// mark reads the files that were not read yet, and returns how many.
func (m *marks) mark(ctx context.Context, files []file, progress func(done, total int)) (int, error) {
	g, ctx := errgroup.WithContext(ctx)
	var next, read atomic.Int64
	var told sync.Mutex
	for range min(workers, len(files)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return nil
				}
				fresh, err := m.markFile(ctx, files[i].real)
				if err != nil {
					return err
				}
				if fresh {
					read.Add(1)
				}
				if i%256 == 0 {
					told.Lock()
					progress(i, len(files))
					told.Unlock()
				}
			}
		})
	}
	err := g.Wait()
	return int(read.Load()), err
}

// markFile marks what a file mentions, from the cache when it has not changed. fresh
// is false for one that this run has read already. The error is the context's.
func (m *marks) markFile(ctx context.Context, path string) (fresh bool, err error) {
	id, err := m.fsys.Identify(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it has another name now, which the next look finds
	}
	if err != nil {
		m.problem(err)
		return false, nil
	}
	at := place{path, id.Ino}
	m.mu.Lock()
	done := m.read[at]
	known, hit := m.cached[path]
	m.mu.Unlock()
	if done {
		return false, nil
	}
	if !hit || known.stamp != stampOf(id) {
		before := m.now()
		known.refs, id, err = mentionsIn(ctx, m.fsys, path)
		if cerr := ctx.Err(); cerr != nil {
			return false, cerr
		}
		var irregular *durable.NotRegularError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return true, nil
		case errors.As(err, &irregular):
			return false, nil // it holds no bytes
		case err != nil:
			mends := "mend"
			if strings.HasSuffix(path, ".jsonl.zst") {
				mends = "agentrun doctor --repair " + path + " mends it,"
			}
			m.problem(fmt.Errorf("%w; %s or remove it", err, mends))
			return false, nil
		}
		known.stamp = stampOf(id)
		known.young = before.Sub(time.Unix(0, id.ModTime)) <= settled
		at.ino = id.Ino
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read[at] = true
	for _, ref := range known.refs {
		m.refs[ref] = struct{}{}
	}
	m.files[path] = known
	return true, nil
}

// of returns what a file mentioned that was read in this run.
func (m *marks) of(path string) []blobref.Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[path].refs
}

// walk lists the files below dir that may name blobs, in whatever they are called.
// What can be rebuilt from others names nothing that those do not.
func (m *marks) walk(ctx context.Context, dir string, skip func(path string) bool) ([]file, error) {
	w := walker{marks: m, skip: skip, dirs: map[string]bool{}}
	level := []string{dir}
	for len(level) > 0 {
		next := make([][]string, len(level))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(workers)
		for i, dir := range level {
			g.Go(func() error {
				next[i] = w.readDir(dir)
				return ctx.Err()
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		level = level[:0]
		for _, dirs := range next {
			level = append(level, dirs...)
		}
	}
	return w.files, nil
}

type walker struct {
	*marks
	skip func(path string) bool

	mu    sync.Mutex
	files []file
	dirs  map[string]bool // seen, for links that lead back
}

// readDir notes the files of a directory and returns the directories in it.
func (w *walker) readDir(dir string) []string {
	w.mu.Lock()
	seen := w.dirs[dir]
	w.dirs[dir] = true
	w.mu.Unlock()
	if seen {
		return nil
	}
	entries, err := w.fsys.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.problem(err)
		}
		return nil
	}
	var dirs []string
	files := make([]file, 0, len(entries))
	for _, e := range entries {
		path := dir + "/" + e.Name()
		if rebuildable(e.Name()) || w.skip != nil && w.skip(path) {
			continue
		}
		kind, real := e.Type(), path
		if kind&fs.ModeSymlink != 0 {
			if real, err = filepath.EvalSymlinks(path); err != nil {
				w.problem(fmt.Errorf("%s is a symbolic link that leads nowhere now; mount what it leads to, or remove it: %w", path, err))
				continue
			}
			info, err := w.fsys.Lstat(real)
			if err != nil {
				w.problem(err)
				continue
			}
			kind = info.Mode().Type()
		}
		switch {
		case kind.IsDir():
			dirs = append(dirs, real)
		case kind.IsRegular():
			files = append(files, file{path, real})
		}
	}
	w.mu.Lock()
	w.files = append(w.files, files...)
	w.mu.Unlock()
	return dirs
}

// rebuildable reports whether a file or directory of this name holds nothing but what
// was made from others.
func rebuildable(name string) bool {
	return name == ".index" || name == "list.cache" || name == cacheName || strings.HasPrefix(name, "search.db") ||
		strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".driver") || strings.HasSuffix(name, ".index")
}
