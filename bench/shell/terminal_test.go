package shell

import (
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/screen"
	"github.com/agentrun/agentrun/internal/terminal"
	"github.com/agentrun/agentrun/tool/bash"
)

// BenchmarkTerminal is 64 MiB of lines through a terminal, with a view of its screen and an artifact of its bytes, and
// the same through a terminal whose bytes nobody looks at: the kernel gives at most 4 KiB of one at a time.
func BenchmarkTerminal(b *testing.B) {
	size := 64 << 20
	if testing.Short() {
		size = 1 << 20
	}
	for _, c := range []struct{ name, line string }{
		{"plain", strings.Repeat("a line of a log. ", 4)},
		{"coloured", "\x1b[32mok\x1b[0m\t" + strings.Repeat("a line of a log. ", 4)},
		{"redrawn", "\x1b[1A\x1b[2K" + strings.Repeat("=", 60)},
	} {
		argv := []string{"sh", "-c", `yes "$0" | head -c "$1"`, c.line, strconv.Itoa(size)}
		b.Run(c.name+"/run", func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				dir := artifacts.Open(filepath.Join(b.TempDir(), "artifacts"), artifacts.Options{})
				if res, err := bash.Run(b.Context(), bash.Options{Argv: argv, Terminal: &bash.Terminal{}, Artifacts: dir}); err != nil || res.Code != 0 {
					b.Fatal(res.Code, err)
				}
			}
		})
		b.Run(c.name+"/terminal", func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				p, err := terminal.Open(screen.Size{}.WithDefaults())
				if err != nil {
					b.Fatal(err)
				}
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Command, p.Command, p.Command
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				p.Command.Close()
				if _, err := io.Copy(io.Discard, p.Own); !terminal.AtEnd(err) {
					b.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
				p.Own.Close()
			}
		})
	}
}
