package bash

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
)

// group is a started command and everything it has started that did not leave its process group.
//
// The number of the group is that of its leader, and it stays taken as long as the leader has not been reaped. So
// the end of the leader is awaited without reaping it, and every signal is sent before that is done: none can reach
// a stranger who got the number later.
type group struct {
	cmd    *exec.Cmd
	pid    int
	exited chan struct{} // closed when the leader has ended; it is not reaped then
}

// signalProcess is kill(2); a test stands in for processes that can not be killed.
var signalProcess = syscall.Kill

// lead starts a command. It does so on a thread that lives as long as the command, because Pdeathsig of prctl(2) is about the
// thread that started a process.
func lead(cmd *exec.Cmd, start func(*exec.Cmd) error) (*group, error) {
	g := &group{cmd: cmd, exited: make(chan struct{})}
	begun := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start(cmd)
		if err == nil {
			g.pid = cmd.Process.Pid
		}
		begun <- err
		if err != nil {
			return
		}
		defer close(g.exited)
		for {
			err := unix.Waitid(unix.P_PID, g.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return g, <-begun
}

// ended reports whether the leader has ended.
func (g *group) ended() bool {
	select {
	case <-g.exited:
		return true
	default:
		return false
	}
}

// stop asks, then tells, then kills, at once when kill is closed, and reports whether the leader has ended.
func (g *group) stop(pt *patience, kill <-chan struct{}) bool {
	for _, rung := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{
		{syscall.SIGINT, pt.interrupt},
		{syscall.SIGTERM, pt.terminate},
		{syscall.SIGKILL, pt.kill},
	} {
		if rung.sig == syscall.SIGKILL {
			kill = nil // there is nothing beyond
		}
		select {
		case <-kill:
			continue
		default:
		}
		g.signal(rung.sig)
		t := time.NewTimer(rung.wait)
		select {
		case <-g.exited:
			t.Stop()
			return true
		case <-kill:
			t.Stop()
		case <-t.C:
		}
	}
	return false
}

func (g *group) signal(sig syscall.Signal) {
	_ = signalProcess(-g.pid, sig) // ESRCH: it has just ended; EPERM: ErrUnkillable will tell
}

// end reaps the leader, ends what it left behind, and returns its status.
//
// The leader goes first because as a zombie it can not be told from a member that lives. From then on the number of
// the group is held by those that are left, and if there are none, the one look that finds nobody comes within
// microseconds, while the kernel goes round all other numbers before it gives one out again.
func (g *group) end(pt *patience, exit *Exit) syscall.WaitStatus {
	_ = g.cmd.Wait() // its error is the status once more
	if !g.vanishes(pt.leaving) {
		exit.Leftover = true
		g.signal(syscall.SIGTERM)
		if !g.vanishes(pt.leftover) {
			g.signal(syscall.SIGKILL)
			g.vanishes(pt.leftover)
		}
	}
	return g.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// vanishes waits until nobody of the group lives, for so long at most. There is nothing to wait on for processes
// that are not our children, so it looks, at growing distances.
func (g *group) vanishes(within time.Duration) bool {
	end := time.Now().Add(within)
	for pause := time.Millisecond; alive(g.pid); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// abandon leaves a leader that does not die to be reaped when it does.
func (g *group) abandon() {
	go func() {
		<-g.exited
		_ = g.cmd.Wait()
	}()
}

// alive reports whether anybody of a process group lives. The dead whom their new parent does not reap (a
// container without an init) are members for the kernel, so when it says yes, it is asked who.
func alive(group int) bool {
	if err := syscall.Kill(-group, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return true
	}
	seen := false
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := process.ReadStat(pid)
		if err != nil {
			continue // it has just ended
		}
		if pid == os.Getpid() {
			seen = true
		}
		if s.Group == group && !s.Dead() {
			return true
		}
	}
	return !seen // a /proc that does not even show us (hidepid, another namespace) proves nothing
}

// killStrays ends everything below this process but the leader, which has ended: what left the group.
func killStrays(leader int, pt *patience) {
	end := time.Now().Add(pt.kill)
	for pause := time.Millisecond; time.Now().Before(end); pause = min(2*pause, 20*time.Millisecond) {
		members, err := process.Descendants(os.Getpid())
		if err != nil || len(members) == 0 {
			return
		}
		for _, m := range members {
			if m.PID != leader {
				_ = m.Signal(syscall.SIGKILL)
			}
		}
		time.Sleep(pause)
	}
}

// reapStrays takes note of those who came to this process and have ended. The leader is reaped.
func reapStrays() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
