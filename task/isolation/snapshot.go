package isolation

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // it is how git names contents
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/agentrun/agentrun/internal/walk"
)

// Modes of files in git.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
)

// version is one content of one path: how git names it, and its mode. The zero version is nothing.
type version struct{ mode, id string }

// hasher hashes contents as git does.
func hasher(n int64) hash.Hash {
	h := sha1.New() //nolint:gosec // as above
	fmt.Fprintf(h, "blob %d\x00", n)
	return h
}

func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// look returns what is at a path of a directory. Nothing, and what git cannot hold, is the zero version; in the second case
// what it is.
func look(root *walk.Root, dir, rel string) (v version, other string, err error) {
	name := filepath.Join(dir, rel)
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return v, "", nil
	}
	if err != nil {
		return v, "", err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(name)
		if err != nil {
			return v, "", err
		}
		h := hasher(int64(len(target)))
		io.WriteString(h, target)
		return version{modeLink, sumOf(h)}, "", nil
	case info.IsDir():
		return v, "a directory", nil
	case !info.Mode().IsRegular():
		return v, "no regular file", nil
	}
	f, n, err := root.OpenFile(rel)
	if err != nil {
		return v, "", err
	}
	defer f.Close()
	h := hasher(n)
	if got, err := io.Copy(h, io.LimitReader(f, n)); err != nil || got != n {
		return v, "", fmt.Errorf("reading %s: %w", rel, errors.Join(err, errUnsteady))
	}
	return version{modeOf(info), sumOf(h)}, "", nil
}

var errUnsteady = errors.New("somebody writes it at this moment")

func modeOf(info fs.FileInfo) string {
	if info.Mode()&0o100 != 0 {
		return modeExec
	}
	return modeFile
}

// Branches of the repository of a space.
const (
	baseRef = "refs/heads/base"
	endRef  = "refs/heads/end"
)

// keepBase keeps how the files are at the beginning.
func (s *Space) keepBase(ctx context.Context, files []string) error {
	if _, err := initRepository(ctx, s.base(), true); err != nil {
		return err
	}
	known := map[string]bool{}
	objects := ""
	if s.state.Kind == Worktree {
		format, err := git{dir: s.state.Top}.line(ctx, "rev-parse", "--show-object-format")
		if err == nil && format == "sha1" {
			if objects, err = (git{dir: s.state.Top}).line(ctx, "rev-parse", "--path-format=absolute", "--git-path", "objects"); err != nil {
				return err
			}
			list, err := git{dir: s.state.Top}.run(ctx, "ls-tree", "-r", "-z", "--full-tree", "HEAD")
			if err != nil {
				return err
			}
			for v := range parseTree(list) {
				known[v.id] = true
			}
		}
	}
	if objects != "" {
		// The work tree keeps its HEAD from being collected, and so these.
		if err := os.WriteFile(filepath.Join(s.base(), "objects", "info", "alternates"), []byte(quoteList(objects)+"\n"), 0o600); err != nil {
			return err
		}
	}
	root, err := walk.Open(s.tree())
	if err != nil {
		return err
	}
	defer root.Close()
	return s.commit(ctx, baseRef, "", root, func(w *importer) error {
		for _, p := range files {
			v, other, err := look(root, s.tree(), p)
			if err != nil {
				return err
			}
			if other != "" || v == (version{}) {
				return fmt.Errorf("%s is not what was copied", p)
			}
			if err := w.put(p, v, known[v.id] && v.mode != modeLink); err != nil {
				return err
			}
		}
		return nil
	})
}

// commit makes a commit of ours, behind another one or on nothing.
func (s *Space) commit(ctx context.Context, ref, parent string, root *walk.Root, fill func(*importer) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, pipe := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		w := &importer{Writer: bufio.NewWriterSize(pipe, 1<<16), root: root, dir: s.tree()}
		fmt.Fprintf(w, "feature done\ncommit %s\ncommitter agentrun <> 0 +0000\ndata 0\n\n", ref)
		if parent != "" {
			fmt.Fprintf(w, "from %s\n", parent)
		}
		err := fill(w)
		if err == nil {
			w.WriteString("done\n")
			err = w.Flush()
		}
		if pipe.CloseWithError(err); err != nil {
			cancel(err)
		}
		filled <- err
	}()
	_, err := git{dir: s.place, own: s.base(), stdin: r}.run(ctx,
		"-c", "core.compression=1", "-c", "pack.compression=1", "fast-import", "--quiet", "--done", "--depth=0", "--force")
	r.CloseWithError(errEnded)
	if ferr := <-filled; ferr != nil && !errors.Is(ferr, errEnded) {
		return ferr
	}
	return err
}

var errEnded = errors.New("git has ended")

// importer writes the stream that git fast-import reads.
type importer struct {
	*bufio.Writer
	root *walk.Root
	dir  string
}

// put writes a file, with its content unless git has it.
func (w *importer) put(p string, v version, known bool) error {
	if known {
		_, err := fmt.Fprintf(w, "M %s %s %s\n", v.mode, v.id, quotePath(p))
		return err
	}
	fmt.Fprintf(w, "M %s inline %s\n", v.mode, quotePath(p))
	if v.mode == modeLink {
		target, err := os.Readlink(filepath.Join(w.dir, p))
		if err == nil {
			_, err = fmt.Fprintf(w, "data %d\n%s\n", len(target), target)
		}
		return err
	}
	f, n, err := w.root.OpenFile(p)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(w, "data %d\n", n)
	if got, err := io.Copy(w, io.LimitReader(f, n)); err != nil || got != n {
		return fmt.Errorf("reading %s: %w", p, errors.Join(err, errUnsteady))
	}
	return w.WriteByte('\n')
}

// quotePath writes a path as git quotes those with unusual bytes.
func quotePath(p string) string {
	b := []byte{'"'}
	for i := range len(p) {
		switch c := p[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = append(b, fmt.Sprintf("\\%03o", c)...)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

// parseTree reads what `git ls-tree -r -z` prints, blobs only.
func parseTree(list []byte) func(func(version, string) bool) {
	return func(yield func(version, string) bool) {
		for line := range bytes.SplitSeq(list, []byte{0}) {
			head, name, ok := strings.Cut(string(line), "\t")
			fields := strings.Fields(head)
			if !ok || len(fields) != 3 || fields[1] != "blob" {
				continue
			}
			if !yield(version{fields[0], fields[2]}, name) {
				return
			}
		}
	}
}

// Change is what an agent did to its files.
type Change struct {
	Added, Changed, Deleted int
	// Left are sentences about what is not in the patch.
	Left []string
}

// Files is how many files were changed in any way.
func (c Change) Files() int { return c.Added + c.Changed + c.Deleted }

// Patch writes what has changed since the beginning to w; nothing, when nothing has. It may be asked again. The error of a
// space whose files are gone is [ErrGone].
func (s *Space) Patch(ctx context.Context, w io.Writer) (c Change, err error) {
	if info, err := os.Lstat(s.tree()); err != nil || !info.IsDir() {
		return c, ErrGone
	}
	list, err := git{dir: s.place, own: s.base()}.run(ctx, "ls-tree", "-r", "-z", "--full-tree", baseRef)
	if err != nil {
		return c, fmt.Errorf("looking for what was there at the beginning: %w", err)
	}
	before := map[string]version{}
	for v, p := range parseTree(list) {
		before[p] = v
	}
	paths, err := s.changeable(ctx, before, &c)
	if err != nil {
		return c, err
	}
	root, err := walk.Open(s.tree())
	if err != nil {
		return c, err
	}
	defer root.Close()
	err = s.commit(ctx, endRef, baseRef+"^0", root, func(w *importer) error {
		return s.compare(ctx, w, root, before, paths, &c)
	})
	if err != nil {
		return c, fmt.Errorf("comparing the files with those at the beginning: %w", err)
	}
	if c.Files() > 0 {
		_, err = git{dir: s.place, own: s.base(), stdout: w}.run(ctx, "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames",
			"--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--diff-algorithm=myers", baseRef, endRef)
	}
	return c, err
}

// compare writes the files that are not as they were, those that are gone first: a directory may stand where a file was.
func (s *Space) compare(ctx context.Context, w *importer, root *walk.Root, before map[string]version, paths []string, c *Change) error {
	after := map[string]version{}
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		v, other, err := look(root, s.tree(), p)
		if errors.Is(err, fs.ErrPermission) {
			c.Left = append(c.Left, fmt.Sprintf("%s cannot be read, and is as it was: %v", p, err))
			v, err = before[p], nil
		}
		if err != nil {
			return err
		}
		if other != "" && other != "a directory" {
			c.Left = append(c.Left, fmt.Sprintf("%s is %s", p, other))
		}
		if v != (version{}) {
			after[p] = v
		}
	}
	for _, p := range slices.Sorted(maps.Keys(before)) {
		if after[p] == (version{}) {
			c.Deleted++
			if _, err := fmt.Fprintf(w, "D %s\n", quotePath(p)); err != nil {
				return err
			}
		}
	}
	for _, p := range paths {
		old, now := before[p], after[p]
		if old == now || now == (version{}) { // deleted ones were
			continue
		}
		if c.Changed++; old == (version{}) {
			c.Changed--
			c.Added++
		}
		if err := w.put(p, now, false); err != nil {
			return err
		}
	}
	return nil
}

// maxNamed is how many of one kind of what is left out are named.
const maxNamed = 5

// changeable are the files that a patch is made of: those that were there, and new ones that git does not ignore. What it is
// not made of goes into c.
func (s *Space) changeable(ctx context.Context, before map[string]version, c *Change) ([]string, error) {
	told := s.state.Left
	defer func() { s.state.Left = told }()
	s.state.Left = nil
	// Rules of a repository that the space only happens to be in hold for nobody.
	_, err := os.Lstat(filepath.Join(s.tree(), ".git"))
	paths, err := s.list(ctx, s.tree(), err != nil)
	if err != nil {
		return nil, err
	}
	all, err := s.list(ctx, s.tree(), true)
	if err != nil {
		return nil, err
	}
	for p := range before {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	var ignored []string
	for _, p := range all {
		if _, ok := slices.BinarySearch(paths, p); !ok {
			ignored = append(ignored, p)
		}
	}
	if len(ignored) > 0 {
		c.Left = append(c.Left, "git ignores "+named(ignored)+", made by the agent")
	}
	c.Left = append(c.Left, s.state.Left...)
	return paths, s.leftDirectories(ctx, c)
}

// leftDirectories tells what directories have that no patch holds.
func (s *Space) leftDirectories(ctx context.Context, c *Change) error {
	var empty []string
	err := filepath.WalkDir(s.tree(), func(name string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !e.IsDir() {
			return nil // told before
		}
		rel, err := filepath.Rel(s.tree(), name)
		switch {
		case err != nil:
			return err
		case e.Name() == ".git":
			if dir := filepath.Dir(rel); dir != "." {
				if _, err := os.Lstat(filepath.Join(s.state.Top, rel)); err != nil {
					c.Left = append(c.Left, fmt.Sprintf("%s is a repository that the agent made: its files are in the patch, its history is not", dir))
				}
			}
			return fs.SkipDir
		case rel != "." && emptyDir(name) && !slices.Contains(s.state.Empty, rel) && rel != s.state.Sub:
			empty = append(empty, rel)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(empty) > 0 {
		c.Left = append(c.Left, "the new directory without files "+named(empty))
	}
	if _, err := os.Lstat(filepath.Join(s.tree(), ".git")); err == nil && s.state.Head != "" {
		head, err := git{dir: s.tree()}.line(ctx, "rev-parse", "--verify", "HEAD^{commit}")
		if err == nil && head != s.state.Head && len(head) == len(s.state.Head) {
			c.Left = append(c.Left, "the agent committed, up to "+head+": what the commits change is in the patch, their messages are not")
		}
	}
	return ctx.Err()
}

func named(paths []string) string {
	text := strings.Join(paths[:min(len(paths), maxNamed)], ", ")
	if more := len(paths) - maxNamed; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// isNotDir reports whether a file stands where a directory was looked for.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
