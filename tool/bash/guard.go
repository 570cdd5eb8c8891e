package bash

import (
	"crypto/rand"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/cgroup"
)

// guardAfter is how old a command is when it gets a guard: those that are done by then do not pay for one.
const guardAfter = 10 * time.Millisecond

// guardVariable is what the processes of a run have in their environment, with a value of its own for each: it is how those are
// found that have left the process group, the session and their parents when nobody is left to whom they came.
const guardVariable = "AGENTRUN_GUARD"

// Unguarded is environ without the mark of a run, for what is to go on when the process of that run is killed.
func Unguarded(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, guardVariable+"=") })
}

// guard is a process that ends the process group of a command, and who has its mark, when this process is gone, however it
// went. The leader of the group does not need it (Pdeathsig of prctl(2)); those that the leader started do. Who left the group
// and has cleared its environment is found where the command has a control group, and gets away elsewhere.
//
// It is a shell that waits for the end of file of a pipe, which only this process has open for writing. Between our end and
// its signal the number of the group is free only if nobody is left in it, and the kernel goes round all others first.
type guard struct {
	timer *time.Timer
	mark  string       // the variable with its value
	tree  *cgroup.Tree // of the command; nil for none

	mu    sync.Mutex
	ended bool
	cmd   *exec.Cmd // nil before it is due, and where there is no /bin/sh
	hold  *os.File
}

// newGuard makes the guard of a command that is to be started with its mark, in its control group if there is one.
func newGuard() *guard {
	g := &guard{mark: guardVariable + "=" + rand.Text()}
	if tree, err := cgroup.NewRun(); err == nil {
		g.tree = tree
	}
	return g
}

// begin starts a command in the control group, or out of it where that is refused.
func (g *guard) begin(cmd *exec.Cmd) error {
	if g.tree == nil {
		return cmd.Start()
	}
	dir, err := g.tree.Open()
	if err != nil {
		return cmd.Start()
	}
	defer dir.Close()
	into, attr := *cmd, *cmd.SysProcAttr
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	into.SysProcAttr = &attr
	if err = into.Start(); err != nil && cgroup.Refused(err) {
		return cmd.Start()
	}
	*cmd = into
	return err
}

// kill ends everything in the control group at once, also who left the process group and the session.
func (g *guard) kill() {
	if g.tree != nil {
		g.tree.Kill()
	}
}

// watch has the guard begin, now that the command runs.
func (g *guard) watch(group int) {
	g.timer = time.AfterFunc(guardAfter, func() {
		g.start(group)
		if g.tree != nil {
			cgroup.Sweep() // with mu free: it may take seconds, and the end of the command does not wait for it
		}
	})
}

// guarding is what the guard runs: its arguments are the group, the mark and the directory of the control group, if any. The shell's read leaves out the NUL bytes between
// variables.
const guarding = `read -r _ && exit
[ -z "$3" ] || echo 1 >"$3/cgroup.kill"
kill -KILL "-$1"
found=1 looks=0
while [ "$found" ] && [ $((looks += 1)) -le 1000 ]; do
	found=
	for dir in /proc/[0-9]*; do
		while IFS= read -r line || [ "$line" ]; do
			case $line in *"$2"*) kill -KILL "${dir#/proc/}" && found=1; break ;; esac
		done <"$dir/environ"
	done
done 2>/dev/null
[ -z "$3" ] || rmdir "$3"`

func (g *guard) start(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	defer r.Close()
	tree := ""
	if g.tree != nil {
		tree = g.tree.Path()
	}
	cmd := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"agentrun-guard", "-c", guarding, "agentrun-guard", strconv.Itoa(group), g.mark, tree},
		Dir: "/", Env: []string{}, Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if cmd.Start() != nil {
		w.Close()
		return
	}
	g.cmd, g.hold = cmd, w
}

// end takes the guard away. Who is in the control group is let go of.
func (g *guard) end() {
	if g.tree != nil {
		defer g.tree.Release() // when the guard is gone
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended = true; g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait() // an error: somebody who reaps all children has it by now
	g.hold.Close()   // not before, or it would do what it is for
	g.cmd = nil
}
