package session

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/session"
)

// BenchmarkList lists 1,000 sessions of 60 KB: with a cold cache, with a warm one,
// and what reading the first 4 KiB of each file costs by hand.
func BenchmarkList(b *testing.B) {
	home := filepath.Join(b.TempDir(), "home")
	cwd := b.TempDir()
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		b.Fatal(err)
	}
	body := strings.Repeat(string(line(1)), 90)
	old := time.Now().Add(-time.Hour)
	for i := range 1000 {
		s, err := m.Create(context.Background(), cwd, session.CreateOptions{Title: fmt.Sprint("session ", i)})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Append(context.Background(), user(i)); err != nil {
			b.Fatal(err)
		}
		s.Close()
		f, err := os.OpenFile(s.Path(), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.WriteString(body); err != nil {
			b.Fatal(err)
		}
		f.Close()
		// What was changed just now is not cached.
		if err := os.Chtimes(s.Path(), old, old); err != nil {
			b.Fatal(err)
		}
	}
	list := func(b *testing.B) {
		m, err := session.OpenManager(home, session.Options{})
		if err != nil {
			b.Fatal(err)
		}
		l, err := m.List(context.Background(), cwd)
		if err != nil || len(l.Sessions) != 1000 {
			b.Fatal(len(l.Sessions), err)
		}
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			os.Remove(filepath.Join(home, "list.cache"))
			b.StartTimer()
			list(b)
		}
	})
	b.Run("cached", func(b *testing.B) {
		list(b)
		for b.Loop() {
			list(b)
		}
	})
	b.Run("stat+open+read4k", func(b *testing.B) {
		buf := make([]byte, 4096)
		for b.Loop() {
			err := filepath.WalkDir(filepath.Join(home, "sessions"), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") {
					return err
				}
				if _, err := d.Info(); err != nil {
					return err
				}
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = f.ReadAt(buf, 0)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
