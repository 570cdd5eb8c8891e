package shell_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/bash"
)

// supervise is the process of a supervisor.
func supervise(home, id string) {
	ready := os.NewFile(3, "ready")
	m, err := session.OpenManager(home, session.Options{})
	if err == nil {
		err = supervisor.Serve(context.Background(), supervisor.Options{
			Session: id, Home: home, Ready: func() { ready.WriteString("ready\n") },
			Open: func(ctx context.Context) (*session.Session, *artifacts.Dir, error) {
				info, err := m.Find(ctx, id)
				if err != nil {
					return nil, nil, err
				}
				s, err := m.Open(ctx, info.Path)
				if err != nil {
					return nil, nil, err
				}
				return s, artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Sync: true}), nil
			},
		})
	}
	if err != nil {
		ready.WriteString(err.Error() + "\n")
	}
}

func newSession(b *testing.B, sync bool) (*session.Session, *artifacts.Dir) {
	b.Helper()
	home := b.TempDir()
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := m.Create(b.Context(), home, session.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if _, err := s.Append(b.Context(), entry.Custom{CustomType: "bench"}); err != nil {
		b.Fatal(err)
	}
	return s, artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Sync: sync})
}

// BenchmarkJob is the start of a job under a supervisor that is there, until the caller knows its id ("told"), and until
// its first command has run ("runs"). The limit is 20 ms.
func BenchmarkJob(b *testing.B) {
	for _, what := range []string{"told", "runs"} {
		b.Run(what, func(b *testing.B) {
			s, _ := newSession(b, true)
			c := &supervisor.Client{Home: s.Home(), Session: s.ID(), Argv: []string{"supervisor", s.Home(), s.ID()}}
			defer supervisor.StopAll(context.Background(), s.Home())
			dir := b.TempDir()
			fifo := filepath.Join(dir, "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				b.Fatal(err)
			}
			run := func() int64 {
				id, err := c.Start(b.Context(), supervisor.Command{Script: "echo >fifo", Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				return id
			}
			hear := func(id int64) {
				if _, err := os.ReadFile(fifo); err != nil {
					b.Fatal(err)
				}
				if err := c.Wait(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
			hear(run())
			for b.Loop() {
				id := run()
				if what == "runs" {
					if _, err := os.ReadFile(fifo); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if what == "told" {
					hear(id)
				} else if err := c.Wait(b.Context(), id); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkArtifact is the way of 256 MiB through a shell into an artifact, as a tool call takes it, beside the same command
// writing to a file. The limit is 0.8.
func BenchmarkArtifact(b *testing.B) {
	if testing.Short() {
		b.Skip("writes 256 MiB each time")
	}
	for _, script := range []struct{ name, text string }{
		{"zeros", "head -c 268435456 /dev/zero"},
		// Three processes at work, beside two.
		{"lines", "yes 'a line as programs write them, of which there are many' | head -c 268435456"},
	} {
		b.Run(script.name+"/shell", func(b *testing.B) {
			s, dir := newSession(b, false) // the file is not synced either
			sh := open(b)
			b.SetBytes(256 << 20)
			for b.Loop() {
				res, err := bash.Run(b.Context(), bash.Options{Script: script.text, Shell: sh, Artifacts: dir})
				if err != nil || res.Code != 0 || res.Summary.TotalBytes != 256<<20 {
					b.Fatal(err, res.Exit)
				}
				b.StopTimer()
				if err := os.RemoveAll(s.ArtifactsDir()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run(script.name+"/file", func(b *testing.B) {
			name := filepath.Join(b.TempDir(), "out")
			b.SetBytes(256 << 20)
			for b.Loop() {
				if err := exec.Command("bash", "-c", fmt.Sprintf("%s >%s", script.text, name)).Run(); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				os.Remove(name)
				b.StartTimer()
			}
		})
	}
}
