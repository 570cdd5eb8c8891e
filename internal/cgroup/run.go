package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runPrefix begins the name of the group of a run: agentrun-run-<pid>-<start of the process>-<number>.
const runPrefix = "agentrun-run-"

// NewRun makes an empty group as NewTree does, of a command that may leave something running when it has ended: see Release.
// It does not Sweep, which whoever makes one does when there is time.
func NewRun() (*Tree, error) { return newTreeNamed(runPrefix) }

// Release lets go of those who are in the group, which go on in the one above, and removes it. One with groups below it, of
// programs that go on, stays, and is removed by who comes next.
func (t *Tree) Release() {
	if syscall.Rmdir(t.dir) == nil {
		return
	}
	for range 1000 { // somebody may fork meanwhile, though not for ever
		pids := members(t.dir)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = join(filepath.Dir(t.dir), pid)
		}
	}
	_ = syscall.Rmdir(t.dir)
}

// LeaveRun takes this process out of the group of a run, and of those above: what it does is to go on when that is gone.
func LeaveRun() error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // there are none
	}
	mounts, err := readMounts()
	if err != nil {
		return nil
	}
	dir, inside := unified(mounts, own), false
	for at := dir; at != "/" && at != "." && at != ""; at = filepath.Dir(at) {
		if strings.HasPrefix(filepath.Base(at), runPrefix) {
			dir, inside = filepath.Dir(at), true
		}
	}
	if !inside {
		return nil
	}
	if err := join(dir, os.Getpid()); err != nil {
		return fmt.Errorf("leaving the control group of a run: %w", err)
	}
	return nil
}

// join puts a process into a group.
func join(dir string, pid int) error {
	fd, err := unix.Open(filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(strconv.Itoa(pid)))
	return err
}

// sweepRuns removes the groups of runs in dir whose makers are gone. Who is still in one was not let go of, and is killed.
func sweepRuns(dir string) {
	for _, name := range orphans(dir, runPrefix) {
		if len(members(name)) > 0 {
			remove(name, killTree)
			continue
		}
		sweepRuns(name)
		sweepTrees(name)
		_ = syscall.Rmdir(name)
	}
}
