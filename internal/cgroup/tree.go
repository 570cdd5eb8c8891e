// Package cgroup puts what a command starts into a control group of its own, where this process may make some: nobody gets
// out of it by a new session or a new parent, and all of it is killed at once, however fast it forks.
//
// A [Tree] is a directory below the group of this process in cgroup v2, without controllers; cgroups(7) has its files. Its
// name says who made it, so that [Sweep] kills and removes those whose makers are gone. Where none can be made (cgroup v2
// is not mounted, or not writable, or the kernel is older than 5.14) that is an error, and callers do without.
//
// A [Group] bounds and counts what a command takes, with controllers.
//
// Everything may be called concurrently.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
)

// ErrNone is returned where no group can be made.
var ErrNone = errors.New("no control group can be made here")

// treePrefix begins the name of a group: agentrun-tree-<pid>-<start of the process>-<number>.
const treePrefix = "agentrun-tree-"

// untilEmpty is how long to wait for those who were killed.
const untilEmpty = 5 * time.Second

// Tree is the group of one command.
type Tree struct{ dir string }

var trees atomic.Int64

// treeHome is the group of this process in cgroup v2, "" where nothing can be made below it.
var treeHome = sync.OnceValue(func() string {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	mounts, err := readMounts()
	if err != nil {
		return ""
	}
	dir := unified(mounts, own)
	if dir == "" || unix.Access(dir, unix.W_OK|unix.X_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return ""
	}
	return dir
})

// readMounts reads mountinfo in few pieces: the kernel makes it anew for each, and it is many lines long.
func readMounts() ([]byte, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	b.Grow(16 << 10)
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}

// Sweep removes the groups whose makers are gone, the first time that it is called.
var Sweep = sync.OnceFunc(func() {
	if home := treeHome(); home != "" {
		sweepTrees(home)
		sweepRuns(home)
	}
})

// unified finds the directory of this process's group in cgroup v2, from mountinfo and cgroup of /proc/self.
func unified(mounts, own []byte) string {
	group := ""
	for line := range bytes.Lines(own) {
		if rest, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			group = strings.TrimSuffix(string(rest), "\n")
		}
	}
	if group == "" {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(mounts))
	for lines.Scan() {
		// 36 35 98:0 ROOT POINT options - cgroup2 source options
		head, tail, ok := bytes.Cut(lines.Bytes(), []byte(" - "))
		if !ok || !bytes.HasPrefix(tail, []byte("cgroup2 ")) {
			continue
		}
		f := strings.Fields(string(head))
		if len(f) < 5 {
			continue
		}
		rel, err := filepath.Rel(f[3], group)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return filepath.Join(f[4], rel)
		}
	}
	return ""
}

// NewTree makes an empty group.
func NewTree() (*Tree, error) {
	Sweep()
	return newTreeNamed(treePrefix)
}

func newTreeNamed(prefix string) (*Tree, error) {
	home := treeHome()
	if home == "" {
		return nil, ErrNone
	}
	me := process.Self()
	t := &Tree{filepath.Join(home, fmt.Sprintf("%s%d-%d-%d", prefix, me.PID, me.PIDStart, trees.Add(1)))}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if unix.Access(filepath.Join(t.dir, "cgroup.kill"), unix.W_OK) != nil {
		_ = syscall.Rmdir(t.dir)
		return nil, fmt.Errorf("%w: the kernel has no cgroup.kill", ErrNone)
	}
	return t, nil
}

// OpenTree is the group in a directory that Path returned, for another process.
func OpenTree(path string) *Tree { return &Tree{path} }

// Path is the directory of the group.
func (t *Tree) Path() string { return t.dir }

// Refused reports whether an error of starting a process may be about its group: clone(2) has these of CLONE_INTO_CGROUP.
func Refused(err error) bool {
	for _, n := range []syscall.Errno{
		syscall.EACCES, syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.ENODEV, syscall.EPERM, syscall.E2BIG,
	} {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}

// Open opens the directory, for SysProcAttr.CgroupFD.
func (t *Tree) Open() (*os.File, error) { return os.Open(t.dir) }

// Kill sends SIGKILL to everything in the group, at once. It does not wait.
func (t *Tree) Kill() { killTree(t.dir) }

// killTree does so for groups that were made below it as well, by what is in it.
func killTree(dir string) { _ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) }

// Remove kills what is in the group and removes it. It waits for a few seconds at most for those who do not die.
func (t *Tree) Remove() { remove(t.dir, killTree) }

// sweepTrees removes the groups in dir whose makers are gone.
func sweepTrees(dir string) {
	for _, name := range orphans(dir, treePrefix) {
		remove(name, killTree)
	}
}

// orphans are the groups in dir, of a kind, whose makers are gone.
func orphans(dir, prefix string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	return slices.DeleteFunc(names, func(name string) bool {
		id := process.Self()
		var n int
		_, err := fmt.Sscanf(filepath.Base(name), prefix+"%d-%d-%d", &id.PID, &id.PIDStart, &n)
		return err != nil || id.Life() != process.Gone
	})
}
