package bash

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// guardAfter is how old a command is when it gets a guard: those that are done by then do not pay for one.
const guardAfter = 10 * time.Millisecond

// guard is a process that ends the process group of a command when this process is gone, however it went. The leader of the
// group does not need it (Pdeathsig of prctl(2)); those that the leader started do.
//
// It is a shell that waits for the end of file of a pipe, which only this process has open for writing. Between our end and
// its signal the number of the group is free only if nobody is left in it, and the kernel goes round all others first.
type guard struct {
	timer *time.Timer

	mu    sync.Mutex
	ended bool
	cmd   *exec.Cmd // nil before it is due, and where there is no /bin/sh
	hold  *os.File
}

func newGuard(group int) *guard {
	g := &guard{}
	g.timer = time.AfterFunc(guardAfter, func() { g.start(group) })
	return g
}

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
		Path: "/bin/sh", Args: []string{"agentrun-guard", "-c", `read -r _ || kill -KILL "-$1"`, "agentrun-guard", strconv.Itoa(group)},
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
