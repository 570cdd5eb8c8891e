// Package bundle benchmarks sessions that travel: export and import beside zstd on the
// same bytes, with the same encoder and level. See BENCHMARKS.md.
package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// size of a session: a third is its log, the rest 64 artifacts.
func size(b *testing.B) int {
	if testing.Short() {
		return 8 << 20
	}
	return 288 << 20
}

// text is what a build prints: lines alike, with numbers and names that differ. zstd
// makes a sixth of it, as of recorded sessions and logs.
func text(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	words := strings.Fields("compiling linking test passed failed module package error warning note candidate expected found parser scanner token stream buffer session artifact index")
	for b.Len() < n {
		fmt.Fprintf(&b, "2026-11-21T10:%02d:%02d.%03dZ [%d] %s/%s.go:%d: %s %s %s (%d ms)\n", r.IntN(60), r.IntN(60), r.IntN(1000), r.IntN(9000),
			words[r.IntN(len(words))], words[r.IntN(len(words))], r.IntN(500), words[r.IntN(len(words))], words[r.IntN(len(words))], words[r.IntN(len(words))], r.IntN(100))
	}
	return b.Bytes()[:n]
}

// made is a session and its home.
func made(b *testing.B) (*session.Manager, *session.Session, int64) {
	b.Helper()
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush})
	if err != nil {
		b.Fatal(err)
	}
	s, err := m.Create(context.Background(), b.TempDir(), session.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	r := rand.New(rand.NewPCG(1, 2))
	total := size(b)
	var bodies []entry.Body
	for written := 0; written < total/3; {
		n := 400 + r.IntN(12_000)
		bodies = append(bodies, entry.UserMessage{Content: entry.PlainText(string(text(r, n)))})
		written += n
	}
	if _, err := s.AppendAll(context.Background(), bodies...); err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(s.ArtifactsDir(), 0o700); err != nil {
		b.Fatal(err)
	}
	const artifacts = 64
	for i := range artifacts {
		if err := os.WriteFile(filepath.Join(s.ArtifactsDir(), fmt.Sprintf("%d.bash.log", i)), text(r, total*2/3/artifacts), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var bytes int64
	for _, name := range files(b, s) {
		info, err := os.Stat(name)
		if err != nil {
			b.Fatal(err)
		}
		bytes += info.Size()
	}
	return m, s, bytes
}

// files of a session, in the order of a bundle.
func files(b *testing.B, s *session.Session) []string {
	names, err := filepath.Glob(s.ArtifactsDir() + "/*.log")
	if err != nil {
		b.Fatal(err)
	}
	return append([]string{s.Path()}, names...)
}

// compressed reads the files of a session through zstd.
func compressed(b *testing.B, s *session.Session, w io.Writer) {
	b.Helper()
	enc, err := zstd.NewWriter(w)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for _, name := range files(b, s) {
		f, err := os.Open(name)
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{enc}, struct{ io.Reader }{f}, buf)
			f.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := enc.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExport makes a bundle of a session, on no disk. At least 0.7 of zstd's own
// speed.
func BenchmarkExport(b *testing.B) {
	m, s, size := made(b)
	b.Run("agentrun", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, err := bundle.Export(context.Background(), io.Discard, m, s, bundle.ExportOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("zstd", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			compressed(b, s, io.Discard)
		}
	})
}

// BenchmarkImport verifies a bundle and brings it into an empty home, beside zstd that
// decompresses the same bytes: into one file, which is as much a file as the import's,
// and into nothing. At least 0.7 of zstd's own speed.
func BenchmarkImport(b *testing.B) {
	m, s, size := made(b)
	var packed, plain bytes.Buffer
	if _, err := bundle.Export(context.Background(), &packed, m, s, bundle.ExportOptions{}); err != nil {
		b.Fatal(err)
	}
	compressed(b, s, &plain)
	for _, how := range []struct {
		name string
		d    session.Durability
	}{{"flush", session.Flush}, {"sync", session.Sync}} {
		b.Run("agentrun-"+how.name, func(b *testing.B) {
			b.SetBytes(size)
			root := b.TempDir()
			for b.Loop() {
				home := filepath.Join(root, "home")
				m, err := session.OpenManager(home, session.Options{Durability: how.d})
				if err == nil {
					_, err = bundle.Import(context.Background(), m, bytes.NewReader(packed.Bytes()), bundle.ImportOptions{})
				}
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := os.RemoveAll(home); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run("zstd-to-file-"+how.name, func(b *testing.B) {
			b.SetBytes(size)
			name := filepath.Join(b.TempDir(), "file")
			for b.Loop() {
				f, err := os.Create(name)
				if err != nil {
					b.Fatal(err)
				}
				decompress(b, plain.Bytes(), f)
				if how.d == session.Sync {
					if err := f.Sync(); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				f.Close()
				if err := os.Remove(name); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
	b.Run("zstd-to-nothing", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			decompress(b, plain.Bytes(), struct{ io.Writer }{io.Discard})
		}
	})
}

func decompress(b *testing.B, data []byte, w io.Writer) {
	b.Helper()
	dec, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		b.Fatal(err)
	}
	defer dec.Close()
	if _, err := io.Copy(w, dec); err != nil {
		b.Fatal(err)
	}
}
