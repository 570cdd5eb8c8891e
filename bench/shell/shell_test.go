// Package shell_test measures a shell that goes on.
package shell_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
)

func TestMain(m *testing.M) {
	shell.Main()
	if len(os.Args) == 3 && os.Args[0] == "supervisor" {
		supervise(os.Args[1], os.Args[2])
		return
	}
	m.Run()
}

func open(b *testing.B) *shell.Shell {
	b.Helper()
	s, err := shell.New(shell.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	run(b, s, ":", io.Discard)
	return s
}

func run(b *testing.B, s *shell.Shell, script string, w io.Writer) {
	exit, err := s.RunScript(context.Background(), &bash.Script{Text: script, Stdout: w, Stderr: w})
	if err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
}

// BenchmarkCall is a call in a warm shell, beside the same commands given to a bare bash through a pipe, which says a word behind each. The
// limit is 3 ms over the command itself.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct{ name, script string }{{"builtin", ":"}, {"program", "/bin/true"}} {
		b.Run(c.name+"/shell", func(b *testing.B) {
			s := open(b)
			for b.Loop() {
				run(b, s, c.script, io.Discard)
			}
		})
		b.Run(c.name+"/bare", func(b *testing.B) {
			cmd := exec.Command("bash", "--noprofile", "--norc")
			in, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			lines := bufio.NewReader(out)
			for b.Loop() {
				if _, err := io.WriteString(in, c.script+"; echo end\n"); err != nil {
					b.Fatal(err)
				}
				if _, err := lines.ReadString('\n'); err != nil {
					b.Fatal(err)
				}
			}
			in.Close()
			cmd.Wait()
		})
	}
}

// BenchmarkOutput is the way of 256 MiB through a shell, beside the same command writing to a file. The limit is 0.8.
func BenchmarkOutput(b *testing.B) {
	if testing.Short() {
		b.Skip("writes 256 MiB each time")
	}
	const script = "head -c 268435456 /dev/zero"
	b.Run("shell", func(b *testing.B) {
		s := open(b)
		b.SetBytes(256 << 20)
		for b.Loop() {
			f, err := os.Create(filepath.Join(b.TempDir(), "out"))
			if err != nil {
				b.Fatal(err)
			}
			run(b, s, script, f)
			f.Close()
		}
	})
	b.Run("file", func(b *testing.B) {
		b.SetBytes(256 << 20)
		for b.Loop() {
			if err := exec.Command("bash", "-c", script+" >"+filepath.Join(b.TempDir(), "out")).Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStart is the start of a shell until its first script has ended. The limit of a job's start is 20 ms.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := shell.New(shell.Options{})
		if err != nil {
			b.Fatal(err)
		}
		run(b, s, ":", io.Discard)
		s.Close()
	}
}

// BenchmarkGrowth is 10,000 calls, and reports how many descriptors and bytes more there are behind them.
func BenchmarkGrowth(b *testing.B) {
	calls := 10_000
	if testing.Short() {
		calls = 100
	}
	s := open(b)
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			b.Fatal(err)
		}
		return len(names)
	}
	rss := func() (pages int64) {
		f, err := os.Open("/proc/self/statm")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		var size int64
		if _, err := fmt.Fscan(f, &size, &pages); err != nil {
			b.Fatal(err)
		}
		return pages
	}
	for b.Loop() {
		for range 100 {
			run(b, s, "x=1", io.Discard)
		}
		fds, before, began := descriptors(), rss(), time.Now()
		for range calls {
			run(b, s, "x=1", io.Discard)
		}
		b.ReportMetric(float64(descriptors()-fds), "fds")
		b.ReportMetric(float64((rss()-before)*int64(os.Getpagesize())), "B-grown")
		b.ReportMetric(float64(time.Since(began).Microseconds())/float64(calls), "us/call")
	}
}
