package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// hierarchy makes directories that look like those of cgroup v2, and the mountinfo line of their mount.
func hierarchy(t *testing.T, controllers map[string]string) (point, mounts string) {
	t.Helper()
	point = t.TempDir()
	for dir, handed := range controllers {
		dir = filepath.Join(point, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/cgroup.subtree_control", []byte(handed), 0o644), os.WriteFile(dir+"/cgroup.procs", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return point, fmt.Sprintf("36 25 0:31 / %s rw,relatime shared:9 - cgroup2 cgroup2 rw\n", point)
}

func TestGroupsAreMadeWhereControllersAreHandedDown(t *testing.T) {
	for name, c := range map[string]struct {
		tree map[string]string
		own  string
		want string // below the mount; "none"
	}{
		"beside the group of this process": {map[string]string{"": "cpu", "app": "memory pids", "app/shell": ""}, "/app/shell", "app"},
		"below it, where that is allowed":  {map[string]string{"": "cpu memory pids"}, "/", ""},
		"nowhere without both":             {map[string]string{"": "cpu", "app": "memory", "app/shell": ""}, "/app/shell", "none"},
		"nowhere outside of the mount":     {map[string]string{"": "memory pids"}, "/../other", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			point, mounts := hierarchy(t, c.tree)
			got := find([]byte(mounts), []byte("0::"+c.own+"\n"))
			if c.want == "none" {
				if got.Version != 0 || got.Memory != "" || got.Why == "" {
					t.Errorf("%+v", got)
				}
				return
			}
			if want := filepath.Join(point, c.want); got.Version != 2 || got.Memory != want || got.PIDs != want || got.CPU != want {
				t.Errorf("%+v, and not %s", got, want)
			}
		})
	}
}

func TestTheOldHierarchiesAreFoundByController(t *testing.T) {
	memory, pids := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(memory+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := fmt.Sprintf("1 2 0:1 /a %s rw - cgroup cgroup rw,memory\n3 4 0:2 / %s rw - cgroup cgroup rw,pids\n", memory+"/a", pids)
	got := find([]byte(mounts), []byte("4:memory:/a/b\n8:pids:/\n2:cpu,cpuacct:/x\n"))
	if got.Version != 1 || got.Memory != memory+"/a/b" || got.PIDs != pids || got.CPU != "" || got.Why != "no writable control group with cpuacct" {
		t.Errorf("%+v", got)
	}
}

func TestAGroupBoundsCountsAndGoes(t *testing.T) {
	p := Find()
	if p.PIDs == "" {
		t.Skip(p.Why)
	}
	g, err := NewGroup(p, Limits{Processes: 5})
	if err != nil {
		t.Skip(err)
	}
	defer g.Remove()
	cmd := exec.Command("/bin/bash", append([]string{"-c", `for f; do echo 0 >"$f"; done; for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done 2>/dev/null; wait`, "bash"}, g.Entrances()...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for g.Counts().Forks == 0 {
		if t.Context().Err() != nil {
			t.Fatal("nothing was refused")
		}
	}
	if n := len(g.Members()); n > 5 {
		t.Errorf("there are %d processes", n)
	}
	g.Kill()
	_ = cmd.Wait()
	if n := len(g.Members()); n > 0 {
		t.Errorf("%d processes are left", n)
	}
	dirs := g.Entrances()
	g.Remove()
	for _, file := range dirs {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", file, err)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("36 25 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), []byte("0::/user.slice\n"))
	f.Add([]byte("1 2 0:1 /a /m rw - cgroup cgroup rw,memory\n"), []byte("4:memory:/a/b\n"))
	f.Fuzz(func(t *testing.T, mounts, own []byte) {
		for name, dir := range ownDirs(mounts, own) {
			if name == "" && dir == "" {
				t.Error("a directory without a name")
			}
		}
	})
}
