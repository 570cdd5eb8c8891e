package isolation_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/task/isolation"
)

// stride is how many operations are left out between two that fail: none with AGENTRUN_TEST_ROUNDS.
func stride() int {
	if os.Getenv("AGENTRUN_TEST_ROUNDS") != "" {
		return 1
	}
	return 9
}

// small changes, makes and deletes a file, each once, and makes a directory.
func (p *project) small(dir string) {
	p.Helper()
	p.write(dir, "a.txt", "changed\n")
	p.check(os.Remove(filepath.Join(dir, "sub", "b.bin")))
	p.write(dir, "new/x", "new\n")
	p.check(os.Remove(filepath.Join(dir, "link")))
	p.check(os.Symlink("new/x", filepath.Join(dir, "link")))
}

// withoutTemps is a tree without what a crash may leave beside files.
func withoutTemps(dir string) map[string]string {
	all := tree(dir)
	for name := range all {
		if strings.HasPrefix(filepath.Base(name), ".tmp-agentrun-") {
			delete(all, name)
		}
	}
	return all
}

func TestAMergeOnADiskThatFailsChangesEverythingOrNothing(t *testing.T) {
	for _, disk := range []struct {
		name  string
		set   func(*faultfs.FS, int)
		crash bool
	}{
		{"fails once", func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) }, false},
		{"is full from then on", (*faultfs.FS).FullAt, false},
		{"is gone", (*faultfs.FS).CrashAt, true},
	} {
		t.Run(disk.name, func(t *testing.T) {
			p := newProject(t)
			fill := func() {
				p.check(os.RemoveAll(p.dir))
				p.check(os.Mkdir(p.dir, 0o755))
				p.write(p.dir, "a.txt", "a\n")
				p.write(p.dir, "sub/b.bin", "\x00")
				p.check(os.Symlink("a.txt", filepath.Join(p.dir, "link")))
			}
			fill()
			s := p.open(isolation.Copy, p.dir)
			p.small(s.Dir())
			patch, _ := p.patch(s)
			before, after := tree(p.dir), tree(s.Dir())
			fired := 0
			for n := 0; ; n += stride() {
				fill()
				fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
				disk.set(fsys, n)
				m, err := p.merge(patch, func(o *isolation.MergeOptions) { o.FS = fsys })
				if !fsys.Fired() {
					break
				}
				fired++
				got := withoutTemps(p.dir)
				switch {
				case disk.crash:
					// What a crash has cut off is completed by the same merge.
				case err == nil && !(m.Done && maps.Equal(got, after)):
					t.Errorf("operation %d failed, and it is said to be merged: %q, %+v", n, got, m)
				case err != nil && !maps.Equal(got, before) && !maps.Equal(got, after):
					t.Errorf("operation %d failed (%v), and it is %q", n, err, got)
				}
				m, err = p.merge(patch)
				if err != nil || !m.Done || !maps.Equal(tree(p.dir), after) {
					t.Errorf("operation %d failed, and merged again it is %q, %+v, %v", n, tree(p.dir), m, err)
				}
			}
			if fired < 5 {
				t.Errorf("only %d operations failed", fired)
			}
		})
	}
}

func TestASpaceOnADiskThatFailsIsMadeAnew(t *testing.T) {
	p := newProject(t)
	p.repo()
	want := tree(p.dir)
	for n := 0; ; n += 2 * stride() {
		fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
		fsys.CrashAt(n)
		_, _, err := isolation.Open(p.Context(), isolation.Options{Kind: isolation.Worktree, Place: p.place, Source: p.dir, Agent: "0-Fix", FS: fsys})
		if !fsys.Fired() {
			break
		}
		if err == nil {
			t.Errorf("operation %d failed, and nobody was told", n)
		}
		s := p.open(isolation.Worktree, p.dir)
		if got := tree(s.Dir()); !maps.Equal(got, want) {
			t.Errorf("operation %d failed, and then it is %q", n, got)
		}
		p.check(s.Remove(p.Context()))
		if list := p.git("", "worktree", "list"); strings.Count(list, "\n") != 1 {
			t.Errorf("operation %d failed, and a work tree is left: %s", n, list)
		}
	}
}

// meanwhile does something when a directory of a name is made.
type meanwhile struct {
	durable.FS
	name string
	do   func()
}

func (m meanwhile) Mkdir(dir string, perm os.FileMode) error {
	if filepath.Base(dir) == m.name {
		m.do()
	}
	return m.FS.Mkdir(dir, perm)
}

func TestACopyOfFilesThatOthersRemoveMeanwhileIsOfTheRest(t *testing.T) {
	p := newProject(t)
	p.write(p.dir, "a/file", "a\n")
	p.write(p.dir, "b/file", "b\n")
	p.write(p.dir, "c.txt", "c\n")
	p.check(os.Symlink("c.txt", filepath.Join(p.dir, "d")))
	p.write(p.dir, "e.txt", "e\n")
	fsys := meanwhile{durable.OS, "a", func() {
		for _, name := range []string{"b", "c.txt", "d"} {
			p.check(os.RemoveAll(filepath.Join(p.dir, name)))
		}
	}}
	s, _, err := isolation.Open(p.Context(), isolation.Options{Kind: isolation.Copy, Place: p.place, Source: p.dir, Agent: "0-Fix", FS: fsys})
	p.check(err)
	if got, want := tree(s.Dir()), tree(p.dir); !maps.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	if left := s.Left(); len(left) > 0 {
		t.Errorf("it is said to be without %q", left)
	}
}
