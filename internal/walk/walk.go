// Package walk lists the files of a directory, without those that git ignores.
//
// # Promises
//
//   - No symbolic link is followed, also none that comes in the way meanwhile: every directory
//     and file is opened from the descriptor of the root, by openat2(2) with
//     RESOLVE_NO_SYMLINKS. Links are listed as files that cannot be opened.
//   - In a work tree of git, what `git check-ignore --no-index` calls ignored is left out,
//     and .git. Rules from above the root hold too. A work tree inside of another one
//     has its own rules. Elsewhere nothing is ignored.
//   - Directories are read by several goroutines, which are gone when Files returns. The list is
//     in the order of the bytes of the paths.
//   - What cannot be read is told in the list of problems, and the rest is listed.
package walk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/gitignore"
)

// File is something in a directory that is no directory.
type File struct {
	Path string      // from the root, with slashes
	Type fs.FileMode // the type bits; 0 for a regular file
}

// Problem is a directory or file that could not be read.
type Problem struct {
	Path string // from the root; "." for the root
	Err  error
}

// Root is a directory whose files are listed and opened. It is safe for concurrent use.
type Root struct {
	name string
	dir  *os.File
}

// Open opens a directory, also through links.
func Open(name string) (*Root, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return OpenDir(f)
}

// OpenDir is Open for a directory that is open; Close closes it.
func OpenDir(f *os.File) (*Root, error) {
	// Where it is, for the rules from above.
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return &Root{cmp.Or(real, f.Name()), f}, err
}

// Close closes the root.
func (r *Root) Close() error { return r.dir.Close() }

// openat opens a path without following any link.
func (r *Root) openat(path string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	for {
		fd, err := unix.Openat2(int(r.dir.Fd()), path, &how)
		switch err {
		case unix.EINTR, unix.EAGAIN: // the second: a rename went on meanwhile
		case unix.ENOSYS:
			return r.stepwise(path, int(flags))
		default:
			return fd, err
		}
	}
}

// stepwise is openat for kernels before 5.6.
func (r *Root) stepwise(path string, flags int) (int, error) {
	at := int(r.dir.Fd())
	parts := strings.Split(path, "/")
	for i, name := range parts {
		how := unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW
		if i < len(parts)-1 {
			how |= unix.O_DIRECTORY
		} else {
			how |= flags
		}
		fd, err := unix.Openat(at, name, how, 0)
		if at != int(r.dir.Fd()) {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = fd
	}
	return at, nil
}

// OpenFile opens a regular file of the root. It is not waited for a FIFO, and not followed a
// link. A read of one whose content never ends but waits for more, as /proc/kmsg has it, returns
// os.ErrDeadlineExceeded soon.
func (r *Root) OpenFile(path string) (*os.File, int64, error) {
	fd, err := r.openat(path, 0)
	if err != nil {
		return nil, 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, 0, ErrIrregular
	}
	f := os.NewFile(uintptr(fd), path)
	if st.Size == 0 {
		// Only of what is like a pipe, as /proc/kmsg is: reads of it wait for more to come.
		_ = f.SetReadDeadline(time.Now().Add(patience))
	}
	return f, st.Size, nil
}

// Size is how large a file is, in bytes; 0 for what is none. It is for choosing a way to read it: a
// link on the way is followed.
func (r *Root) Size(path string) int64 {
	var st unix.Stat_t
	if err := unix.Fstatat(int(r.dir.Fd()), path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0
	}
	return st.Size
}

// patience is how long a file that gives what it has piece by piece is read.
const patience = 200 * time.Millisecond

// ErrIrregular is returned for what is no regular file.
var ErrIrregular = errors.New("it is no regular file")

// Options say what to list.
type Options struct {
	// All lists what git ignores too, but never .git.
	All bool
	// Want chooses files by path; nil is all.
	Want func(path string) bool
}

// lister is one listing.
type lister struct {
	root *Root
	opts Options
	ctx  context.Context // of the one call this value lives for

	mu       sync.Mutex // guards all below
	work     []job
	busy     int
	more     *sync.Cond
	files    []File
	problems []Problem
}

// job is a directory to read.
type job struct {
	path  string         // from the root, "" for it
	rules *gitignore.Dir // nil outside of work trees
	// Where paths are from the top of the work tree: behind top, without their first cut
	// bytes.
	top string
	cut int
}

func (j *job) inTree(path string) string { return j.top + path[min(j.cut, len(path)):] }

// Files lists the files of the root.
func (r *Root) Files(ctx context.Context, o Options) ([]File, []Problem, error) {
	l := &lister{root: r, opts: o, ctx: ctx}
	l.more = sync.NewCond(&l.mu)
	first := job{}
	if !o.All {
		first.rules, first.top = above(r.name)
	}
	l.work = []job{first}
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.more.Broadcast()
	})
	defer stop()
	var readers sync.WaitGroup
	for range max(2, runtime.GOMAXPROCS(0)) {
		readers.Go(l.run)
	}
	readers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("listing %s: %w", r.name, err)
	}
	slices.SortFunc(l.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(l.problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return l.files, l.problems, nil
}

func (l *lister) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.work) == 0 && l.busy > 0 && l.ctx.Err() == nil {
			l.more.Wait()
		}
		if len(l.work) == 0 || l.ctx.Err() != nil {
			l.more.Broadcast()
			return
		}
		j := l.work[len(l.work)-1]
		l.work = l.work[:len(l.work)-1]
		l.busy++
		l.mu.Unlock()
		files, dirs, problems := l.read(j)
		l.mu.Lock()
		l.busy--
		l.files = append(l.files, files...)
		l.work = append(l.work, dirs...)
		l.problems = append(l.problems, problems...)
		if len(dirs) > 0 || l.busy == 0 {
			l.more.Broadcast()
		}
	}
}

// read reads one directory.
func (l *lister) read(j job) (files []File, dirs []job, problems []Problem) {
	fail := func(path string, err error) {
		problems = append(problems, Problem{cmp.Or(path, "."), err})
	}
	fd, err := l.root.openat(cmp.Or(j.path, "."), unix.O_DIRECTORY)
	if err != nil {
		if err != unix.ENOENT || j.path == "" { // else it is gone meanwhile
			fail(j.path, err)
		}
		return nil, nil, problems
	}
	f := os.NewFile(uintptr(fd), j.path)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		fail(j.path, bare(err))
	}
	prefix := ""
	if j.path != "" {
		prefix = j.path + "/"
	}
	if !l.opts.All && j.path != "" && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" }) {
		if own := workTree(filepath.Join(l.root.name, j.path)); own != nil {
			j.rules, j.top, j.cut = own, "", len(prefix)
		}
	}
	rules := j.rules
	if rules != nil {
		for _, e := range entries {
			if e.Name() == ".gitignore" && e.Type().IsRegular() {
				own, err := l.rules(prefix + ".gitignore")
				if err != nil {
					problems = append(problems, Problem{prefix + ".gitignore", err})
				} else {
					rules = rules.With(strings.TrimSuffix(j.inTree(prefix), "/"), own)
				}
			}
		}
	}
	for _, e := range entries {
		name := e.Name()
		if name == ".git" {
			continue
		}
		path := prefix + name
		typ, isDir := e.Type(), e.IsDir()
		if rules != nil && rules.Ignored(j.inTree(path), isDir) {
			continue
		}
		switch {
		case isDir:
			dirs = append(dirs, job{path, rules, j.top, j.cut})
		case l.opts.Want == nil || l.opts.Want(path):
			files = append(files, File{path, typ})
		}
	}
	return files, dirs, problems
}

// maxRules is how much of a .gitignore is read.
const maxRules = 1 << 20

func (l *lister) rules(path string) (*gitignore.Rules, error) {
	f, _, err := l.root.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRules))
	return gitignore.Parse(data), err
}

// bare is an error without the path.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// above finds the rules that hold in a directory from above it, and where it is from the
// top of its work tree.
func above(dir string) (*gitignore.Dir, string) {
	top := dir
	for {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			break
		}
		if top == filepath.Dir(top) {
			return nil, ""
		}
		top = filepath.Dir(top)
	}
	rules := workTree(top)
	if rules == nil || top == dir {
		return rules, ""
	}
	rel, err := filepath.Rel(top, dir)
	if err != nil {
		return nil, ""
	}
	// The rules of the directories between; that of dir itself is read with its entries.
	at := ""
	for _, name := range append([]string{""}, strings.Split(rel, "/")...) {
		if at = filepath.Join(at, name); at == rel {
			break
		}
		if data, err := readFile(filepath.Join(top, at, ".gitignore")); err == nil {
			rules = rules.With(at, gitignore.Parse(data))
		}
	}
	return rules, rel + "/"
}

// readFile reads a file of rules or settings, without waiting for what is none.
func readFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, ErrIrregular)
	}
	return io.ReadAll(io.LimitReader(f, maxRules))
}

// workTree is the top of a work tree with the rules that stand in no directory; nil when
// .git is none of git's.
func workTree(top string) *gitignore.Dir {
	git := filepath.Join(top, ".git")
	if data, err := readFile(git); err == nil { // a linked work tree, or a submodule
		link, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir:")
		if !ok {
			return nil
		}
		if git = strings.TrimSpace(link); !filepath.IsAbs(git) {
			git = filepath.Join(top, git)
		}
		if data, err := readFile(filepath.Join(git, "commondir")); err == nil {
			common := strings.TrimSpace(string(data))
			if !filepath.IsAbs(common) {
				common = filepath.Join(git, common)
			}
			git = common
		}
	}
	if _, err := os.Lstat(filepath.Join(git, "HEAD")); err != nil {
		return nil
	}
	parse := func(name string) *gitignore.Rules {
		data, err := readFile(name)
		if err != nil {
			return nil
		}
		return gitignore.Parse(data)
	}
	var user *gitignore.Rules
	if name := excludesFile(filepath.Join(git, "config")); name != "" {
		user = parse(name)
	}
	return gitignore.Top(parse(filepath.Join(git, "info", "exclude")), user)
}

// excludesFile is the file of the user's own rules: core.excludesFile of git's settings, in
// which includes are not followed, else that of XDG.
func excludesFile(repository string) string {
	home, _ := os.UserHomeDir()
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	name := filepath.Join(config, "git", "ignore")
	files := []string{"/etc/gitconfig", filepath.Join(config, "git", "config"), filepath.Join(home, ".gitconfig"), repository}
	if global, ok := os.LookupEnv("GIT_CONFIG_GLOBAL"); ok {
		files = []string{"/etc/gitconfig", global, repository}
	}
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			continue
		}
		core := false
		for line := range bytes.Lines(data) {
			text := strings.TrimSpace(string(line))
			if strings.HasPrefix(text, "[") {
				core = strings.EqualFold(text, "[core]")
				continue
			}
			key, value, ok := strings.Cut(text, "=")
			if core && ok && strings.EqualFold(strings.TrimSpace(key), "excludesfile") {
				name = strings.Trim(strings.TrimSpace(value), `"`)
				if rest, ok := strings.CutPrefix(name, "~/"); ok {
					name = filepath.Join(home, rest)
				}
			}
		}
	}
	return name
}

// Name is the real path of the root, or what it was opened as where that is not known.
func (r *Root) Name() string { return r.name }
