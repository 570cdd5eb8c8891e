package bash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
)

// brief is patience enough for a test: the order of events stays, the waits shrink.
var brief = patience{
	interrupt: 100 * time.Millisecond,
	terminate: 100 * time.Millisecond,
	kill:      10 * time.Second,
	quiet:     100 * time.Millisecond,
	drain:     300 * time.Millisecond,
	leaving:   20 * time.Millisecond,
	leftover:  2 * time.Second,
}

func sh(script string) *Process { return &Process{Argv: []string{"sh", "-c", script}} }

// launch runs p with one buffer for both streams.
func launch(t *testing.T, ctx context.Context, p *Process) (Exit, string) {
	t.Helper()
	var out bytes.Buffer
	p.Stdout, p.Stderr = &out, &out
	p.patience = &brief
	exit, err := p.Run(ctx)
	if err != nil {
		t.Fatalf("Run(%q): %v", p.Argv, err)
	}
	return exit, out.String()
}

func TestTheExitSaysHowTheCommandEnded(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	noInterpreter := filepath.Join(dir, "no-interpreter")
	garbage := filepath.Join(dir, "garbage")
	write(t, plain, "#!/bin/sh\necho never\n", 0o600)
	write(t, noInterpreter, "#!/no/such/interpreter\n", 0o700)
	write(t, garbage, "\x00\x01\x02 no program", 0o700)

	tests := []struct {
		name   string
		argv   []string
		code   int
		signal string
		start  string // in the sentence of Exit.Start
	}{
		{"success is 0", []string{"true"}, 0, "", ""},
		{"the command's own code", []string{"sh", "-c", "exit 3"}, 3, "", ""},
		{"the highest code", []string{"sh", "-c", "exit 255"}, 255, "", ""},
		{"a code above 128 is no signal", []string{"sh", "-c", "exit 137"}, 137, "", ""},
		{"killed by SIGKILL", []string{"sh", "-c", "kill -KILL $$"}, 137, "SIGKILL", ""},
		{"killed by SIGTERM", []string{"sh", "-c", "kill -TERM $$"}, 143, "SIGTERM", ""},
		{"killed by SIGSEGV", []string{"sh", "-c", "kill -SEGV $$"}, 139, "SIGSEGV", ""},
		{"killed by a real-time signal", []string{"sh", "-c", "kill -40 $$"}, 168, "SIG40", ""},
		{"an unknown name", []string{"agentrun-no-such-command"}, 127, "", "command not found"},
		{"an unknown path", []string{filepath.Join(dir, "absent")}, 127, "", "no such file"},
		{"a path below a file", []string{filepath.Join(plain, "x")}, 127, "", "no such file"},
		{"a file without x", []string{plain}, 126, "", "not executable"},
		{"a directory", []string{dir}, 126, "", "not executable"},
		{"a script whose interpreter is missing", []string{noInterpreter}, 126, "", "interpreter"},
		{"a file that is no program", []string{garbage}, 126, "", "not a program"},
		{"arguments beyond what exec takes", []string{"true", strings.Repeat("x", 1<<20)}, 126, "", "too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			exit, out := launch(t, t.Context(), &Process{Argv: tt.argv})
			if exit.Code != tt.code || exit.Signal != tt.signal || exit.TimedOut || exit.Cancelled {
				t.Errorf("exit = %+v, want code %d, signal %q", exit, tt.code, tt.signal)
			}
			if out != "" {
				t.Errorf("output %q of a command that writes nothing", out)
			}
			switch {
			case tt.start == "" && exit.Start != nil:
				t.Errorf("not started: %v", exit.Start)
			case tt.start != "" && (exit.Start == nil || !strings.Contains(exit.Start.Error(), tt.start)):
				t.Errorf("Start = %v, want a sentence with %q", exit.Start, tt.start)
			}
		})
	}
}

func TestACallerMistakeStartsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "", 0o600)
	marker := filepath.Join(t.TempDir(), "ran")
	touch := []string{"touch", marker}
	for name, p := range map[string]*Process{
		"no argument at all":         {},
		"an empty name":              {Argv: []string{""}},
		"a NUL in an argument":       {Argv: []string{"touch", marker, "\x00"}},
		"a directory that is absent": {Argv: touch, Dir: filepath.Join(file, "..", "absent")},
		"a directory that is a file": {Argv: touch, Dir: file},
		"a variable without =":       {Argv: touch, Env: []string{"X"}},
		"a variable without name":    {Argv: touch, Env: []string{"=1"}},
		"a variable with NUL":        {Argv: touch, Env: []string{"X=\x00"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.Run(t.Context()); err == nil {
				t.Error("no error")
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Process{Argv: touch}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run with a cancelled context = %v", err)
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("something was run")
	}
}

func TestOneWriterSeesBothStreamsInTheOrderOfWriting(t *testing.T) {
	var script, want strings.Builder
	for i := range 500 {
		fmt.Fprintf(&script, "echo o%d\necho e%d >&2\n", i, i)
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	if _, out := launch(t, t.Context(), sh(script.String())); out != want.String() {
		t.Errorf("streams out of order: %.80q...", out)
	}
}

func TestTwoWritersGetAStreamEach(t *testing.T) {
	var out, errs bytes.Buffer
	p := sh("echo out; echo err >&2; echo out2")
	p.Stdout, p.Stderr = &out, &errs
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out.String() != "out\nout2\n" || errs.String() != "err\n" {
		t.Errorf("stdout %q, stderr %q", &out, &errs)
	}
}

func TestTheCommandSeesWhatItIsGiven(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(bin, "greet"), "#!/bin/sh\necho hello from $0\n", 0o700)
	read, err := os.Open(filepath.Join(bin, "greet"))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()

	tests := []struct {
		name string
		p    Process
		want string
	}{
		{"stdin is empty unless given", Process{Argv: []string{"cat"}}, ""},
		{"stdin as given", Process{Argv: []string{"sed", "-n", "1p"}, Stdin: read}, "#!/bin/sh\n"},
		{"the working directory", Process{Argv: []string{"pwd", "-P"}, Dir: dir}, dir + "\n"},
		{"PWD says the same", Process{Argv: []string{"printenv", "PWD"}, Dir: dir}, dir + "\n"},
		{"the last of two values wins", Process{Argv: []string{"printenv", "X"}, Env: []string{"X=1", "X=2 3"}}, "2 3\n"},
		{"an addition goes over what there is", Process{Argv: []string{"/bin/sh", "-c", "echo $PATH"}, Env: []string{"PATH=" + bin}}, bin + "\n"},
		{"its own PATH finds the program", Process{Argv: []string{"greet"}, Env: []string{"PATH=/no/where:" + bin + ":/usr/bin:/bin"}}, "hello from " + bin + "/greet\n"},
		{"a relative PATH starts at its directory", Process{Argv: []string{"greet"}, Dir: dir, Env: []string{"PATH=bin:/usr/bin:/bin"}}, "hello from " + bin + "/greet\n"},
		{"a relative name starts at its directory", Process{Argv: []string{"bin/greet"}, Dir: dir}, "hello from " + bin + "/greet\n"},
		{"no shell is involved", Process{Argv: []string{"echo", "$HOME", "*", "a;b"}}, "$HOME * a;b\n"},
		{"no terminal to ask on", Process{Argv: []string{"sh", "-c", "(: </dev/tty) 2>/dev/null || echo none"}}, "none\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if exit, out := launch(t, t.Context(), &tt.p); out != tt.want || exit.Code != 0 {
				t.Errorf("output %q, want %q (exit %+v)", out, tt.want, exit)
			}
		})
	}
}

// cue calls then once, when the command has written word.
type cue struct {
	mu   sync.Mutex
	seen bytes.Buffer
	word string
	then func()
}

func (c *cue) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Write(b)
	if c.then != nil && strings.Contains(c.seen.String(), c.word) {
		c.then()
		c.then = nil
	}
	return len(b), nil
}

func TestStoppingAsksThenTellsThenKills(t *testing.T) {
	// Who is expected to end at a step has all the time for it; the others are hurried to the next one.
	const hurried, all = 20 * time.Millisecond, time.Minute
	tests := []struct {
		name      string
		p         *Process
		interrupt time.Duration
		terminate time.Duration
		word      string
		code      int
		signal    string
		last      string
	}{
		{"SIGINT is enough for most", sh("echo ready; exec sleep 1000"), all, all, "ready", 130, "SIGINT", "ready\n"},
		{"what it still says is kept", sh("trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.01; done"), all, all, "ready", 5, "", "ready\nbye\n"},
		{"SIGTERM when SIGINT is ignored", child("stubborn"), hurried, all, "stubborn", 7, "", "stubborn\ngoing\n"},
		{"SIGKILL when both are", child("deaf"), hurried, hurried, "deaf", 137, "SIGKILL", "deaf\n"},
		{"all of the group", sh("sleep 1000 & sleep 1000 & echo ready; wait"), all, all, "ready", 130, "SIGINT", "ready\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &cue{word: tt.word, then: cancel}
			patient := brief
			patient.interrupt, patient.terminate = tt.interrupt, tt.terminate
			p := *tt.p
			p.Stdout, p.Stderr, p.patience = c, c, &patient
			exit, err := p.Run(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if !exit.Cancelled || exit.TimedOut || exit.Code != tt.code || exit.Signal != tt.signal {
				t.Errorf("exit = %+v, want cancelled, code %d, signal %q", exit, tt.code, tt.signal)
			}
			if c.seen.String() != tt.last {
				t.Errorf("output %q, want %q", &c.seen, tt.last)
			}
		})
	}
}

func TestKillDoesNotWaitForTheCommandToAgree(t *testing.T) {
	// A rung of the ladder would take longer than a test may.
	patient := brief
	patient.interrupt, patient.terminate = time.Hour, time.Hour
	for name, stage := range map[string]struct {
		word   string
		cancel bool
		output string
	}{
		"while the command runs":             {"deaf", false, "deaf\n"},
		"while it was cancelled already":     {"deaf", true, "deaf\n"},
		"while it answers the first request": {"asked", true, "ready\nasked\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			kill := make(chan struct{})
			p := child("deaf")
			out := io.Writer(&cue{word: stage.word, then: func() {
				if stage.cancel {
					cancel()
				}
				close(kill)
			}})
			seen := out.(*cue)
			if stage.word == "asked" {
				p = sh("trap 'echo asked; while :; do sleep 0.01; done' INT; echo ready; while :; do sleep 0.01; done")
				out = io.MultiWriter(&cue{word: "ready", then: cancel}, seen)
			}
			p.Stdout, p.Stderr, p.Kill, p.patience = out, out, kill, &patient
			exit, err := p.Run(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if !exit.Cancelled || exit.Code != 137 || exit.Signal != "SIGKILL" || seen.seen.String() != stage.output {
				t.Errorf("exit = %+v after %q, want killed after %q", exit, &seen.seen, stage.output)
			}
		})
	}
}

func TestATimeoutIs124WhateverTheCommandSays(t *testing.T) {
	for name, p := range map[string]*Process{
		"killed":             sh("exec sleep 1000"),
		"ends in good order": sh("trap 'exit 0' INT; while :; do sleep 0.01; done"),
		"silent and deaf":    sh("trap '' INT TERM; while :; do sleep 0.01; done"),
	} {
		t.Run(name, func(t *testing.T) {
			q := *p
			q.Timeout = 50 * time.Millisecond
			exit, _ := launch(t, t.Context(), &q)
			if exit.Code != CodeTimeout || !exit.TimedOut || exit.Cancelled {
				t.Errorf("exit = %+v, want 124 and timed out", exit)
			}
		})
	}
}

func TestALeaderDoesNotWaitForWhatItLeftBehind(t *testing.T) {
	t.Run("in a session of its own it lives, and the view says so", func(t *testing.T) {
		exit, out := launch(t, t.Context(), child("heir"))
		pid := left(t, out)
		defer reap(t, pid)
		if exit.Code != 0 || !exit.HeldOpen || exit.Leftover {
			t.Errorf("exit = %+v, want held open", exit)
		}
		if s, err := process.ReadStat(pid); err != nil || s.Dead() {
			t.Errorf("process %d is gone (%v)", pid, err)
		}
	})
	t.Run("in the group it is ended", func(t *testing.T) {
		exit, out := launch(t, t.Context(), child("litter"))
		pid := left(t, out)
		if exit.Code != 0 || !exit.Leftover {
			t.Errorf("exit = %+v, want leftover", exit)
		}
		if s, err := process.ReadStat(pid); err == nil && !s.Dead() {
			t.Errorf("process %d lives", pid)
		}
	})
	t.Run("with other output it is ended too", func(t *testing.T) {
		exit, out := launch(t, t.Context(), sh("sleep 1000 >/dev/null 2>&1 & echo left $!"))
		if s, err := process.ReadStat(left(t, out)); err == nil && !s.Dead() {
			t.Error("it lives")
		}
		if exit.HeldOpen || !exit.Leftover {
			t.Errorf("exit = %+v, want leftover", exit)
		}
	})
	t.Run("who writes for ever is not read for ever", func(t *testing.T) {
		exit, out := launch(t, t.Context(), child("babbler"))
		defer reap(t, left(t, out))
		if exit.Code != 0 || !exit.HeldOpen {
			t.Errorf("exit = %+v, want held open", exit)
		}
	})
	t.Run("who comes a little late is heard", func(t *testing.T) {
		patient := brief // so much that only the end of the output ends the wait
		patient.quiet, patient.drain, patient.leaving = time.Minute, time.Minute, time.Minute
		var out bytes.Buffer
		p := &Process{Argv: sh("(sleep 0.02; echo late) & echo early").Argv, Stdout: &out, patience: &patient}
		if exit, err := p.Run(t.Context()); err != nil || out.String() != "early\nlate\n" || exit.HeldOpen || exit.Leftover {
			t.Errorf("output %q, exit %+v, %v", &out, exit, err)
		}
	})
}

func TestOutputOfEveryShapeArrivesWhole(t *testing.T) {
	t.Run("stdout closed early", func(t *testing.T) {
		exit, out := launch(t, t.Context(), sh("echo before; exec >&- 2>&-; sleep 0.05; exit 4"))
		if out != "before\n" || exit.Code != 4 {
			t.Errorf("output %q, exit %+v", out, exit)
		}
	})
	t.Run("64 MiB without a newline", func(t *testing.T) {
		var n count
		p := &Process{Argv: []string{"head", "-c", "67108864", "/dev/zero"}, Stdout: &n}
		if exit, err := p.Run(t.Context()); err != nil || exit.Code != 0 {
			t.Fatal(exit, err)
		}
		if n != 64<<20 {
			t.Errorf("%d bytes, want %d", n, 64<<20)
		}
	})
	t.Run("all that was written before a sudden death", func(t *testing.T) {
		exit, out := launch(t, t.Context(), sh("head -c 60000 /dev/zero; kill -KILL $$"))
		if len(out) != 60000 || exit.Signal != "SIGKILL" {
			t.Errorf("%d bytes, exit %+v", len(out), exit)
		}
	})
}

type count int64

func (c *count) Write(b []byte) (int, error) { *c += count(len(b)); return len(b), nil }

type refuser struct{ after int }

func (r *refuser) Write(b []byte) (int, error) {
	if r.after -= len(b); r.after < 0 {
		return 0, syscall.ENOSPC
	}
	return len(b), nil
}

func TestAFailingWriterDoesNotStopTheCommand(t *testing.T) {
	p := &Process{Argv: []string{"sh", "-c", "head -c 1000000 /dev/zero && exit 9"}, Stdout: &refuser{after: 1000}}
	exit, err := p.Run(t.Context())
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("err = %v, want the writer's", err)
	}
	if exit.Code != 9 {
		t.Errorf("exit = %+v, want the command's own 9", exit)
	}
}

func TestACommandThatDoesNotDieIsGivenUp(t *testing.T) {
	// Nothing here can outlive SIGKILL, so the signals are lost on their way instead.
	saved := signalProcess
	signalProcess = func(int, syscall.Signal) error { return syscall.EPERM }
	defer func() { signalProcess = saved }()

	ctx, cancel := context.WithCancel(t.Context())
	c := &cue{word: "\n", then: cancel}
	p := &Process{Argv: []string{"sh", "-c", "echo $$; exec sleep 1000"}, Stdout: c, Stderr: c}
	quick := brief
	quick.interrupt, quick.terminate, quick.kill = time.Millisecond, time.Millisecond, time.Millisecond
	p.patience = &quick
	exit, err := p.Run(ctx)
	if !errors.Is(err, ErrUnkillable) || !exit.Cancelled {
		t.Errorf("Run = %+v, %v, want ErrUnkillable", exit, err)
	}
	pid, convErr := strconv.Atoi(strings.TrimSpace(c.seen.String()))
	if convErr != nil {
		t.Fatal(convErr)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestNoDescriptorIsLeftOrInherited(t *testing.T) {
	_, out := launch(t, t.Context(), child("descriptors"))
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		n, name, _ := strings.Cut(line, " ")
		fd, err := strconv.Atoi(n)
		if err != nil {
			t.Fatalf("line %q of the child: %v", line, err)
		}
		// What this process was itself given as inheritable is not ours to close.
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		given := err == nil && flags&unix.FD_CLOEXEC == 0
		if fd > 2 && !given && !strings.HasPrefix(name, "/sys/fs/cgroup/") { // the child's own Go runtime
			t.Errorf("the command inherited %s", line)
		}
	}
	before := descriptors(t)
	for range 20 {
		launch(t, t.Context(), sh("echo x; echo y >&2"))
		launch(t, t.Context(), &Process{Argv: []string{"agentrun-no-such-command"}})
		if _, err := (&Process{Argv: []string{"true"}, Stdout: io.Discard, Stderr: new(count)}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("descriptors can not be counted here:", err)
	}
	return len(d)
}

// left is the pid that a child said it left behind.
func left(t *testing.T, out string) int {
	t.Helper()
	for _, line := range strings.Split(out, "\n") {
		var pid int
		if n, _ := fmt.Sscanf(line, "left %d", &pid); n == 1 {
			return pid
		}
	}
	t.Fatalf("no pid in %.100q", out)
	return 0
}

func reap(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

func write(t *testing.T, name, content string, perm os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), perm); err != nil {
		t.Fatal(err)
	}
}

// TestACommandThatIsStoppedIsEndedByItsTimeout: what it was asked waits until it goes on, and it is killed.
func TestACommandThatIsStoppedIsEndedByItsTimeout(t *testing.T) {
	p := sh("echo before; kill -STOP $$")
	p.Timeout = 100 * time.Millisecond
	p.patience = &patience{
		interrupt: 50 * time.Millisecond, terminate: 50 * time.Millisecond, kill: 10 * time.Second,
		quiet: time.Second, drain: time.Second, leaving: time.Second, leftover: time.Second,
	}
	exit, out := launch(t, t.Context(), p)
	if exit.Code != CodeTimeout || exit.Signal != "SIGKILL" || out != "before\n" {
		t.Errorf("%+v, %q", exit, out)
	}
}
