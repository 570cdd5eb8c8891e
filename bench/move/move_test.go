// Package move benchmarks moves of sessions beside the system calls that they cannot do
// without. See BENCHMARKS.md.
//
//	BenchmarkMove/in-place   the header has the room: log and artifact directory are renamed
//	BenchmarkMove/rewrite    it has not: the log is copied, beside a plain copy of it
//	BenchmarkMove/.../limit  the limit of each, in the same run
package move

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// source makes a session with n entries and ten artifacts, and two directories.
func source(b *testing.B, n int) (m *session.Manager, path string, dirs [2]string) {
	b.Helper()
	ctx, base := context.Background(), b.TempDir()
	dirs = [2]string{filepath.Join(base, "one"), filepath.Join(base, "two")}
	for _, dir := range dirs {
		check(b, os.Mkdir(dir, 0o700))
	}
	m, err := session.OpenManager(filepath.Join(base, "home"), session.Options{})
	check(b, err)
	s, err := m.Create(ctx, dirs[1], session.CreateOptions{})
	check(b, err)
	defer s.Close()
	text := strings.Repeat("the quick brown fox ", 25)
	bodies := make([]entry.Body, n)
	for i := range bodies {
		bodies[i] = entry.MessageBody{Message: json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d %s"}`, i, text))}
	}
	_, err = s.AppendAll(ctx, bodies...)
	check(b, err)
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
	for range 10 {
		f, err := d.Create(ctx, "bash", artifacts.Provenance{})
		check(b, err)
		_, err = f.Write([]byte(text))
		check(b, err)
		ix, err := lineindex.Extend(ctx, lineindex.Index{}, strings.NewReader(text))
		check(b, err)
		check(b, f.Finish(ix))
		check(b, f.Close())
	}
	return m, s.Path(), dirs
}

func BenchmarkMove(b *testing.B) {
	b.Run("in-place/move", func(b *testing.B) {
		m, path, dirs := source(b, 100)
		// There and back once: after that the header has all it will hold.
		for i := range 4 {
			moved, err := m.Move(b.Context(), path, dirs[i%2], session.MoveOptions{})
			check(b, err)
			path = moved.Path
		}
		before, err := os.Stat(path)
		check(b, err)
		i := 0
		for b.Loop() {
			moved, err := m.Move(b.Context(), path, dirs[i%2], session.MoveOptions{})
			check(b, err)
			path, i = moved.Path, i+1
		}
		after, err := os.Stat(path)
		check(b, err)
		if !os.SameFile(before, after) {
			b.Error("it was copied")
		}
	})
	b.Run("in-place/limit", func(b *testing.B) {
		m, path, _ := source(b, 100)
		stem := strings.TrimSuffix(path, ".jsonl")
		other := filepath.Join(filepath.Dir(filepath.Dir(path)), "other")
		check(b, os.Mkdir(other, 0o700))
		line := make([]byte, 511)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		check(b, err)
		defer f.Close()
		_, err = f.ReadAt(line, 0)
		check(b, err)
		at, next := stem, filepath.Join(other, filepath.Base(stem))
		journal := filepath.Join(m.Home(), "journal")
		for b.Loop() {
			check(b, durable.WriteFile(durable.OS, journal, true, line))
			check(b, os.Rename(at+".jsonl", next+".jsonl"))
			_, err := f.WriteAt(line, 0)
			check(b, err)
			check(b, f.Sync())
			check(b, os.Rename(at, next))
			check(b, durable.OS.SyncDir(filepath.Dir(next)))
			check(b, durable.OS.SyncDir(filepath.Dir(at)))
			check(b, os.Remove(journal))
			at, next = next, at
		}
	})
	const entries = 10_000
	b.Run("rewrite/move", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			m, path, dirs := source(b, entries)
			full(b, path)
			b.StartTimer()
			_, err := m.Move(b.Context(), path, dirs[0], session.MoveOptions{})
			check(b, err)
		}
	})
	b.Run("rewrite/limit", func(b *testing.B) {
		_, path, _ := source(b, entries)
		for b.Loop() {
			in, err := os.Open(path)
			check(b, err)
			check(b, durable.WriteFileFunc(durable.OS, path+".copy", true, func(w io.Writer) error {
				_, err := io.Copy(w, in)
				return err
			}))
			check(b, in.Close())
		}
	})
}

// full takes the pad out of a header, as another program writes it.
func full(b *testing.B, path string) {
	b.Helper()
	data, err := os.ReadFile(path)
	check(b, err)
	line, rest, _ := strings.Cut(string(data), "\n")
	var header map[string]any
	check(b, json.Unmarshal([]byte(line), &header))
	delete(header, "pad")
	delete(header, "crc")
	header["type"] = "session"
	out, err := json.Marshal(header)
	check(b, err)
	check(b, durable.WriteFile(durable.OS, path, true, append(append(out, '\n'), rest...)))
}
