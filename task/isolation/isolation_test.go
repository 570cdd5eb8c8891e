package isolation_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/task/isolation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// project is a directory with files, and a place for spaces elsewhere.
type project struct {
	*testing.T
	dir, place string
}

func newProject(t *testing.T) *project {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	root := must(filepath.EvalSymlinks(t.TempDir()))
	p := &project{t, filepath.Join(root, "project"), filepath.Join(root, "home", "space")}
	p.check(os.MkdirAll(p.dir, 0o755))
	return p
}

func (p *project) check(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// git runs git as a person does, in a directory of the project.
func (p *project) git(dir string, args ...string) string {
	p.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=A", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = filepath.Join(p.dir, dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (p *project) write(dir, name, content string) {
	p.Helper()
	name = filepath.Join(dir, name)
	p.check(os.MkdirAll(filepath.Dir(name), 0o755))
	p.check(os.WriteFile(name, []byte(content), 0o644))
}

// repo makes a repository with a commit.
func (p *project) repo() {
	p.Helper()
	p.git("", "init", "-q")
	p.write(p.dir, "a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n")
	p.write(p.dir, "gone.txt", "gone\n")
	p.write(p.dir, "long.txt", long(""))
	p.write(p.dir, "sub/b.bin", "\x00\x01\xff binary")
	p.write(p.dir, "run.sh", "#!/bin/sh\n")
	p.write(p.dir, ".gitignore", "*.log\nbuild/\n")
	p.check(os.Symlink("a.txt", filepath.Join(p.dir, "link")))
	p.git("", "add", "-A")
	p.git("", "commit", "-qm", "first")
}

func (p *project) open(kind isolation.Kind, source string) *isolation.Space {
	p.Helper()
	s, made, err := isolation.Open(p.Context(), isolation.Options{Kind: kind, Place: p.place, Source: source, Agent: "0-Fix"})
	p.check(err)
	if !made {
		p.Fatal("the space was there")
	}
	return s
}

// tree is what a directory holds, without .git: contents, links, and what can be executed.
func tree(dir string) map[string]string {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := must(filepath.Rel(dir, name))
		switch {
		case e.Name() == ".git" && e.IsDir():
			return fs.SkipDir
		case e.IsDir() || e.Name() == ".git":
		case e.Type()&fs.ModeSymlink != 0:
			all[rel] = "-> " + must(os.Readlink(name))
		default:
			all[rel] = string(must(os.ReadFile(name)))
			if must(e.Info()).Mode()&0o100 != 0 {
				all[rel] += " (executable)"
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return all
}

func (p *project) patch(s *isolation.Space) ([]byte, isolation.Change) {
	p.Helper()
	var b bytes.Buffer
	c, err := s.Patch(p.Context(), &b)
	p.check(err)
	return b.Bytes(), c
}

func (p *project) merge(patch []byte, change ...func(*isolation.MergeOptions)) (isolation.Merge, error) {
	o := isolation.MergeOptions{Dir: p.dir, Patch: bytes.NewReader(patch), Size: int64(len(patch)), Scratch: filepath.Join(filepath.Dir(p.dir), "merging")}
	for _, c := range change {
		c(&o)
	}
	return isolation.Apply(p.Context(), o)
}

// long is a text of many lines, of which one says something.
func long(said string) string {
	return strings.Repeat("before\n", 10) + "1\n2\n3\n" + said + "4\n5\n6\n" + strings.Repeat("behind\n", 10)
}

// rework changes everything that a patch can hold.
func (p *project) rework(dir string) {
	p.Helper()
	p.write(dir, "a.txt", "one\ntwo\n3\nfour\nfive\nsix\nseven\neight\nnine\nten")
	p.write(dir, "long.txt", long("said\n"))
	p.check(os.Remove(filepath.Join(dir, "gone.txt")))
	p.write(dir, "sub/b.bin", "\x00\x02\xfe other")
	p.check(os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	p.check(os.Remove(filepath.Join(dir, "link")))
	p.check(os.Symlink("sub/b.bin", filepath.Join(dir, "link")))
	p.write(dir, "new/with \"quotes\"\nand a line.txt", "new\r\n")
	p.write(dir, "new/ünïcode", "")
	p.write(dir, "new/bytes\xff", "x")
	p.check(os.WriteFile(filepath.Join(dir, "new/tool"), []byte("#!/bin/sh\n"), 0o755))
	p.write(dir, "diff --git a/x b/x", "diff --git a/x b/x\nindex 1..2\n")
	p.write(dir, ".gitattributes", "*.txt text eol=crlf\n*.bin diff\n* ident\n")
}

func TestAPatchBringsEveryChangeBackToTheByte(t *testing.T) {
	for _, kind := range []isolation.Kind{isolation.Worktree, isolation.Copy} {
		t.Run(string(kind), func(t *testing.T) {
			p := newProject(t)
			p.repo()
			p.write(p.dir, "a.txt", "one\r\ntwo\n3?\nfour\nfive\nsix\nseven\neight\nnine\nten\n") // not committed
			p.write(p.dir, "untracked/c.txt", "$Id$\n")
			p.write(p.dir, "build/out.log", "ignored\n")
			p.check(os.Remove(filepath.Join(p.dir, ".gitignore")))
			p.write(p.dir, ".git/info/exclude", "*.log\nbuild/\n")
			s := p.open(kind, p.dir)
			want := tree(p.dir)
			if kind == isolation.Worktree {
				delete(want, "build/out.log")
			}
			if got := tree(s.Dir()); !maps.Equal(got, want) {
				t.Fatalf("the agent has\n%q\nand its parent\n%q", got, want)
			}
			if patch, c := p.patch(s); len(patch) > 0 || c.Files() > 0 {
				t.Errorf("nothing was changed, and the patch is %q, %+v", patch, c)
			}
			before := tree(p.dir)
			p.rework(s.Dir())
			p.write(s.Dir(), "untracked/c.txt", "$Id: x$\n")
			patch, c := p.patch(s)
			if c.Added != 6 || c.Changed != 6 || c.Deleted != 1 || len(c.Left) > 0 {
				t.Errorf("the patch has %+v", c)
			}
			if !maps.Equal(tree(p.dir), before) {
				t.Error("files of the parent have changed")
			}
			want = tree(s.Dir())
			want["build/out.log"] = "ignored\n"
			m, err := p.merge(patch)
			if p.check(err); !m.Done || len(m.Conflicts()) > 0 {
				t.Fatalf("%+v", m)
			}
			if got := tree(p.dir); !maps.Equal(got, want) {
				t.Errorf("merged, it is\n%q\nand not\n%q", got, want)
			}
			m, err = p.merge(patch)
			if p.check(err); !m.Done || slices.ContainsFunc(m.Files, func(f isolation.MergedFile) bool { return f.Action != isolation.Already }) {
				t.Errorf("merged again: %+v", m)
			}
			p.check(s.Remove(p.Context()))
			if _, err := os.Stat(p.place); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the space is still there: %v", err)
			}
			if list := p.git("", "worktree", "list"); strings.Count(list, "\n") != 1 {
				t.Errorf("a work tree is left: %s", list)
			}
		})
	}
}

func TestADirectoryWithoutGitIsCopied(t *testing.T) {
	p := newProject(t)
	p.write(p.dir, "f", "1")
	p.write(p.dir, "d/g", "2")
	p.check(os.Mkdir(filepath.Join(p.dir, "empty"), 0o755))
	if err := isolation.Check(p.Context(), isolation.Worktree, p.dir, p.place); err == nil || !strings.Contains(err.Error(), "use the isolation copy") {
		t.Errorf("a work tree of nothing: %v", err)
	}
	s := p.open(isolation.Copy, p.dir)
	p.check(os.Remove(filepath.Join(s.Dir(), "f")))
	p.write(s.Dir(), "f/was a file", "3")
	p.check(os.RemoveAll(filepath.Join(s.Dir(), "d")))
	p.write(s.Dir(), "d", "was a directory")
	p.check(os.Mkdir(filepath.Join(s.Dir(), "hollow"), 0o755))
	patch, c := p.patch(s)
	if !slices.Equal(c.Left, []string{"the new directory without files hollow"}) {
		t.Errorf("left is %q", c.Left)
	}
	want := tree(s.Dir())
	m, err := p.merge(patch)
	if p.check(err); !m.Done {
		t.Fatalf("%+v", m)
	}
	if got := tree(p.dir); !maps.Equal(got, want) {
		t.Errorf("merged, it is\n%q\nand not\n%q", got, want)
	}
}

func TestRepositoriesInsideKeepTheirFiles(t *testing.T) {
	p := newProject(t)
	p.repo()
	p.git("", "init", "-q", "nested")
	p.write(p.dir, "nested/n.txt", "n\n")
	p.write(p.dir, "nested/.gitignore", "*.o\n")
	p.write(p.dir, "nested/x.o", "o")
	p.git("nested", "add", "-A")
	p.git("nested", "commit", "-qm", "nested")
	p.git("", "submodule", "--quiet", "add", "./nested", "module")
	p.git("", "commit", "-qam", "a module")
	s := p.open(isolation.Worktree, filepath.Join(p.dir, "sub"))
	if want := filepath.Join("sub"); filepath.Base(s.Dir()) != want {
		t.Errorf("the agent works in %s", s.Dir())
	}
	top := filepath.Dir(s.Dir())
	if got := tree(top); got["nested/n.txt"] != "n\n" || got["module/n.txt"] != "n\n" || got["nested/x.o"] != "" {
		t.Fatalf("the agent has %q", got)
	}
	if left := strings.Join(s.Left(), "; "); !strings.Contains(left, "nested is a repository of its own") || !strings.Contains(left, "module is a repository of its own") {
		t.Errorf("left is %q", left)
	}
	p.write(top, "nested/n.txt", "changed\n")
	p.write(top, "module/new.txt", "new\n")
	p.check(exec.Command("git", "init", "-q", filepath.Join(top, "made")).Run())
	p.write(top, "made/m.txt", "m\n")
	p.write(top, "a.log", "ignored")
	patch, c := p.patch(s)
	if left := strings.Join(c.Left, "; "); !strings.Contains(left, "git ignores a.log") || !strings.Contains(left, "made is a repository that the agent made") {
		t.Errorf("left is %q", c.Left)
	}
	m, err := p.merge(patch)
	if p.check(err); !m.Done {
		t.Fatalf("%+v", m)
	}
	got := tree(p.dir)
	if got["nested/n.txt"] != "changed\n" || got["module/new.txt"] != "new\n" || got["made/m.txt"] != "m\n" {
		t.Errorf("merged, it is %q", got)
	}
}

func TestAConflictChangesNothing(t *testing.T) {
	p := newProject(t)
	p.repo()
	s := p.open(isolation.Worktree, p.dir)
	p.rework(s.Dir())
	patch, _ := p.patch(s)
	p.check(s.Remove(p.Context()))
	tests := []struct {
		name, path string
		change     func()
		reason     string
	}{
		{"the same lines", "a.txt", func() { p.write(p.dir, "a.txt", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\neight\nnine\nten\n") }, "in the same lines"},
		{"binary", "sub/b.bin", func() { p.write(p.dir, "sub/b.bin", "\x00mine") }, "no text"},
		{"a file that is deleted", "gone.txt", func() { p.write(p.dir, "gone.txt", "not yet\n") }, "deletes it"},
		{"a new file", "new/tool", func() { p.write(p.dir, "new/tool", "mine\n") }, "makes it"},
		{"a directory in the way", "new/tool", func() { p.write(p.dir, "new/tool/x", "mine\n") }, "a directory here"},
		{"a link above", "new/tool", func() { p.check(os.Symlink("sub", filepath.Join(p.dir, "new"))) }, "symbolic link"},
		{"a file that is gone", "sub/b.bin", func() { p.check(os.Remove(filepath.Join(p.dir, "sub/b.bin"))) }, "not here any more"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p.check(os.RemoveAll(filepath.Join(p.dir, "new")))
			p.git("", "checkout", "-q", "-f", ".")
			test.change()
			before := tree(p.dir)
			m, err := p.merge(patch)
			if err != nil || m.Done {
				t.Fatalf("%+v %v", m, err)
			}
			conflicts := m.Conflicts()
			if !slices.ContainsFunc(conflicts, func(f isolation.MergedFile) bool {
				return f.Path == test.path && strings.Contains(f.Reason, test.reason)
			}) {
				t.Errorf("the conflicts are %+v", conflicts)
			}
			if got := tree(p.dir); !maps.Equal(got, before) {
				t.Errorf("it changed to %q", got)
			}
		})
	}
}

func TestOtherLinesOfAFileAreKept(t *testing.T) {
	p := newProject(t)
	p.repo()
	s := p.open(isolation.Worktree, p.dir)
	p.rework(s.Dir())
	patch, _ := p.patch(s)
	p.write(p.dir, "long.txt", "mine\n"+long(""))
	before := tree(p.dir)
	m, err := p.merge(patch, func(o *isolation.MergeOptions) { o.Check = true })
	if p.check(err); m.Done || len(m.Conflicts()) > 0 || !maps.Equal(tree(p.dir), before) {
		t.Fatalf("a check: %+v", m)
	}
	m, err = p.merge(patch)
	if p.check(err); !m.Done {
		t.Fatalf("%+v", m)
	}
	if got, want := tree(p.dir)["long.txt"], "mine\n"+long("said\n"); got != want {
		t.Errorf("it is %q", got)
	}
}

func TestNothingThatARepositoryNamesIsRun(t *testing.T) {
	p := newProject(t)
	p.repo()
	trap := filepath.Join(filepath.Dir(p.dir), "trap")
	script := filepath.Join(p.dir, "evil.sh")
	p.check(os.WriteFile(script, []byte("#!/bin/sh\ntouch "+trap+"\ncat\n"), 0o755))
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction", "pre-commit"} {
		p.check(os.WriteFile(filepath.Join(p.dir, ".git", "hooks", hook), []byte("#!/bin/sh\ntouch "+trap+"\n"), 0o755))
	}
	p.write(p.dir, ".gitattributes", "* filter=evil diff=evil merge=evil\n")
	for _, name := range []string{
		"filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.evil.command", "diff.external", "merge.evil.driver", "core.fsmonitor", "core.pager",
		"core.editor", "core.sshCommand", "credential.helper", "core.alternateRefsCommand", "uploadpack.packObjectsHook", "alias.worktree", "core.askpass",
	} {
		value := script
		if name == "alias.worktree" {
			value = "!" + script
		}
		p.git("", "config", name, value)
	}
	t.Setenv("GIT_EXTERNAL_DIFF", script)
	t.Setenv("GIT_DIR", filepath.Join(p.dir, "nowhere"))
	s := p.open(isolation.Worktree, p.dir)
	p.rework(s.Dir())
	patch, _ := p.patch(s)
	m, err := p.merge(patch)
	if p.check(err); !m.Done {
		t.Errorf("%+v", m)
	}
	p.check(s.Remove(p.Context()))
	if _, err := os.Stat(trap); err == nil {
		t.Error("something was run")
	}
}

func TestAWorkTreeThatIsElsewhereIsRefused(t *testing.T) {
	p := newProject(t)
	p.repo()
	p.git("", "config", "core.worktree", t.TempDir())
	if err := isolation.Check(p.Context(), isolation.Worktree, p.dir, p.place); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("it says %v", err)
	}
}

func TestAHomeInsideOfWhatIsIsolatedIsRefused(t *testing.T) {
	p := newProject(t)
	for _, home := range []string{p.dir, filepath.Join(p.dir, "home", "x")} {
		if err := isolation.Check(p.Context(), isolation.Copy, p.dir, home); err == nil || !strings.Contains(err.Error(), "copied into itself") {
			t.Errorf("%s: %v", home, err)
		}
	}
}

func TestCommitsOfAnAgentAreTold(t *testing.T) {
	for _, kind := range []isolation.Kind{isolation.Worktree, isolation.Copy} {
		p := newProject(t)
		p.repo()
		s := p.open(kind, p.dir)
		p.write(s.Dir(), "new.txt", "new")
		for _, args := range [][]string{{"add", "-A"}, {"-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "mine"}} {
			cmd := exec.Command("git", args...)
			cmd.Dir = s.Dir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
		}
		if _, c := p.patch(s); c.Added != 1 || len(c.Left) != 1 || !strings.HasPrefix(c.Left[0], "the agent committed, up to ") {
			t.Errorf("%s: %+v", kind, c)
		}
	}
}

func TestASpaceIsFoundAgainAndOneThatIsGoneIsTold(t *testing.T) {
	for _, kind := range []isolation.Kind{isolation.Worktree, isolation.Copy} {
		p := newProject(t)
		p.repo()
		s := p.open(kind, p.dir)
		p.write(s.Dir(), "new.txt", "new")
		again, made, err := isolation.Open(p.Context(), isolation.Options{Kind: kind, Place: p.place, Source: p.dir, Agent: "0-Fix"})
		p.check(err)
		if _, c := p.patch(again); made || c.Added != 1 {
			t.Errorf("%s: made is %v, %+v", kind, made, c)
		}
		p.check(os.RemoveAll(s.Dir()))
		if _, err := s.Patch(p.Context(), &bytes.Buffer{}); !errors.Is(err, isolation.ErrGone) {
			t.Errorf("%s: a patch of what is gone: %v", kind, err)
		}
		if _, _, err := isolation.Open(p.Context(), isolation.Options{Kind: kind, Place: p.place, Source: p.dir, Agent: "0-Fix"}); !errors.Is(err, isolation.ErrGone) {
			t.Errorf("%s: opening what is gone: %v", kind, err)
		}
		p.check(s.Remove(context.Background()))
		if list := p.git("", "worktree", "list"); strings.Count(list, "\n") != 1 {
			t.Errorf("a work tree is left: %s", list)
		}
	}
}
