// Package artifacts_test measures the artifact directory beside what it must not
// cost more than: the peer's way to find a file (list the directory, compare
// prefixes), and reading the same bytes at a known offset.
package artifacts_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool/read"
)

const files = 10_000

// crowd makes a directory of 10,000 artifacts; with provenance, as agentrun
// leaves them, or without, as other programs do.
func crowd(b *testing.B, provenance bool) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "s")
	if err := os.MkdirAll(filepath.Join(dir, ".index"), 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(fmt.Sprintf("%s/%d.bash.log", dir, i), []byte("x\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		side := fmt.Sprintf(`{"run":"r%d","tool":"bash","created":"2026-11-20T20:17:07Z","pid":1,"pidStart":1,"host":"h","bootId":"b","state":"complete","bytes":2,"lines":1,"crc32c":"00000000"}`, i)
		if provenance {
			if err := os.WriteFile(fmt.Sprintf("%s/.artifact-%d.json", dir, i), []byte(side), 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	return dir
}

// BenchmarkLookup finds one of 10,000 artifacts: at most 20 us.
func BenchmarkLookup(b *testing.B) {
	for _, c := range []struct {
		name       string
		provenance bool
	}{{"ours", true}, {"foreign", false}} {
		b.Run(c.name, func(b *testing.B) {
			d := artifacts.Open(crowd(b, c.provenance), artifacts.Options{})
			if _, err := d.Lookup(b.Context(), 0); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			id := int64(0)
			for b.Loop() {
				id = (id + 7919) % files
				if _, err := d.Lookup(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"-cold", func(b *testing.B) {
			dir := crowd(b, c.provenance)
			id := int64(0)
			for b.Loop() {
				id = (id + 7919) % files
				if _, err := artifacts.Open(dir, artifacts.Options{}).Lookup(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("peer-readdir-prefix", func(b *testing.B) {
		dir := crowd(b, false)
		id := 0
		for b.Loop() {
			id = (id + 7919) % files
			entries, err := os.ReadDir(dir)
			if err != nil {
				b.Fatal(err)
			}
			prefix, found := fmt.Sprintf("%d.", id), false
			for _, e := range entries {
				found = found || strings.HasPrefix(e.Name(), prefix)
			}
			if !found {
				b.Fatal("not found")
			}
		}
	})
}

// BenchmarkCreate takes a number and finishes an artifact, in an empty directory
// and among 10,000; a bare exclusive create of two files beside it.
func BenchmarkCreate(b *testing.B) {
	for name, dir := range map[string]func(b *testing.B) string{
		"empty": func(b *testing.B) string { return filepath.Join(b.TempDir(), "s") },
		"crowd": func(b *testing.B) string { return crowd(b, true) },
	} {
		b.Run(name, func(b *testing.B) {
			d := artifacts.Open(dir(b), artifacts.Options{})
			b.ReportAllocs()
			for b.Loop() {
				f, err := d.Create(b.Context(), "bash", artifacts.Provenance{})
				if err != nil {
					b.Fatal(err)
				}
				// Removed again, so that the directory stays as it is.
				if err := f.Discard(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// big is an artifact of 50 MiB in lines of 100 bytes.
func big(b *testing.B, indexed bool) (*artifacts.Dir, string) {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "s")
	content := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 50<<20/100)
	d := artifacts.Open(dir, artifacts.Options{})
	f, err := d.Create(b.Context(), "bash", artifacts.Provenance{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		b.Fatal(err)
	}
	var builder lineindex.Builder
	_, _ = builder.Write(content)
	if err := f.Finish(builder.Index()); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	if !indexed {
		if err := os.RemoveAll(filepath.Join(dir, ".index")); err != nil {
			b.Fatal(err)
		}
	}
	return d, dir
}

// BenchmarkLines opens an artifact of 50 MiB and reads line 500,000 or its last
// 100 lines: at most 1 ms each. The bare pread of the same bytes is beside them.
func BenchmarkLines(b *testing.B) {
	d, dir := big(b, true)
	for _, c := range []struct {
		name string
		get  func(ctx context.Context, r *artifacts.Reader) (artifacts.Section, error)
	}{
		{"line-500000", func(ctx context.Context, r *artifacts.Reader) (artifacts.Section, error) {
			return r.Lines(ctx, 500_000, 500_000)
		}},
		{"last-100", func(ctx context.Context, r *artifacts.Reader) (artifacts.Section, error) { return r.Tail(ctx, 100) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := d.Open(b.Context(), 0)
				if err != nil {
					b.Fatal(err)
				}
				s, err := c.get(b.Context(), r)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, s); err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
	b.Run("bare-pread", func(b *testing.B) {
		buf := make([]byte, 100)
		for b.Loop() {
			f, err := os.Open(filepath.Join(dir, "0.bash.log"))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := f.ReadAt(buf, 499_999*100); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}

// BenchmarkRead is the same through a URL and a sanitised page, as `agentrun
// read` does it.
func BenchmarkRead(b *testing.B) {
	_, dir := big(b, true)
	router := internalurl.NewRouter(internalurl.Sources{Session: view(dir)})
	for name, url := range map[string]string{
		"first-page": "artifact://0", "line-500000": "artifact://0:500000+1", "last-100": "artifact://0:-100",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := read.Read(b.Context(), router, url, read.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFirstIndex counts the lines of 50 MiB that came without an index.
func BenchmarkFirstIndex(b *testing.B) {
	d, dir := big(b, false)
	b.SetBytes(50 << 20)
	for b.Loop() {
		r, err := d.Open(b.Context(), 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Index(b.Context()); err != nil {
			b.Fatal(err)
		}
		r.Close()
		if err := os.RemoveAll(filepath.Join(dir, ".index")); err != nil {
			b.Fatal(err)
		}
	}
}

// view is a session that has artifacts and nothing else.
type view string

func (view) ID() string                               { return "" }
func (v view) ArtifactsDir() string                   { return string(v) }
func (view) Metadata(context.Context) ([]byte, error) { return nil, internalurl.ErrNoSession }

func (view) EntryJSON(context.Context, string) ([]byte, error) { return nil, internalurl.ErrNoEntry }
