package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
		at.Rel, _ = filepath.Rel(p.root, path)
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
	for element := range strings.SplitSeq(path, "/") {
		if element == ".git" {
			return "it belongs to git"
		}
	}
	if p.home != "" && within(p.home, path) {
		return "it is in the home of the sessions"
	}
	return ""
}

// inTheWay says what keeps a path from being a file that may be written: a link or a
// file on the way to it, or anything but a regular file in its place. there is false
// when nothing stands there. Links above the working directory of the session are the
// user's own.
func (p places) inTheWay(path string) (info fs.FileInfo, obstacle string, err error) {
	base := "/"
	if p.root != "" && within(p.root, path) {
		base = p.root
	}
	rel, err := filepath.Rel(base, path)
	if err != nil {
		return nil, "", err
	}
	at := base
	elements := strings.Split(rel, "/")
	for i, element := range elements {
		at = filepath.Join(at, element)
		info, err := p.fs.Lstat(at)
		switch last := i == len(elements)-1; {
		case errors.Is(err, fs.ErrNotExist):
			return nil, "", nil
		case err != nil:
			return nil, "", err
		case last && info.Mode().IsRegular():
			return info, "", nil
		case last:
			return nil, "it is " + kind(info.Mode()) + " now", nil
		case !info.IsDir():
			return nil, fmt.Sprintf("%s, on the way to it, is %s now", at, kind(info.Mode())), nil
		}
	}
	return nil, "", nil
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
