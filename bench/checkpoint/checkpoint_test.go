// Package checkpoint_test measures checkpoints and rewinds of a tree of 10,000 files
// of about 4 KiB, beside what a walk with a stat of each file costs, and a copy.
package checkpoint_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/session"
)

const files = 10_000

// tree makes the files, in directories of 100, old enough for their time stamps to be
// believed.
func tree(b *testing.B) string {
	b.Helper()
	dir, err := filepath.EvalSymlinks(b.TempDir())
	check(b, err)
	dir = filepath.Join(dir, "project")
	content := make([]byte, 4096)
	rnd := rand.NewChaCha8([32]byte{})
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprint("d", i/100))
		check(b, os.MkdirAll(sub, 0o755))
		rnd.Read(content)
		check(b, os.WriteFile(filepath.Join(sub, fmt.Sprint("f", i)), content, 0o644))
	}
	return dir
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func recorder(b *testing.B, dir string, d session.Durability) *checkpoint.Recorder {
	b.Helper()
	m, err := session.OpenManager(b.TempDir(), session.Options{Durability: d})
	check(b, err)
	s, err := m.Create(b.Context(), dir, session.CreateOptions{})
	check(b, err)
	b.Cleanup(func() { s.Close() })
	// An hour ahead: the files are not too young.
	return checkpoint.New(m, s, checkpoint.Options{Durability: d, Now: func() time.Time { return time.Now().Add(time.Hour) }})
}

func record(b *testing.B, r *checkpoint.Recorder, dir string) string {
	b.Helper()
	c, err := r.Checkpoint(b.Context(), "", dir)
	check(b, err)
	if c.Files != files {
		b.Fatalf("%d files", c.Files)
	}
	return c.Entry
}

var durabilities = map[string]session.Durability{"flush": session.Flush, "sync": session.Sync}

func BenchmarkCold(b *testing.B) {
	dir := tree(b)
	for name, d := range durabilities {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := recorder(b, dir, d)
				b.StartTimer()
				record(b, r, dir)
			}
		})
	}
}

func BenchmarkWarm(b *testing.B) {
	dir := tree(b)
	r := recorder(b, dir, session.Flush)
	record(b, r, dir)
	for b.Loop() {
		record(b, r, dir)
	}
}

func BenchmarkRewind(b *testing.B) {
	dir := tree(b)
	for name, d := range durabilities {
		b.Run(name, func(b *testing.B) {
			r := recorder(b, dir, d)
			at := record(b, r, dir)
			for b.Loop() {
				b.StopTimer()
				for i := range 1000 {
					check(b, os.WriteFile(filepath.Join(dir, fmt.Sprint("d", i/100), fmt.Sprint("f", i)), []byte("changed"), 0o644))
				}
				record(b, r, dir)
				b.StartTimer()
				p, err := r.Plan(b.Context(), at, checkpoint.PlanOptions{})
				check(b, err)
				a, err := r.Apply(b.Context(), p)
				check(b, err)
				if a.Changed != 1000 {
					b.Fatal(a.Changed)
				}
			}
		})
	}
}

// BenchmarkLimitStat is what a warm checkpoint cannot be faster than.
func BenchmarkLimitStat(b *testing.B) {
	dir := tree(b)
	for b.Loop() {
		n := 0
		check(b, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Lstat(path)
				n++
			}
			return err
		}))
		if n != files {
			b.Fatal(n)
		}
	}
}

// BenchmarkLimitCopy is what a cold checkpoint without fsync cannot be much faster
// than: every file is read, and written to another directory.
func BenchmarkLimitCopy(b *testing.B) {
	dir := tree(b)
	for b.Loop() {
		b.StopTimer()
		to := b.TempDir()
		b.StartTimer()
		n := 0
		check(b, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(filepath.Join(to, d.Name()), data, 0o600)
			}
			n++
			return err
		}))
	}
}
