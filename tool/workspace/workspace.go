// Package workspace is the way from a path that a model or a person gives to a file on
// the disk, and the way of new content into that file.
//
// # Paths
//
// A [Workspace] has roots: directories, and all that is in them. [Workspace.Resolve] is
// the one function that every path goes through. It follows symbolic links, also those
// that are the file itself, and refuses what does not end below a root
// ([EscapeError]). The way is then walked again by os.Root, from the root's
// own descriptor, and the directory of the file is held open: whoever puts a
// link in the way after the look is refused by the walk, and behind it changes nothing
// for this [Place].
//
// # Changes
//
// [Workspace.Change] replaces what a file holds, or makes it:
//
//   - In one step: a reader sees the old content or the new one, after a kill too, and
//     with [Options.Sync] after a power loss. What a killed process leaves is one
//     file ".tmp-agentrun-<name>", which the next change of that file uses up.
//   - One at a time: processes that use this package wait for each other.
//   - The file keeps its permissions and, where the process may give it away, its
//     owner. Other names of it (hard links) keep the old content.
//   - Refused, with nothing changed: a file that is not as it was when it was last
//     read ([Seen]), one that others write to meanwhile, one that nobody may write to,
//     one above [MaxFile], and what cannot be recorded before ([Recorder]).
//
// A Workspace is safe for concurrent use. A Place belongs to one goroutine.
package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// MaxFile is the largest file that is changed, in bytes: what checkpoints record.
const MaxFile = 100 << 20

// Recorder is told of files before they are changed and behind, so that the change can
// be taken back. Before returns when that is so. *checkpoint.Recorder is one.
type Recorder interface {
	Before(ctx context.Context, path string) error
	After(ctx context.Context, path string) error
}

// Keeper is a Recorder that may be given what a file holds, and is about to hold, before it
// is told of the file: then it has less to do while the change waits for it. *checkpoint.Recorder is one.
type Keeper interface {
	Recorder
	// Keep stores content, which nobody changes until forget is called. What it cannot
	// store Before and After are to store, and to report.
	Keep(ctx context.Context, content []byte) (forget func())
}

// Options of a Workspace.
type Options struct {
	// Dir is where relative paths begin; "" is the working directory.
	Dir string
	// Roots are the directories that paths must lead into, relative ones begin at Dir;
	// none means Dir alone.
	Roots []string
	// Sync has changes survive power loss when Change returns.
	Sync bool
	// Recorder is told of changes; nil is nobody.
	Recorder Recorder
	// Seen remembers what was read; nil remembers nothing.
	Seen *Seen
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS
}

// Workspace is a set of roots. Close it after use.
type Workspace struct {
	opts  Options
	roots []*os.Root // their names are real paths
}

// Open opens the roots.
func Open(o Options) (*Workspace, error) {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	if o.FS == nil {
		o.FS = durable.OS
	}
	w := &Workspace{opts: o}
	if len(o.Roots) == 0 {
		o.Roots = []string{o.Dir}
	}
	for _, dir := range o.Roots {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(o.Dir, dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the workspace %s: %w", dir, Bare(err)), w.Close())
		}
		root, err := os.OpenRoot(real)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the workspace %s: %w", dir, Bare(err)), w.Close())
		}
		w.roots = append(w.roots, root)
	}
	return w, nil
}

// Close closes the roots.
func (w *Workspace) Close() error {
	var errs []error
	for _, r := range w.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Dir is where relative paths begin.
func (w *Workspace) Dir() string { return w.opts.Dir }

// Roots are the real paths of the roots.
func (w *Workspace) Roots() []string {
	var names []string
	for _, r := range w.roots {
		names = append(names, r.Name())
	}
	return names
}

// Seen remembers what was read here; nil remembers nothing.
func (w *Workspace) Seen() *Seen { return w.opts.Seen }

// EscapeError is returned for a path that does not lead into a root.
type EscapeError struct {
	Path  string   // as it was given
	Real  string   // where it leads, "" when that is the same
	Roots []string // where it may lead
}

func (e *EscapeError) Error() string {
	to := ""
	if e.Real != "" {
		to = " (it leads to " + e.Real + ")"
	}
	return fmt.Sprintf("%s%s is outside of the workspace %s: name a file in it", e.Path, to, strings.Join(e.Roots, ", "))
}

// Bounds of a path: PATH_MAX and NAME_MAX of Linux, with the zero byte at the end.
const (
	maxPath = 4095
	maxName = 255
)

// Place is where a path leads: a name in a directory that is held open.
type Place struct {
	// Path is the place without symbolic links.
	Path string

	fs      durable.FS
	root    *os.Root
	dir     *os.File // of the file, or the nearest that is there
	missing []string // directories below dir that are not there yet
	base    string   // "." for a root
}

// Close lets go of the directory.
func (p *Place) Close() error { return p.dir.Close() }

// Resolve returns the place that a path leads to, whether a file is there or not. Close
// it after use.
func (w *Workspace) Resolve(path string) (*Place, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	abs := filepath.Clean(path)
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(w.opts.Dir, abs)
	}
	real, err := realPath(abs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, Bare(err))
	}
	for _, r := range w.roots {
		if rel, ok := below(r.Name(), real); ok {
			p := &Place{Path: real, fs: w.opts.FS, root: r}
			return p, p.open(path, rel)
		}
	}
	escape := &EscapeError{Path: path, Roots: w.Roots()}
	if real != abs {
		escape.Real = real
	}
	return nil, escape
}

// check refuses what can be no path.
func check(path string) error {
	switch {
	case path == "":
		return errors.New("the path is empty: name a file")
	case strings.IndexByte(path, 0) >= 0:
		return fmt.Errorf("%.80q has a zero byte, which no path has", path)
	case len(path) > maxPath:
		return fmt.Errorf("the path %.80q… has %d bytes; the longest has %d", path, len(path), maxPath)
	}
	for element := range strings.SplitSeq(path, "/") {
		if len(element) > maxName {
			return fmt.Errorf("the name %.80q… has %d bytes; the longest has %d", element, len(element), maxName)
		}
	}
	return nil
}

// errCircle is what becomes of links that lead to each other.
var errCircle = errors.New("it leads through a symbolic link that leads back to itself")

// RealPath is filepath.EvalSymlinks with errors for people.
func RealPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if _, serr := os.Stat(path); errors.Is(serr, unix.ELOOP) {
			err = errCircle
		}
	}
	return real, err
}

// realPath follows all links of a path, of which the end may not be there yet.
func realPath(path string) (string, error) {
	real, err := RealPath(path)
	if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
		return real, err
	}
	if _, lerr := os.Lstat(path); lerr == nil {
		return "", errors.New("it is a symbolic link that leads nowhere")
	}
	if real, err = realPath(filepath.Dir(path)); err == nil {
		real = filepath.Join(real, filepath.Base(path))
	}
	return real, err
}

// below returns path relative to dir.
func below(dir, path string) (string, bool) {
	if path == dir {
		return ".", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// open walks to the directory of the place, within the root.
func (p *Place) open(path, rel string) error {
	dir := filepath.Dir(rel)
	p.base = filepath.Base(rel)
	for {
		f, err := p.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			p.dir = f
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "." {
			return fmt.Errorf("%s: opening its directory: %w", path, Bare(err))
		}
		p.missing = slices.Insert(p.missing, 0, filepath.Base(dir))
		dir = filepath.Dir(dir)
	}
}

// inDir is a name in the open directory, for functions that take a path: what the kernel
// finds under the descriptor cannot be exchanged.
func (p *Place) inDir(name string) string { return dirName(p.dir) + "/" + name }

func dirName(dir *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) }

// name is that of the file.
func (p *Place) name() string { return p.inDir(p.base) }

// OpenFile opens the regular file that is there for reading.
func (p *Place) OpenFile() (durable.File, error) {
	if len(p.missing) > 0 {
		return nil, fmt.Errorf("opening %s: %w", p.Path, fs.ErrNotExist)
	}
	f, err := p.fs.OpenFile(p.name(), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.Path, Bare(err))
	}
	return f, nil
}

// Stat tells what is there. The error matches fs.ErrNotExist when nothing is.
func (p *Place) Stat() (fs.FileInfo, error) {
	if len(p.missing) > 0 {
		return nil, fmt.Errorf("looking at %s: %w", p.Path, fs.ErrNotExist)
	}
	info, err := p.fs.Lstat(p.name())
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", p.Path, Bare(err))
	}
	return info, nil
}

// OpenDir opens the directory that is there, and not what a link leads to that somebody put in
// its place meanwhile.
func (p *Place) OpenDir() (*os.File, error) {
	if len(p.missing) > 0 {
		return nil, fmt.Errorf("opening %s: %w", p.Path, fs.ErrNotExist)
	}
	dir, err := os.OpenFile(p.name(), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.Path, Bare(err))
	}
	return dir, nil
}

// Bare is an error of the file system without the path that it names, for a sentence
// that names a better one.
func Bare(err error) error {
	var (
		path      *fs.PathError
		link      *os.LinkError
		irregular *durable.NotRegularError
	)
	switch {
	case errors.As(err, &irregular):
		return &kindError{irregular}
	case errors.As(err, &path):
		return cmp.Or(path.Err, err)
	case errors.As(err, &link):
		return cmp.Or(link.Err, err)
	}
	return err
}

// kindError is a NotRegularError that does not name the file.
type kindError struct{ *durable.NotRegularError }

func (e *kindError) Error() string { return "it is " + e.Kind + ", not a regular file" }
func (e *kindError) Unwrap() error { return e.NotRegularError }

// Dir is a name of the directory that the place is in, for functions that take a path, as
// long as the place is open.
func (p *Place) Dir() string { return dirName(p.dir) }

// Base is the name within Dir.
func (p *Place) Base() string { return p.base }
