package shim

import (
	"syscall"

	"github.com/agentrun/agentrun/internal/cgroup"
)

// tree is the control group of what a shim owns; nil where there is none, and then the walk through /proc is all.
type tree struct{ *cgroup.Tree }

// noTrees is set by tests, which do without.
var noTrees bool

func newTree() *tree {
	if noTrees {
		return nil
	}
	t, err := cgroup.NewTree()
	if err != nil {
		return nil
	}
	return &tree{t}
}

// openTree is the one that the owner made.
func openTree(dir string) *tree {
	if dir == "" {
		return nil
	}
	return &tree{cgroup.OpenTree(dir)}
}

// start starts a process in the group, or out of it where that is refused.
func (t *tree) start(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if t != nil {
		if dir, err := t.Open(); err == nil {
			defer dir.Close()
			into := *attr.Sys
			into.UseCgroupFD, into.CgroupFD = true, int(dir.Fd())
			inside := *attr
			inside.Sys = &into
			if pid, err := syscall.ForkExec(path, argv, &inside); err == nil || !cgroup.Refused(err) {
				return pid, err
			}
		}
	}
	return syscall.ForkExec(path, argv, attr)
}

func (t *tree) kill() {
	if t != nil {
		t.Kill()
	}
}

func (t *tree) remove() {
	if t != nil {
		t.Remove()
	}
}
