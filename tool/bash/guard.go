package bash

import (
	"crypto/rand"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// guardAfter is how old a command is when it gets a guard: those that are done by then do not pay for one.
const guardAfter = 10 * time.Millisecond

// guardVariable is what the processes of a run have in their environment, with a value of its own for each: it is how those are
// found that have left the process group, the session and their parents when nobody is left to whom they came.
const guardVariable = "AGENTRUN_GUARD"

// guard is a process that ends the process group of a command, and who has its mark, when this process is gone, however it
// went. The leader of the group does not need it (Pdeathsig of prctl(2)); those that the leader started do. Who left the group
// and has cleared its environment gets away.
//
// It is a shell that waits for the end of file of a pipe, which only this process has open for writing. Between our end and
// its signal the number of the group is free only if nobody is left in it, and the kernel goes round all others first.
type guard struct {
	timer *time.Timer
	mark  string // the variable with its value

	mu    sync.Mutex
	ended bool
	cmd   *exec.Cmd // nil before it is due, and where there is no /bin/sh
	hold  *os.File
}

// newGuard makes the guard of a command that is to be started with its mark.
func newGuard() *guard { return &guard{mark: guardVariable + "=" + rand.Text()} }

// watch has the guard begin, now that the command runs.
func (g *guard) watch(group int) {
	g.timer = time.AfterFunc(guardAfter, func() { g.start(group) })
}

// guarding is what the guard runs: its arguments are the group and the mark. The shell's read leaves out the NUL bytes between
// variables.
const guarding = `read -r _ && exit
kill -KILL "-$1"
found=1 looks=0
while [ "$found" ] && [ $((looks += 1)) -le 1000 ]; do
	found=
	for dir in /proc/[0-9]*; do
		while IFS= read -r line || [ "$line" ]; do
			case $line in *"$2"*) kill -KILL "${dir#/proc/}" && found=1; break ;; esac
		done <"$dir/environ"
	done
done 2>/dev/null`

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
	cmd := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"agentrun-guard", "-c", guarding, "agentrun-guard", strconv.Itoa(group), g.mark},
		Dir: "/", Env: []string{}, Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if cmd.Start() != nil {
		w.Close()
		return
	}
	g.cmd, g.hold = cmd, w
}

// end takes the guard away.
func (g *guard) end() {
	g.timer.Stop()
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
