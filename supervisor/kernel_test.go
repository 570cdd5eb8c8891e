package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
	"golang.org/x/sys/unix"
)

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python here:", err)
	}
}

func TestANamedKernelGoesOnForEveryClient(t *testing.T) {
	needPython(t)
	c, _ := newClient(t)
	run := func(code string, change ...func(*python.Cell)) (bash.Exit, python.Outcome, string) {
		t.Helper()
		var out bytes.Buffer
		cell := &python.Cell{Script: bash.Script{Text: code, Stdout: &out, Stderr: &out}}
		cell.Host = func(_ context.Context, op string, args json.RawMessage) (any, error) {
			return map[string]string{"text": op + string(args)}, nil
		}
		for _, f := range change {
			f(cell)
		}
		exit, outcome, err := (&Kernel{Client: c, Name: "a", Cwd: "/"}).RunCell(t.Context(), cell)
		if err != nil {
			t.Fatalf("%s: %+v, %v", code, exit, err)
		}
		return exit, outcome, out.String()
	}
	run("a = 1")
	if exit, outcome, out := run("a + 1"); exit.Code != 0 || out != "2\n" || outcome.Result == nil || *outcome.Result != "2" {
		t.Errorf("%+v, %+v, %q", exit, outcome, out)
	}
	if exit, _, _ := run("1/0"); exit.Code != 1 {
		t.Errorf("%+v", exit)
	}
	if _, outcome, _ := run("display('# a', mime='text/markdown'); display('{}', mime='application/json')"); len(outcome.Displays) != 2 || string(outcome.Displays[1].Data) != "{}" {
		t.Errorf("%+v", outcome)
	}
	if _, _, out := run("print(agentrun.read('artifact://0'))"); out != "read{\"url\": \"artifact://0\"}\n" && out != "read{\"url\":\"artifact://0\"}\n" {
		t.Errorf("%q", out)
	}
	if _, _, out := run("print('x' * 1000000)"); len(out) != 1000001 {
		t.Errorf("%d bytes", len(out))
	}
	// A timeout keeps the state, also one that is the client's own.
	if exit, _, _ := run("import time; time.sleep(1000)", func(c *python.Cell) { c.Timeout = 200 * time.Millisecond }); !exit.TimedOut || exit.Code != 124 {
		t.Errorf("%+v", exit)
	}
	limit := make(chan struct{})
	close(limit)
	if exit, _, _ := run("time.sleep(1000)", func(c *python.Cell) { c.Limit = limit }); !exit.OutputLimit {
		t.Errorf("%+v", exit)
	}
	if _, outcome, _ := run("a"); *outcome.Result != "1" {
		t.Errorf("%+v", outcome)
	}
	// Its death is told.
	if exit, outcome, _ := run("import os; os.kill(os.getpid(), 9)"); exit.Signal != "SIGKILL" || outcome.Lost == nil {
		t.Errorf("%+v, %+v", exit, outcome)
	}
	if exit, _, _ := run("'a' in globals()"); len(exit.Notes) != 1 || !strings.Contains(exit.Notes[0], "new kernel") {
		t.Errorf("%+v", exit)
	}
}

func TestACellWhoseClientGoesAwayIsInterrupted(t *testing.T) {
	needPython(t)
	c, _ := newClient(t)
	k := &Kernel{Client: c, Name: "a", Cwd: "/"}
	run := func(ctx context.Context, code string) (bash.Exit, python.Outcome, error) {
		return k.RunCell(ctx, &python.Cell{Script: bash.Script{Text: code}})
	}
	if _, _, err := run(t.Context(), "a = 1"); err != nil {
		t.Fatal(err)
	}
	got, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := got.sendJSON(frameRequest, request{Version: version, Op: "cell", Kernel: "a", Script: "print('on'); import time; time.sleep(1000)"}); err != nil {
		t.Fatal(err)
	}
	for kind := byte(0); kind != frameStdout; {
		if kind, _, err = got.receive(); err != nil {
			t.Fatal(err)
		}
	}
	got.Close()
	for { // one that comes before the interrupt has a kernel of its own
		exit, outcome, err := run(t.Context(), "a if 'a' in globals() else None")
		if err != nil {
			t.Fatal(err)
		}
		if len(exit.Notes) == 0 {
			if outcome.Result == nil || *outcome.Result != "1" {
				t.Errorf("%+v", outcome)
			}
			return
		}
	}
}

func TestNothingIsLeftOfAKernelWhoseSupervisorIsKilled(t *testing.T) {
	needPython(t)
	c, _ := newClient(t)
	var out bytes.Buffer
	k := &Kernel{Client: c, Name: "a", Cwd: "/"}
	code := "import os, subprocess; p = subprocess.Popen(['setsid', 'sleep', '1000']); print(os.getpid(), p.pid, os.getppid())"
	if _, _, err := k.RunCell(t.Context(), &python.Cell{Script: bash.Script{Text: code, Stdout: &out}}); err != nil {
		t.Fatal(err)
	}
	pids := numbers(t, out.String())
	owner := parent(t, pids[2])
	ends := endsOf(t, pids)
	if err := syscall.Kill(owner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ends.await(t)
}

func numbers(t *testing.T, line string) (list []int) {
	t.Helper()
	for word := range strings.FieldsSeq(line) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	s, err := process.ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return s.Parent
}

// processEnds are descriptors of processes that live.
type processEnds map[int]int

// endsOf holds on to processes, so that another one with the number of one that is gone is not taken for it.
func endsOf(t *testing.T, pids []int) processEnds {
	t.Helper()
	ends := processEnds{}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		ends[pid] = fd
	}
	return ends
}

// await waits until all of them have ended, and is told so by the kernel.
func (p processEnds) await(t *testing.T) {
	t.Helper()
	for pid, fd := range p {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20_000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				t.Fatalf("process %d is left (%v)", pid, err)
			}
			break
		}
	}
}
