package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/walk"
)

// gather brings the files into the space, and returns the paths of those that a patch can tell of, in order.
func (s *Space) gather(ctx context.Context) ([]string, error) {
	var paths []string
	var err error
	if s.state.Kind == Worktree {
		paths, err = s.gatherTracked(ctx)
	} else {
		paths, err = s.gatherAll(ctx)
	}
	slices.Sort(paths)
	return slices.Compact(paths), err
}

func (s *Space) left(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(s.state.Left, text) {
		s.state.Left = append(s.state.Left, text)
	}
}

// gatherTracked brings what git tracks, and what it does not ignore.
func (s *Space) gatherTracked(ctx context.Context) (paths []string, err error) {
	listed, err := s.list(ctx, s.state.Top, false)
	if err != nil {
		return nil, err
	}
	tracked, err := git{dir: s.state.Top}.run(ctx, "ls-files", "-z", "--cached")
	if err != nil {
		return nil, err
	}
	for p := range bytes.SplitSeq(tracked, []byte{0}) {
		if len(p) > 0 {
			listed = append(listed, string(p))
		}
	}
	slices.Sort(listed)
	above := map[string]bool{".": true}
	for _, p := range slices.Compact(listed) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !filepath.IsLocal(p) || hasGit(p) {
			continue // no index of git has such a path
		}
		for dir := path.Dir(p); !above[dir]; dir = path.Dir(dir) {
			above[dir] = true
			if _, err := s.fs.Lstat(filepath.Join(s.state.Top, dir, ".git")); err == nil {
				s.left("%s is a repository of its own: its files are here, and their changes come with the patch; its .git is not here", dir)
			}
		}
		kept, err := s.bring(p)
		if err != nil {
			return nil, err
		}
		if kept {
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// list lists the files of a directory, with or without those that git ignores.
func (s *Space) list(ctx context.Context, dir string, all bool) ([]string, error) {
	root, err := walk.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, problems, err := root.Files(ctx, walk.Options{All: all})
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		s.left("%s cannot be read: %v", p.Path, p.Err)
	}
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	return paths, nil
}

// gatherAll brings everything that is there. Of .git only directories: a file of that name says where a repository is, and it
// would be that of the source.
func (s *Space) gatherAll(ctx context.Context) (paths []string, err error) {
	err = filepath.WalkDir(s.state.Top, func(name string, e fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(s.state.Top, name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case rerr != nil:
			return rerr
		case rel == ".":
			return err
		case err != nil:
			if !gone(err) {
				s.left("%s cannot be read: %v", rel, err)
			}
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			info, err := e.Info()
			if gone(err) {
				return fs.SkipDir
			}
			if err != nil {
				return err
			}
			err = s.fs.Mkdir(filepath.Join(s.tree(), rel), info.Mode().Perm()|0o700)
			if err == nil && !hasGit(rel) && emptyDir(name) {
				s.state.Empty = append(s.state.Empty, rel)
			}
			return err
		case e.Name() == ".git":
			s.left("%s says where the repository of its directory is, and is not here, so that git does not know these files", rel)
			return nil
		}
		kept, err := s.bring(rel)
		if err == nil && kept && !hasGit(rel) {
			paths = append(paths, rel)
		}
		return err
	})
	return paths, err
}

// gone reports whether somebody has removed a file since its directory was read: other agents, and git, go on meanwhile.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || isNotDir(err) }

// hasGit reports whether a path leads into a .git, which no patch does.
func hasGit(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return false
}

func emptyDir(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// bring copies a file of the source, if it is there and one.
func (s *Space) bring(rel string) (bool, error) {
	from, to := filepath.Join(s.state.Top, rel), filepath.Join(s.tree(), rel)
	info, err := s.fs.Lstat(from)
	if err != nil {
		if !gone(err) {
			s.left("%s cannot be read: %v", rel, err)
		}
		return false, nil // deleted, and not committed
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if gone(err) {
			return false, nil
		}
		if err == nil {
			err = errors.Join(mkdirs(s.fs, filepath.Dir(to)), s.fs.Symlink(target, to))
		}
		return true, err
	case info.IsDir():
		return false, nil // a submodule, whose files are listed
	case !info.Mode().IsRegular():
		s.left("%s is no regular file, and is not here", rel)
		return false, nil
	}
	src, err := s.fs.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		if !gone(err) {
			s.left("%s cannot be read: %v", rel, err)
		}
		return false, nil
	}
	defer src.Close()
	if err := mkdirs(s.fs, filepath.Dir(to)); err != nil {
		return false, err
	}
	return true, clone(s.fs, src, to, info.Mode().Perm())
}

// clone makes a copy of a file, which shares its blocks where that is possible.
func clone(fsys durable.FS, src durable.File, to string, perm fs.FileMode) (err error) {
	dst, err := fsys.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
	}()
	if err = dst.CloneFrom(src); errors.Is(err, errors.ErrUnsupported) {
		var info fs.FileInfo
		if info, err = src.Stat(); err == nil {
			err = durable.Copy(dst, src, 0, info.Size())
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil // somebody writes it: this is how it was at one moment
			}
		}
	}
	if err != nil {
		return fmt.Errorf("copying %s: %w", src.Name(), err)
	}
	return dst.Chmod(perm)
}
