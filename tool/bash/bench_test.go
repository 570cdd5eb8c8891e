package bash

import (
	"io"
	"os/exec"
	"testing"
)

// BenchmarkStart is the whole life of a command that does nothing, beside the same through os/exec.
func BenchmarkStart(b *testing.B) {
	b.Run("process", func(b *testing.B) {
		for b.Loop() {
			if exit, err := (&Process{Argv: []string{"/bin/true"}, Stdout: io.Discard, Stderr: io.Discard}).Run(b.Context()); err != nil || exit.Code != 0 {
				b.Fatal(exit, err)
			}
		}
	})
	b.Run("os-exec", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("/bin/true")
			cmd.Stdout, cmd.Stderr = discard{}, discard{}
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOutput is the way of 256 MiB from a command to a writer that drops them.
func BenchmarkOutput(b *testing.B) {
	argv := []string{"head", "-c", "268435456", "/dev/zero"}
	b.Run("process", func(b *testing.B) {
		b.SetBytes(256 << 20)
		for b.Loop() {
			if _, err := (&Process{Argv: argv, Stdout: discard{}, Stderr: discard{}}).Run(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("os-exec", func(b *testing.B) {
		b.SetBytes(256 << 20)
		for b.Loop() {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Stdout, cmd.Stderr = discard{}, discard{}
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// discard is a writer that is nothing else, as a sink is: io.Discard is known to io.Copy.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
