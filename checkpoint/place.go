package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
)

// places tells paths in records and on disk from each other.
type places struct {
	fs   durable.FS
	root string // real path of the session's working directory; "" when it is gone
	home string // real path of the home
}

// locate is the place that a path given by a person or tool means: symbolic links on
// the way to it are followed now, and it itself is not.
func (p places) locate(path string) (Place, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Place{}, fmt.Errorf("recording %s: %w", path, err)
	}
	if dir, base := filepath.Split(abs); base != "" {
		real, err := realDir(filepath.Clean(dir))
		if err != nil {
			return Place{}, fmt.Errorf("recording %s: %w", path, err)
		}
		abs = filepath.Join(real, base)
	}
	at := p.at(abs)
	if err := at.check(); err != nil {
		return Place{}, fmt.Errorf("recording a file whose name is no plain UTF-8: %w", err)
	}
	return at, nil
}

// realDir is the real path of a directory, of which the end may not be there yet.
func realDir(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if _, lerr := os.Lstat(dir); lerr == nil {
			return "", err // a link that leads nowhere
		}
		if real, err = realDir(filepath.Dir(dir)); err == nil {
			real = filepath.Join(real, filepath.Base(dir))
		}
	}
	return real, err
}

// at is the place of a real path.
func (p places) at(path string) Place {
	at := Place{Path: path}
	if p.root != "" && within(p.root, path) {
		// Both are clean, so this is filepath.Rel at a fraction of its cost.
		at.Rel = cmp.Or(strings.TrimPrefix(path[len(p.root):], "/"), ".")
	}
	return at
}

// within reports whether path is dir or below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolve is where a place of a record is now.
func (p places) resolve(at Place) string {
	if at.Rel != "" && p.root != "" {
		return filepath.Join(p.root, at.Rel)
	}
	return at.Path
}

// forbidden says why a path is never touched, "" if it may be.
func (p places) forbidden(path string) string {
	// A file system may take .GIT for .git.
	if strings.Contains(path, "/.") && strings.Contains(strings.ToLower(path)+"/", "/.git/") {
		return "it belongs to git"
	}
	if p.home != "" && within(p.home, path) {
		return "it is in the home of the sessions"
	}
	return ""
}

// inTheWay says what keeps a path from being a file that may be written: a link or a
// file on the way to it, or anything but a regular file in its place. info is nil when
// nothing stands there. Links above the working directory of the session are the user's
// own.
func (p places) inTheWay(path string) (info fs.FileInfo, obstacle string, err error) {
	return p.inPlace(path, p.onTheWay(filepath.Dir(path)))
}

// way is what there is on the way to the files of a directory.
type way struct {
	missing  bool // the directory is not there
	obstacle string
	err      error
}

func (p places) onTheWay(dir string) way {
	base := "/"
	if p.root != "" && within(p.root, dir) {
		base = p.root
	}
	rel, err := filepath.Rel(base, dir)
	if err != nil {
		return way{err: err}
	}
	at := base
	for element := range strings.SplitSeq(rel, "/") {
		at = filepath.Join(at, element)
		info, err := p.fs.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return way{missing: true}
		case err != nil:
			return way{err: err}
		case !info.IsDir():
			return way{obstacle: fmt.Sprintf("%s, on the way to it, is %s now", at, kind(info.Mode()))}
		}
	}
	return way{}
}

// inPlace looks at a file, the way to which is known.
func (p places) inPlace(path string, w way) (info fs.FileInfo, obstacle string, err error) {
	if w.missing || w.obstacle != "" || w.err != nil {
		return nil, w.obstacle, w.err
	}
	info, err = p.fs.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	case !info.Mode().IsRegular():
		return nil, "it is " + kind(info.Mode()) + " now", nil
	}
	return info, "", nil
}

// ways remembers the ways to directories, for looks at many files at one time.
type ways struct {
	places
	known sync.Map // of way, by directory
}

func (w *ways) inTheWay(path string) (info fs.FileInfo, obstacle string, err error) {
	dir := filepath.Dir(path)
	known, ok := w.known.Load(dir)
	if !ok {
		known = w.onTheWay(dir)
		w.known.Store(dir, known)
	}
	return w.inPlace(path, known.(way))
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}
