package sandbox

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/internal/screen"
	"github.com/agentrun/agentrun/internal/terminal"
)

func TestACommandFindsItsTerminal(t *testing.T) {
	ways(t, func(t *testing.T) {
		pair, err := terminal.Open(screen.Size{}.WithDefaults())
		if err != nil {
			t.Skip(err)
		}
		defer pair.Close()
		b := box(t, Policy{Mode: ReadOnly, NetOff: true})
		script := `tty; test -t 0 && : <"$(tty)" && : >/dev/tty && echo yes`
		l, err := b.Launch(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Dir: "/", Env: os.Environ(), Report: 3})
		if err != nil {
			t.Fatal(err)
		}
		cmd := &exec.Cmd{
			Path: l.Path, Args: l.Argv, Env: l.Env, Dir: "/", ExtraFiles: []*os.File{l.Report}, Stdin: pair.Command, Stdout: pair.Command, Stderr: pair.Command,
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
		}
		l.Attr.Apply(cmd.SysProcAttr)
		if err := cmd.Start(); err != nil {
			l.Abandon()
			t.Fatal(err)
		}
		pair.Command.Close()
		if err := l.Began(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
		out, err := io.ReadAll(pair.Own)
		if !terminal.AtEnd(err) {
			t.Error(err)
		}
		if got := strings.ReplaceAll(string(out), "\r\n", "\n"); got != "/dev/console\nyes\n" {
			t.Errorf("%q", got)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}
