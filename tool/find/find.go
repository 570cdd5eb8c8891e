// Package find lists files by their names, and opens them: in directories without what
// git ignores, and what a session keeps, by URL.
//
// # Promises
//
//   - Paths are those of a workspace: what leads out of its roots is refused, and no symbolic
//     link below a path is followed.
//   - The list is in the order of the targets, and of each in the order of the bytes of its
//     paths. What cannot be read is told, and the rest is listed.
//   - The result of a call is bounded as all output is; all of it is in an artifact when it
//     is larger than the bounds.
//
// All functions are safe for concurrent use.
package find

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/agentrun/agentrun/internal/walk"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Source is content that a URL names.
type Source struct {
	URL  string
	Name string // what a glob is matched with
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Sources lists what URLs name: one resource, or all of a kind for "artifact://",
// "agent://" and "session://".
type Sources interface {
	Sources(ctx context.Context, url string) ([]Source, error)
}

// Options choose files.
type Options struct {
	// Globs are matched with the path below the target, or with the last name alone when
	// they have no slash: *, ?, [a-z], {a,b}, and ** for any directories. A file is listed that
	// matches one of them; none is all.
	Globs []string
	// All lists what git ignores too.
	All bool
	// Hidden reports which files are left out, which is told: path is the name of the Item, real is absolute and has no symbolic
	// links. nil leaves out none.
	Hidden func(path, real string) bool
}

// Item is a file, or what a URL names.
type Item struct {
	// Name is how it is shown: the target, and the path below it.
	Name string
	Type fs.FileMode // of a file; 0 for a regular one

	root *walk.Root
	path string
	open func(ctx context.Context) (io.ReadCloser, error)
}

// Regular reports whether it has content.
func (i *Item) Regular() bool { return i.Type == 0 }

// Link reports whether it is a symbolic link.
func (i *Item) Link() bool { return i.Type&fs.ModeSymlink != 0 }

// Open opens the content.
func (i *Item) Open(ctx context.Context) (io.ReadCloser, error) {
	if i.open != nil {
		return i.open(ctx)
	}
	f, _, err := i.root.OpenFile(i.path)
	return f, err
}

// File is the directory that a file is in the list of, and its path from there; nil for what
// a URL names.
func (i *Item) File() (*walk.Root, string) { return i.root, i.path }

// Listing is what was found. Close it after use.
type Listing struct {
	Items    []Item
	Problems []string // what could not be read, one sentence each
	roots    []*walk.Root
}

// Close closes the directories.
func (l *Listing) Close() error {
	var errs []error
	for _, r := range l.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// List lists files. Targets are paths of the workspace and URLs; none is where relative paths
// begin. One that is not there is an error.
func List(ctx context.Context, w *workspace.Workspace, s Sources, o Options, targets ...string) (*Listing, error) {
	for _, glob := range o.Globs {
		if glob == "" {
			return nil, errors.New("a glob is empty, which matches no file: leave it out, or give one such as *.go")
		}
		if !doublestar.ValidatePattern(glob) {
			return nil, fmt.Errorf("the glob %.80q is none: close its brackets and braces, or put \\ before them", glob)
		}
	}
	if len(targets) == 0 {
		targets = []string{"."}
	}
	l := &Listing{}
	for _, target := range targets {
		var err error
		if internalurl.Is(target) {
			err = l.url(ctx, s, o, target)
		} else {
			err = l.path(ctx, w, o, target)
		}
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// wants reports whether a glob chooses a path; without one all are chosen.
func (o *Options) wants(name string) bool {
	for _, glob := range o.Globs {
		matched := name
		if !strings.Contains(glob, "/") {
			matched = path.Base(name)
		}
		if doublestar.MatchUnvalidated(strings.TrimPrefix(glob, "/"), matched) {
			return true
		}
	}
	return len(o.Globs) == 0
}

func (l *Listing) url(ctx context.Context, s Sources, o Options, target string) error {
	if s == nil {
		return fmt.Errorf("%s cannot be listed here: name a directory", target)
	}
	sources, err := s.Sources(ctx, target)
	if err != nil {
		return err
	}
	for _, src := range sources {
		if o.wants(src.Name) {
			l.Items = append(l.Items, Item{Name: src.URL, open: src.Open})
		}
	}
	return nil
}

func (l *Listing) path(ctx context.Context, w *workspace.Workspace, o Options, target string) error {
	p, err := w.Resolve(target)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Stat()
	if errors.Is(err, fs.ErrNotExist) {
		hint := ""
		switch {
		case strings.HasPrefix(target, "~"):
			hint = "; ~ stands for no directory here: write it out"
		case strings.ContainsAny(target, "*?[{"):
			hint = "; a pattern of names is a glob, and no path"
		}
		return fmt.Errorf("%s not found: name a file or directory, or a URL such as artifact://0%s", target, hint)
	}
	if err != nil {
		return err
	}
	var root *walk.Root
	name := ""
	if info.IsDir() {
		var dir *os.File
		if dir, err = p.OpenDir(); err != nil {
			return err
		}
		root, err = walk.OpenDir(dir)
	} else {
		name = p.Base()
		root, err = walk.Open(p.Dir())
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", target, workspace.Bare(err))
	}
	l.roots = append(l.roots, root)
	hidden := 0
	hides := func(path, real string) bool {
		if o.Hidden == nil || !o.Hidden(path, real) {
			return false
		}
		hidden++
		return true
	}
	defer func() {
		if hidden > 0 {
			l.Problems = append(l.Problems, fmt.Sprintf("%s: %d of its files left out, because of the rules about which files may be read", target, hidden))
		}
	}()
	if name != "" {
		if o.wants(name) && !hides(target, p.Path) {
			l.Items = append(l.Items, Item{Name: target, Type: info.Mode().Type(), root: root, path: name})
		}
		return nil
	}
	files, problems, err := root.Files(ctx, walk.Options{All: o.All, Want: o.wants})
	if err != nil {
		return err
	}
	for _, f := range files {
		if hides(filepath.Join(target, f.Path), filepath.Join(p.Path, f.Path)) {
			continue
		}
		l.Items = append(l.Items, Item{Name: filepath.Join(target, f.Path), Type: f.Type, root: root, path: f.Path})
	}
	for _, problem := range problems {
		l.Problems = append(l.Problems, fmt.Sprintf("%s cannot be read: %v", filepath.Join(target, problem.Path), workspace.Bare(problem.Err)))
	}
	return nil
}
