// Package gc benchmarks the collector: a look at a home of 10,000 sessions with
// 100,000 blobs, the first and a later one, beside reading the same files.
package gc

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/gc"
)

const (
	sessions = 10_000
	blobs    = 100_000
	projects = 50
	// garbage are the blobs that nothing names, so that the look has to be a whole one.
	garbage = 1_000
	// entries of a session, of which every fourth shows an image: 35 KB a log.
	entries = 40
	perLog  = (blobs - garbage) / sessions
)

// home makes the home once for all benchmarks.
func home(b *testing.B) string {
	b.Helper()
	home := b.TempDir()
	must(b, os.MkdirAll(filepath.Join(home, "blobs"), 0o700))
	must(b, os.WriteFile(filepath.Join(home, "agentrun.home"), nil, 0o600))
	day := time.Now().Add(-24 * time.Hour)
	refs := make([]blobref.Ref, blobs)
	for i := range refs {
		// A small screenshot; a tenth is text, which has to be read for what it mentions.
		data := append([]byte("\x89PNG\r\n\x1a\n"), binary.LittleEndian.AppendUint64(nil, uint64(i))...)
		data = append(data, make([]byte, 1000)...)
		if i%10 == 0 {
			data = []byte(strings.Repeat(fmt.Sprintf("line %d of a file\n", i), 60))
		}
		refs[i] = blobref.Of(data)
		path := filepath.Join(home, "blobs", refs[i].Hex())
		must(b, os.WriteFile(path, data, 0o600))
		must(b, os.Chtimes(path, day, day))
	}
	text := strings.Repeat("the quick brown fox jumps over the lazy dog ", 18)
	for i := range sessions {
		dir := filepath.Join(home, "sessions", fmt.Sprintf("-project-%d", i%projects))
		must(b, os.MkdirAll(dir, 0o700))
		var log strings.Builder
		fmt.Fprintf(&log, `{"type":"session","version":3,"id":"01a1fa9b-0000-7000-8000-%012d","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p"}`+"\n", i)
		for e := range entries {
			ref := ""
			if k := e / 4; e%4 == 3 && k < perLog {
				ref = refs[i*perLog+k].String()
			}
			fmt.Fprintf(&log, `{"type":"message","id":"%024x","parentId":null,"timestamp":"2026-11-20T20:17:07.977Z","message":{"role":"user","content":[{"type":"text","text":"%s"},{"type":"image","data":"%s"}]},"crc":"00000000"}`+"\n", e, text, ref)
		}
		path := filepath.Join(dir, fmt.Sprintf("2026-11-20T20-17-07-977Z_01a1fa9b-0000-7000-8000-%012d.jsonl", i))
		must(b, os.WriteFile(path, []byte(log.String()), 0o600))
		must(b, os.Chtimes(path, day, day))
	}
	return home
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

// BenchmarkMark is a dry run: at most 2 s, also the first one.
func BenchmarkMark(b *testing.B) {
	if testing.Short() {
		b.Skip("makes 110,000 files; run without -short")
	}
	home := home(b)
	look := func(b *testing.B) {
		m, err := session.OpenManager(home, session.Options{})
		must(b, err)
		r, err := gc.Run(context.Background(), m, gc.Options{})
		must(b, err)
		if want := blobs - sessions*perLog; r.Blobs.Count != want || len(r.Kept) > 0 {
			b.Fatalf("%+v, want %d blobs", r, want)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			os.Remove(filepath.Join(home, "mark.cache"))
			b.StartTimer()
			look(b)
		}
	})
	b.Run("later", func(b *testing.B) {
		look(b)
		for b.Loop() {
			look(b)
		}
	})
	b.Run("stat+open+read", func(b *testing.B) {
		buf := make([]byte, 1<<20)
		for b.Loop() {
			logs, err := filepath.Glob(filepath.Join(home, "sessions", "*", "*.jsonl"))
			must(b, err)
			if _, err := os.ReadDir(filepath.Join(home, "blobs")); err != nil {
				b.Fatal(err)
			}
			for _, path := range logs {
				f, err := os.Open(path)
				must(b, err)
				if _, err := f.Stat(); err != nil {
					b.Fatal(err)
				}
				for n := 1; n > 0; {
					n, _ = f.Read(buf)
				}
				f.Close()
			}
		}
	})
}
