package walk

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lay(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, name := range files {
		name, content, _ := strings.Cut(name, "=")
		check(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(content, ",", "\n")), 0o600))
	}
}

func list(t *testing.T, dir string, o Options) string {
	t.Helper()
	r, err := Open(dir)
	check(t, err)
	defer r.Close()
	files, problems, err := r.Files(t.Context(), o)
	check(t, err)
	if len(problems) > 0 {
		t.Error(problems)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	return strings.Join(paths, " ")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir+"/..", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.Output()
	check(t, err)
	return string(out)
}

func TestFilesAreThoseThatGitLists(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home+"/.config")
	dir := filepath.Join(home, "repo")
	lay(t, home, ".config/git/ignore=*.user", ".gitconfig=[core],excludesFile = ~/mine")
	lay(t, home, "mine=*.mine")
	lay(t, dir, ".gitignore=*.log,/build/,!keep.log", "a", "a.log", "keep.log", "build/x", "src/build/y", "src/.gitignore=*.tmp,!b.log", "src/b.log", "src/c.tmp",
		"src/deep/d.tmp", ".hidden/e", "x.mine", "y.user", "ex", "sub/.gitignore=in,", "sub/in", "sub/out")
	check(t, os.Symlink("a", filepath.Join(dir, "link")))
	check(t, os.Symlink("src", filepath.Join(dir, "dirlink")))
	git(t, dir, "init", "-q")
	lay(t, dir, ".git/info/exclude=ex")
	want := strings.Fields(git(t, dir, "ls-files", "-co", "--exclude-standard"))
	slices.Sort(want)
	if got := list(t, dir, Options{}); got != strings.Join(want, " ") {
		t.Errorf("%s\nwant %s", got, strings.Join(want, " "))
	}
	if got := list(t, filepath.Join(dir, "src"), Options{}); got != ".gitignore b.log build/y" {
		t.Errorf("below the top: %s", got)
	}
	if got := list(t, dir, Options{All: true}); !strings.Contains(got, "build/x") || strings.Contains(got, ".git/") {
		t.Errorf("all: %s", got)
	}
	if got := list(t, dir, Options{Want: func(path string) bool { return strings.HasSuffix(path, ".log") }}); got != "keep.log src/b.log" {
		t.Errorf("wanted: %s", got)
	}
}

func TestAWorkTreeInsideHasItsOwnRules(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	lay(t, dir, ".gitignore=*.o", "a.o", "b", "inner/.gitignore=/c,sub/d", "inner/a.o", "inner/c", "inner/sub/d", "inner/sub/e")
	git(t, dir, "init", "-q")
	git(t, filepath.Join(dir, "inner"), "init", "-q")
	if got := list(t, dir, Options{}); got != ".gitignore b inner/.gitignore inner/a.o inner/sub/e" {
		t.Error(got)
	}
}

func TestOutsideOfWorkTreesNothingIsIgnored(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, ".gitignore=*.o", "a.o")
	if got := list(t, dir, Options{}); got != ".gitignore a.o" {
		t.Error(got)
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	lay(t, outside, "secret=s")
	dir := t.TempDir()
	lay(t, dir, "dir/a=a")
	check(t, os.Symlink(outside, filepath.Join(dir, "out")))
	check(t, os.Symlink("dir/a", filepath.Join(dir, "link")))
	check(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	r, err := Open(dir)
	check(t, err)
	defer r.Close()
	for path, ok := range map[string]bool{"dir/a": true, "out/secret": false, "link": false, "../" + filepath.Base(outside) + "/secret": false, "fifo": false, "dir": false, outside + "/secret": false} {
		f, _, err := r.OpenFile(path)
		if (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			f.Close()
		}
		fd, err := r.stepwise(strings.TrimPrefix(path, "/"), 0)
		if err == nil {
			unix.Close(fd)
		}
		if path == "out/secret" && err == nil || path == "dir/a" && err != nil {
			t.Errorf("stepwise %s: %v", path, err)
		}
	}
	files, _, err := r.Files(t.Context(), Options{})
	check(t, err)
	var out bytes.Buffer
	for _, f := range files {
		out.WriteString(f.Path + " " + f.Type.String() + "\n")
	}
	if want := "dir/a ----------\nfifo p---------\nlink L---------\nout L---------\n"; out.String() != want {
		t.Error(out.String())
	}
}

func TestWhatCannotBeReadIsTold(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := t.TempDir()
	lay(t, dir, "a", "closed/b")
	check(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	defer os.Chmod(filepath.Join(dir, "closed"), 0o700)
	r, err := Open(dir)
	check(t, err)
	defer r.Close()
	files, problems, err := r.Files(t.Context(), Options{})
	check(t, err)
	if len(files) != 1 || len(problems) != 1 || problems[0].Path != "closed" || !errors.Is(problems[0].Err, fs.ErrPermission) {
		t.Errorf("%v, %v", files, problems)
	}
}

func TestACancelledListingEnds(t *testing.T) {
	r, err := Open(t.TempDir())
	check(t, err)
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Files(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
