package bash

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

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
	var pids [3]int // in the background, out of the session and away from its parent, the leader
	if _, err := fmt.Fscan(out, &pids[0], &pids[1], &pids[2]); err != nil {
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
	for _, pid := range pids {
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
