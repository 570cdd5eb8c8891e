// Package exec benchmarks the whole process of `agentrun exec` beside that of a
// shell. See BENCHMARKS.md.
package exec

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkExecTrue runs `agentrun exec -- true` with Flush, and `sh -c true`. With a variable that is withheld the
// program executes itself anew.
//
// The program is a copy of what the linker wrote, as an archive, a package or an install to another file system leaves it. The
// linker writes through a mapping, a page at a time, and the kernel keeps such a file in single pages, of which each has to be
// mapped by itself until the file is read anew: agentrun-as-linked.
func BenchmarkExecTrue(b *testing.B) {
	dir := b.TempDir()
	bin := filepath.Join(dir, "agentrun")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "github.com/agentrun/agentrun/cmd/agentrun")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	linked := bin
	bin = filepath.Join(dir, "installed")
	program, err := os.ReadFile(linked)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(bin, program, 0o700); err != nil {
		b.Fatal(err)
	}
	run := func(b *testing.B, name string, args ...string) {
		for b.Loop() {
			cmd := exec.Command(name, args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "AGENTRUN_HOME="+filepath.Join(dir, "home"))
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		}
	}
	b.Run("agentrun", func(b *testing.B) { run(b, bin, "exec", "--durability", "flush", "--", "true") })
	b.Run("agentrun-withholding", func(b *testing.B) {
		b.Setenv("BENCH_TOKEN", "0123456789abcdef")
		run(b, bin, "exec", "--durability", "flush", "--", "true")
	})
	b.Run("agentrun-sync", func(b *testing.B) { run(b, bin, "exec", "--", "true") })
	b.Run("agentrun-version", func(b *testing.B) { run(b, bin, "version") })
	b.Run("agentrun-as-linked", func(b *testing.B) { run(b, linked, "exec", "--durability", "flush", "--", "true") })
	b.Run("sh", func(b *testing.B) { run(b, "sh", "-c", "true") })
}
