// Package python_test measures kernels of Python.
package python_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
	"github.com/agentrun/agentrun/tool/shell"
)

func TestMain(m *testing.M) {
	shell.Main()
	m.Run()
}

// interpreter is the Python behind scripts such as those of pyenv.
func interpreter(b *testing.B) string {
	b.Helper()
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		b.Skip("there is no Python here:", err)
	}
	return string(bytes.TrimSpace(out))
}

func open(b *testing.B) *python.Kernel {
	b.Helper()
	k, err := python.New(python.Options{Path: interpreter(b), Dir: "/"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { k.Close() })
	run(b, k, "pass", io.Discard)
	return k
}

func run(b *testing.B, k *python.Kernel, code string, w io.Writer) {
	exit, _, err := k.RunCell(context.Background(), &python.Cell{Script: bash.Script{Text: code, Stdout: w, Stderr: w}})
	if err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
}

// loop is the least that a persistent Python can be: it evaluates lines, and says a word behind each.
const loop = `
import sys
for line in sys.stdin:
    exec(line)
    print("end", flush=True)
`

// BenchmarkCell is a cell in a kernel that is warm, beside a bare loop in Python that reads lines. The limit is 2 ms.
func BenchmarkCell(b *testing.B) {
	for _, c := range []struct{ name, code string }{{"pass", "pass"}, {"print", "print(1)"}} {
		b.Run(c.name+"/kernel", func(b *testing.B) {
			k := open(b)
			for b.Loop() {
				run(b, k, c.code, io.Discard)
			}
		})
		b.Run(c.name+"/bare", func(b *testing.B) {
			cmd := exec.Command(interpreter(b), "-c", loop)
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
				if _, err := io.WriteString(in, c.code+"\n"); err != nil {
					b.Fatal(err)
				}
				for line := ""; line != "end\n"; {
					if line, err = lines.ReadString('\n'); err != nil {
						b.Fatal(err)
					}
				}
			}
			in.Close()
			_ = cmd.Wait()
		})
	}
}

// BenchmarkStart is the start of a kernel until it has run a cell, beside python3 -c pass. The limit is 150 ms.
func BenchmarkStart(b *testing.B) {
	path := interpreter(b)
	b.Run("kernel", func(b *testing.B) {
		for b.Loop() {
			k, err := python.New(python.Options{Path: path, Dir: "/", Single: true})
			if err != nil {
				b.Fatal(err)
			}
			run(b, k, "pass", io.Discard)
			b.StopTimer()
			k.Close()
			b.StartTimer()
		}
	})
	b.Run("kernel-and-end", func(b *testing.B) {
		for b.Loop() {
			k, err := python.New(python.Options{Path: path, Dir: "/", Single: true})
			if err != nil {
				b.Fatal(err)
			}
			run(b, k, "pass", io.Discard)
			k.Close()
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command(path, "-c", "pass").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOutput is the way of 256 MiB through a kernel, beside the same Python writing to a file.
func BenchmarkOutput(b *testing.B) {
	const size = 256 << 20
	code := fmt.Sprintf("import sys\nfor _ in range(%d): sys.stdout.write('x' * 1023 + '\\n')", size/1024)
	b.Run("kernel", func(b *testing.B) {
		k := open(b)
		b.SetBytes(size)
		for b.Loop() {
			run(b, k, code, io.Discard)
		}
	})
	b.Run("file", func(b *testing.B) {
		path := interpreter(b)
		b.SetBytes(size)
		for b.Loop() {
			f, err := os.Create(filepath.Join(b.TempDir(), "out"))
			if err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command(path, "-c", code)
			cmd.Stdout = f
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}
