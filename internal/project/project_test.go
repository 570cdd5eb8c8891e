package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAddressesOfOneRepositoryAreOne(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"https://github.com/a/b.git", "github.com/a/b"},
		{"https://user:secret@GitHub.com/a/b", "github.com/a/b"},
		{"ssh://git@github.com:22/a/b.git/", "github.com/a/b"},
		{"git@github.com:a/b.git", "github.com/a/b"},
		{"github.com:a/b", "github.com/a/b"},
		{"https://x@y:p@host/a", "host/a"},
		{"/srv/git/a.git", "/srv/git/a"},
		{"file:///srv/git/a.git", "/srv/git/a"},
		{"../a:b", "../a:b"},
		{"", ""},
	} {
		if got := Address(c.url); got != c.want {
			t.Errorf("%s is %q, want %q", c.url, got, c.want)
		}
	}
}

func TestRemotesOfAConfiguration(t *testing.T) {
	got := remotes("[core]\n\turl = no\n[remote \"up\"] url = \"a#b\" ; said\n[Remote \"origin\"]\n\tfetch = +x\n\tURL = git@h:p # why\n\turl = second\n[remote]\n[branch \"m\"]\n\tremote = origin\n")
	if len(got) != 2 || got["up"] != "a#b" || got["origin"] != "git@h:p" {
		t.Errorf("got %q", got)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add("[remote \"origin\"]\n\turl = https://u:p@h/a.git\n")
	f.Add("[remote \"o\\\"]\nurl=\\")
	f.Fuzz(func(t *testing.T, config string) {
		for _, url := range remotes(config) {
			scheme, _, ok := strings.Cut(url, "://")
			host, _, _ := strings.Cut(Address(url), "/")
			if ok && !strings.EqualFold(scheme, "file") && strings.Contains(host, "@") {
				t.Errorf("%q keeps the user in %q", url, Address(url))
			}
		}
	})
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git here")
	}
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=m"}, args...)...)
	cmd.Env = append(cleanEnvironment(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestARepositoryIsKnownWhereverItIs(t *testing.T) {
	base := t.TempDir()
	one := filepath.Join(base, "one")
	f := Finder{Cache: filepath.Join(base, "projects"), Wait: time.Minute}
	of := func(dir string) string { return f.Of(t.Context(), dir) }
	if err := os.MkdirAll(filepath.Join(one, "sub", "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	plain := of(one)
	if !strings.HasPrefix(plain, "dir:") {
		t.Fatalf("a directory is %q", plain)
	}
	git(t, one, "init", "-q")
	if got := of(one); got != plain {
		t.Errorf("an empty repository is %q, the directory was %q", got, plain)
	}
	git(t, one, "commit", "-q", "--allow-empty", "-m", "first")
	made := of(one)
	if !strings.HasPrefix(made, "git:-.") {
		t.Errorf("a repository without remote is %q", made)
	}
	git(t, one, "remote", "add", "origin", "https://me:secret@host/a/b.git")
	full, sub := of(one), of(filepath.Join(one, "sub", "dir"))
	if !strings.HasSuffix(sub, "/sub/dir") || strings.TrimSuffix(sub, "/sub/dir") != full {
		t.Errorf("below %q is %q", full, sub)
	}
	if Same(full, sub) || !Same(full, made) || Same(full, plain) || Same("", "") {
		t.Error("what is the same is not told from what is not")
	}
	two := filepath.Join(base, "two")
	if err := os.Rename(one, two); err != nil {
		t.Fatal(err)
	}
	if got := of(two); got != full {
		t.Errorf("moved it is %q, before %q", got, full)
	}
	three := filepath.Join(base, "three")
	git(t, base, "clone", "-q", two, three)
	git(t, three, "remote", "set-url", "origin", "git@host:a/b")
	if got := of(three); got != full {
		t.Errorf("cloned it is %q, before %q", got, full)
	}
	git(t, two, "worktree", "add", "-q", filepath.Join(base, "four"))
	if got := of(filepath.Join(base, "four")); got != full {
		t.Errorf("another work tree is %q, want %q", got, full)
	}
	if err := os.Mkdir(one, 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, one, "init", "-q")
	git(t, one, "commit", "-q", "--allow-empty", "-m", "another project")
	if got := of(one); Same(got, full) || Same(got, made) {
		t.Errorf("another project at the old place is %q", got)
	}
	if files, _ := filepath.Glob(filepath.Join(f.Cache, "*.json")); len(files) == 0 {
		t.Error("no first commit was kept")
	}
}

func TestADirectoryIsKnownAfterARename(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	if err := os.Mkdir(one, 0o700); err != nil {
		t.Fatal(err)
	}
	was := Finder{Wait: time.Minute}.Of(t.Context(), one)
	if err := os.Rename(one, two); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(one, 0o700); err != nil {
		t.Fatal(err)
	}
	if now := (Finder{Wait: time.Minute}).Of(t.Context(), two); now != was || now == (Finder{Wait: time.Minute}).Of(t.Context(), one) {
		t.Errorf("it was %q and is %q", was, now)
	}
}
