package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// BenchmarkResume opens a session and builds the context that providers accept, beside
// BenchmarkOpenContext, which looks for nothing to repair.
func BenchmarkResume(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s.jsonl")
	write(b, path, 10_000, 0)
	m := manager(b)
	resume := func(b *testing.B, want int) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := m.View(context.Background(), path)
			if err != nil {
				b.Fatal(err)
			}
			r, err := s.Resume(context.Background(), session.ResumeOptions{})
			if err != nil || len(r.Context.Messages) != want || len(r.Repairs) > 0 {
				b.Fatal(len(r.Context.Messages), r.Repairs, err)
			}
			s.Close()
		}
	}
	b.Run("10000", func(b *testing.B) { resume(b, 10_000) })
	b.Run("1GB", func(b *testing.B) {
		if testing.Short() {
			b.Skip("writes a session of 1 GB; run without -short")
		}
		write(b, path, 1_450_000, 100)
		resume(b, 201)
	})
}

// BenchmarkWriteRepairs repairs a session of 10,000 entries whose second line is broken, so
// that all of it is written again.
func BenchmarkWriteRepairs(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s.jsonl")
	write(b, path, 10_000, 0)
	log, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	second := bytes.IndexByte(log, '\n') + 1
	second += bytes.IndexByte(log[second:], '\n') + 1
	log[second] = 'X'
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		if err := os.WriteFile(path, log, 0o600); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		s, err := m.Open(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		r, err := s.WriteRepairs(context.Background(), session.ResumeOptions{})
		if err != nil || len(r.Repairs) != 1 {
			b.Fatal(r.Repairs, err)
		}
		s.Close()
	}
}

// BenchmarkRewrite replaces a log of 10,000 entries by a new file, as a title does that has
// no room in the header, beside a plain copy of the file in the same way.
func BenchmarkRewrite(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s.jsonl")
	write(b, path, 10_000, 0)
	log, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	for name, d := range map[string]session.Durability{"flush": session.Flush, "sync": session.Sync} {
		b.Run("agentrun-"+name, func(b *testing.B) {
			m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: d})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(log)))
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				// Synced, or the first sync of the rename would write it.
				if err := durable.WriteFile(durable.OS, path, true, log); err != nil {
					b.Fatal(err)
				}
				s, err := m.Open(context.Background(), path)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := s.Rename(context.Background(), fmt.Sprint("title ", i), session.TitleUser); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
		b.Run("write+rename-"+name, func(b *testing.B) {
			b.SetBytes(int64(len(log)))
			for b.Loop() {
				f, err := os.Create(path + ".tmp")
				if err != nil {
					b.Fatal(err)
				}
				if _, err = f.Write(log); err == nil && d == session.Sync {
					err = f.Sync()
				}
				if err != nil || f.Close() != nil || os.Rename(path+".tmp", path) != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
