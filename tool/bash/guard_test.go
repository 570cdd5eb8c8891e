package bash

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/internal/cgroup"
	"github.com/agentrun/agentrun/internal/process"
)

func TestACommandEndsWithWhoRunsIt(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("nothing guards commands here:", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=owner")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [4]int // in the background; out of the session and away from its parent; that with nothing of its environment; the leader
	if _, err := fmt.Fscan(out, &pids[0], &pids[1], &pids[2], &pids[3]); err != nil {
		t.Fatal(err)
	}
	for !guarded(t, cmd.Process.Pid) {
		if t.Context().Err() != nil {
			t.Fatal("nothing guards the command")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	bare := canMakeGroups(t)
	for _, pid := range pids {
		if environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ"); !bare && err == nil && !bytes.Contains(environ, []byte(guardVariable)) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // nothing finds it here
		}
		for {
			if s, err := process.ReadStat(pid); err != nil || s.Dead() {
				break
			}
			if t.Context().Err() != nil {
				t.Fatalf("process %d lives", pid)
			}
		}
	}
}

// guarded reports whether a child of a process has the name of a guard, as execve(2) set it.
func guarded(t *testing.T, parent int) bool {
	t.Helper()
	members, err := process.Descendants(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(m.PID) + "/cmdline"); err == nil && bytes.HasPrefix(b, []byte("agentrun-guard\x00")) {
			return true
		}
	}
	return false
}

func canMakeGroups(t *testing.T) bool {
	tree, err := cgroup.NewRun()
	if err != nil {
		t.Log("who clears its environment gets away:", err)
		return false
	}
	tree.Release()
	return true
}

func TestWhatACommandStartsWithSetsidStaysWhenItHasEnded(t *testing.T) {
	var out bytes.Buffer
	p := &Process{Argv: []string{"sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"}, Stdout: &out}
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if s, err := process.ReadStat(pid); err != nil || s.Dead() {
		t.Errorf("it has ended with the command: %v", err)
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || bytes.Contains(groups, []byte("agentrun-run-")) {
		t.Errorf("it is in the control group of the command still: %v\n%s", err, groups)
	}
}
