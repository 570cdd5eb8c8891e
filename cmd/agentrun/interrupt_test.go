package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// longSession makes a session whose artifact takes long to export, and returns its
// directory and the environment to use it.
func longSession(t *testing.T, bytes int64) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	env = append(os.Environ(), "HOME="+dir, "AGENTRUN_HOME="+filepath.Join(dir, "home"), "AGENTRUN_SESSION=", "GORACE=atexit_sleep_ms=0")
	runAgentrun(t, dir, env, "exec", "--quiet", "--", "seq", "1", "30000")
	logs, err := filepath.Glob(filepath.Join(dir, "home/sessions/*/*/0.*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	if err := os.Truncate(logs[0], bytes); err != nil { // a hole: it takes no room
		t.Fatal(err)
	}
	return dir, env
}

// child is agentrun, watched until something appears.
type child struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan error
}

func startChild(t *testing.T, dir string, env []string, args ...string) *child {
	t.Helper()
	return startChildTo(t, dir, env, nil, args...)
}

// startChildTo starts one whose standard output is a file.
func startChildTo(t *testing.T, dir string, env []string, stdout *os.File, args ...string) *child {
	t.Helper()
	c := &child{cmd: agentrunCommand(dir, env, args...), done: make(chan error, 1)}
	c.cmd.Stderr = &c.stderr
	if stdout != nil {
		c.cmd.Stdout = stdout
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- c.cmd.Wait() }()
	t.Cleanup(func() { c.cmd.Process.Kill() })
	return c
}

// await waits until there is what is awaited, false if the program ended before.
func (c *child) await(there func() bool) bool {
	for !there() {
		select {
		case err := <-c.done:
			c.done <- err
			return there()
		case <-time.After(time.Millisecond):
		}
	}
	return true
}

// end sends a signal and returns the status.
func (c *child) end(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	_ = c.cmd.Process.Signal(sig) // an error when it has ended
	err := <-c.done
	c.done <- err
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// listing names what is in a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

const endless = 1 << 40 // bytes: longer than any test

func TestAnExportThatIsEndedLeavesNothing(t *testing.T) {
	dir, env := longSession(t, endless)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		out := t.TempDir()
		c := startChild(t, dir, env, "export", "-o", filepath.Join(out, "work.agentrun"))
		if !c.await(func() bool { return listing(t, out) != "" }) {
			t.Fatalf("it ended: %s", &c.stderr)
		}
		if status := c.end(t, sig); status != 128+int(sig) {
			t.Errorf("%v: status %d", sig, status)
		}
		if left := listing(t, out); left != "" {
			t.Errorf("%v left %s", sig, left)
		}
		if got := c.stderr.String(); !strings.HasPrefix(got, "agentrun: ended by SIG") || strings.Count(got, "\n") != 1 {
			t.Errorf("%v: it said %q", sig, got)
		}
	}
}

func TestTheNextExportRemovesWhatAKilledOneLeftAndNotWhatALiveOneWrites(t *testing.T) {
	dir, env := longSession(t, endless)
	out := t.TempDir()
	killed := startChild(t, dir, env, "export", "-o", filepath.Join(out, "killed.agentrun"))
	if !killed.await(func() bool { return listing(t, out) != "" }) {
		t.Fatalf("it ended: %s", &killed.stderr)
	}
	killed.end(t, syscall.SIGKILL)
	left := listing(t, out)
	if !strings.HasPrefix(left, ".tmp-") {
		t.Fatalf("there is nothing to test: it left %q", left)
	}
	alive := startChild(t, dir, env, "export", "-o", filepath.Join(out, "alive.agentrun"))
	if !alive.await(func() bool { now := listing(t, out); return now != "" && now != left && !strings.Contains(now, left) }) {
		t.Fatalf("it ended: %s", &alive.stderr)
	}
	at := listing(t, out)
	small, smallEnv := longSession(t, 100)
	runAgentrun(t, small, smallEnv, "export", "--quiet", "-o", filepath.Join(out, "small.agentrun"))
	if got, want := listing(t, out), at+" small.agentrun"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
}

func TestAnImportThatIsEndedLeavesNothing(t *testing.T) {
	ended := 0
	for size := int64(64 << 20); ended == 0; size *= 2 {
		if size > 1<<30 {
			t.Fatal("every import was done before the signal came")
		}
		dir, env := longSession(t, size)
		runAgentrun(t, dir, env, "export", "--quiet", "-o", "work.agentrun")
		there := filepath.Join(dir, "there", "sessions")
		c := startChild(t, dir, env, "import", "work.agentrun", "--home", filepath.Dir(there))
		staged := func() bool {
			found, err := filepath.Glob(filepath.Join(there, ".tmp-import-*", "artifacts", "0.*.log"))
			return err == nil && len(found) > 0
		}
		if !c.await(staged) {
			continue
		}
		switch status := c.end(t, syscall.SIGTERM); status {
		case 0: // the signal was late
		case 128 + int(syscall.SIGTERM):
			ended++
			if left := listing(t, there); left != ".import.lock" {
				t.Errorf("it left %s", left)
			}
		default:
			t.Errorf("status %d: %s", status, &c.stderr)
		}
	}
}

func TestAnImportThatWaitsForAnotherEnds(t *testing.T) {
	dir, env := longSession(t, 100)
	runAgentrun(t, dir, env, "export", "--quiet", "-o", "work.agentrun")
	lock, err := durable.OpenLock(nil, filepath.Join(dir, "home/sessions/.import.lock"))
	if err == nil {
		err = lock.Lock(t.Context(), time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	before := listing(t, filepath.Join(dir, "home/sessions"))
	c := startChild(t, dir, env, "import", "work.agentrun")
	waits := func() bool { // it has opened the lock
		fds, err := filepath.Glob("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/fd/*")
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); err == nil && strings.HasSuffix(to, "/.import.lock") {
				return true
			}
		}
		return false
	}
	if !c.await(waits) {
		t.Fatalf("it ended: %s", &c.stderr)
	}
	if status := c.end(t, syscall.SIGINT); status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d: %s", status, &c.stderr)
	}
	if after := listing(t, filepath.Join(dir, "home/sessions")); after != before {
		t.Errorf("there is %s, before %s", after, before)
	}
}

func TestASignalEndsAProgramThatPrintsWhatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	full := func() bool {
		n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		return err == nil && n > 0
	}
	dir, env := longSession(t, 100)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		c := startChildTo(t, dir, env, w, "exec", "--", "seq", "1", "300000")
		if !c.await(full) {
			t.Fatalf("it ended: %s", &c.stderr)
		}
		c.end(t, sig)
		if status := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != sig {
			t.Errorf("%v: it ended with %v: %s", sig, c.cmd.ProcessState, &c.stderr)
		}
		if strings.Contains(c.stderr.String(), endsCommand) {
			t.Errorf("%v: it said %q of a command that has ended", sig, &c.stderr)
		}
		for full() {
			if _, err := r.Read(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
