package shim

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/internal/process"
)

// ownerVariable makes the test binary an owner that starts a script and waits to be killed.
const ownerVariable = "AGENTRUN_TEST_OWNER"

func TestMain(m *testing.M) {
	Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process sleeps for a second at its end
	if script := os.Getenv(ownerVariable); script != "" {
		s, err := Start(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Dir: "/", Env: os.Environ(), Files: []*os.File{nil, os.Stdout}})
		fmt.Fprintln(os.Stderr, err)
		<-s.Done()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// input is the other end of the standard input of the last script that was launched.
var input *os.File

// launch runs a script whose output is read line by line.
func launch(t *testing.T, script string) (*Shim, *bufio.Scanner) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	stdin, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	s, err := Start(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Dir: "/", Env: os.Environ(), Files: []*os.File{stdin, w, w}})
	if err != nil {
		t.Fatal(err)
	}
	input = hold
	t.Cleanup(func() {
		hold.Close()
		s.Kill(10 * time.Second)
	})
	return s, bufio.NewScanner(r)
}

func line(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	if !lines.Scan() {
		t.Fatal("the output has ended")
	}
	return lines.Text()
}

func alive(pid int) bool {
	s, err := process.ReadStat(pid)
	return err == nil && !s.Dead()
}

// strays starts one process that left the process group, the session and its parent, and one in the background.
const strays = `(setsid sh -c 'echo $$; exec sleep 1000' &); sh -c 'echo $$; exec sleep 1000' & `

func strayed(t *testing.T, lines *bufio.Scanner) (pids [2]int) {
	t.Helper()
	for i := range pids {
		n, err := strconv.Atoi(line(t, lines))
		if err != nil {
			t.Fatal(err)
		}
		pids[i] = n
	}
	return pids
}

func TestTheEndIsToldExactly(t *testing.T) {
	for script, want := range map[string]syscall.WaitStatus{"exit 0": 0, "exit 7": 7 << 8, "kill -USR1 $$": syscall.WaitStatus(syscall.SIGUSR1)} {
		s, _ := launch(t, script)
		<-s.Exited()
		if got := s.Status(); got.Wait != want || got.PeakMemory == 0 {
			t.Errorf("%s: %+v", script, got)
		}
		<-s.Done()
	}
}

func TestWhatCanNotBeExecutedIsAnErrno(t *testing.T) {
	_, err := Start(Command{Path: "/nothing", Argv: []string{"x"}, Dir: "/"})
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
}

func TestWhatTheCommandLeavesIsEnded(t *testing.T) {
	s, lines := launch(t, strays+"read x; exit 3")
	pids := strayed(t, lines)
	input.Close()
	<-s.Exited()
	<-s.Done()
	if got := s.Status(); got.Wait.ExitStatus() != 3 || s.Left() != 2 {
		t.Errorf("%+v", got)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d lives", pid)
		}
	}
}

func TestASignalReachesEverybody(t *testing.T) {
	s, lines := launch(t, strays+"wait")
	pids := strayed(t, lines)
	s.Signal(syscall.SIGTERM)
	<-s.Done()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d lives", pid)
		}
	}
}

func TestKillEndsWhatIsDeafAndStopped(t *testing.T) {
	s, lines := launch(t, `trap "" TERM INT HUP; (sh -c 'echo $$; kill -STOP $$' &); (setsid sh -c 'echo $$; while :; do sleep 1000; done' &); while :; do sleep 1000; done`)
	pids := strayed(t, lines)
	if !s.Kill(10 * time.Second) {
		t.Error("not gone")
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d lives", pid)
		}
	}
}

func TestNothingOutlivesAKilledOwner(t *testing.T) {
	owner := exec.Command("/proc/self/exe")
	owner.Env = append(os.Environ(), ownerVariable+"="+strays+"wait")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	pids := strayed(t, lines)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until all that could write have closed
	}
	_ = owner.Wait()
	for _, pid := range pids {
		for alive(pid) { // a moment longer than its files are open, or this never ends
			runtime.Gosched()
		}
	}
}

func TestTheCommandInheritsItsFilesAlone(t *testing.T) {
	leak, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	if _, err := syscall.Dup(int(leak.Fd())); err != nil { // without close-on-exec
		t.Fatal(err)
	}
	_, lines := launch(t, "ls /proc/self/fd | tr '\\n' ' '; echo")
	if got := strings.TrimSpace(line(t, lines)); got != "0 1 2" && got != "0 1 2 3" && got != "1 2 3" && got != "0 1 2 " { // with that of ls
		t.Errorf("%q", got)
	}
}
