package terminal

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/screen"
)

// run runs a command on a terminal and returns all that it wrote.
func run(t *testing.T, p Pair, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Command, p.Command, p.Command
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Command.Close()
	b, err := io.ReadAll(p.Own)
	if !AtEnd(err) {
		t.Errorf("it ends with %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

func open(t *testing.T, size screen.Size) Pair {
	t.Helper()
	p, err := Open(size)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestACommandHasATerminalOfTheSizeThatWasAskedFor(t *testing.T) {
	got := run(t, open(t, screen.Size{Rows: 33, Cols: 101}), "stty size; test -t 0 && test -t 1 && test -t 2 && echo yes; tty | grep -c ^/dev/pts/; (: </dev/tty) && echo controls")
	if want := "33 101\nyes\n1\ncontrols\n"; got != want {
		t.Errorf("%q", got)
	}
}

func TestAllThatACommandWroteIsReadWhenItIsGone(t *testing.T) {
	for range 20 {
		got := run(t, open(t, screen.Size{Rows: 24, Cols: 80}), "seq 1 20000")
		if lines := strings.Count(got, "\n"); lines != 20000 || !strings.HasSuffix(got, "\n20000\n") {
			t.Fatalf("%d lines", lines)
		}
	}
}

func TestReadsHaveDeadlines(t *testing.T) {
	p := open(t, screen.Size{Rows: 24, Cols: 80})
	if err := p.Own.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Own.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Error(err)
	}
}
