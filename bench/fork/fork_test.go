// Package fork benchmarks forks of sessions: what they take of time and of the disk,
// beside what the file system itself takes. See BENCHMARKS.md.
package fork

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

var words = strings.Repeat("the quick brown fox jumps over the lazy dog and reads the session file again ", 8)

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func message(i int) entry.Body {
	return entry.MessageBody{Message: json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d %s","timestamp":%d}`, i, words[:500], 1_760_000_000_000+i))}
}

// source makes a session with a log of about logBytes.
func source(b testing.TB, d session.Durability, logBytes int64) (*session.Manager, *session.Session) {
	b.Helper()
	ctx := context.Background()
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: d})
	check(b, err)
	s, err := m.Create(ctx, b.TempDir(), session.CreateOptions{})
	check(b, err)
	b.Cleanup(func() { s.Close() })
	const batch = 4
	for i := 0; ; i += batch {
		bodies := make([]entry.Body, 0, batch)
		for k := range batch {
			bodies = append(bodies, message(i+k))
		}
		_, err := s.AppendAll(ctx, bodies...)
		check(b, err)
		info, err := os.Stat(s.Path())
		check(b, err)
		if info.Size() >= logBytes {
			return m, s
		}
	}
}

// spill gives the session n artifacts of size bytes. Their blocks are reserved and not
// written: a fork that reads or copies them costs as much, and the setup less.
func spill(b testing.TB, s *session.Session, n int, size int64) {
	b.Helper()
	ctx := context.Background()
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
	zeros := make([]byte, 1<<20)
	for range n {
		f, err := d.Create(ctx, "bash", artifacts.Provenance{Run: "0198f2d3-1111-7222-8333-444455556666"})
		check(b, err)
		var lines lineindex.Builder
		for left := size; left > 0; left -= min(left, int64(len(zeros))) {
			_, err := lines.Write(zeros[:min(left, int64(len(zeros)))])
			check(b, err)
		}
		osf, err := os.OpenFile(f.Path(), os.O_WRONLY, 0)
		check(b, err)
		if unix.Fallocate(int(osf.Fd()), 0, 0, size) != nil {
			check(b, osf.Truncate(size))
		}
		check(b, osf.Close())
		check(b, f.Finish(lines.Index()))
		check(b, f.Close())
	}
}

// usage is what the files below dir take of the disk, each inode once.
func usage(b testing.TB, dir string) int64 {
	b.Helper()
	seen := map[uint64]bool{}
	var total int64
	check(b, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if !seen[st.Ino] {
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
		return nil
	}))
	return total
}

func fork(b testing.TB, m *session.Manager, s *session.Session, o session.ForkOptions) session.Forked {
	b.Helper()
	forked, err := m.Fork(context.Background(), s.Path(), o)
	check(b, err)
	if len(forked.Artifacts.Failed) > 0 {
		b.Fatal(forked.Artifacts.Failed)
	}
	return forked
}

// remove takes a fork away, so that a run leaves no thousand of them.
func remove(b testing.TB, f session.Forked) {
	b.Helper()
	check(b, os.RemoveAll(strings.TrimSuffix(f.Path, ".jsonl")))
	check(b, os.Remove(f.Path))
}

// BenchmarkGigabyte forks a session of 1 GB in 1,000 artifacts, made by agentrun, and
// a log of 50 KB, beside a thousand links. disk-bytes is what a fork takes. The first
// fork of a session packs the provenance; those behind it find it packed.
func BenchmarkGigabyte(b *testing.B) {
	for _, d := range []struct {
		name       string
		durability session.Durability
	}{{"sync", session.Sync}, {"flush", session.Flush}} {
		b.Run("first/"+d.name, func(b *testing.B) {
			m, s := source(b, d.durability, 50_000)
			spill(b, s, 1000, 1_000_000)
			for b.Loop() {
				f := fork(b, m, s, session.ForkOptions{})
				b.StopTimer()
				packs, err := filepath.Glob(filepath.Join(s.ArtifactsDir(), ".artifacts-*.json"))
				check(b, err)
				for _, p := range packs {
					check(b, os.Remove(p))
				}
				remove(b, f)
				b.StartTimer()
			}
		})
		b.Run("again/"+d.name, func(b *testing.B) {
			m, s := source(b, d.durability, 50_000)
			spill(b, s, 1000, 1_000_000)
			before := usage(b, m.Home())
			f := fork(b, m, s, session.ForkOptions{})
			disk := usage(b, m.Home()) - before
			remove(b, f)
			for b.Loop() {
				f := fork(b, m, s, session.ForkOptions{})
				b.StopTimer()
				remove(b, f)
				b.StartTimer()
			}
			b.ReportMetric(float64(disk), "disk-bytes")
		})
	}
	b.Run("link", func(b *testing.B) {
		_, s := source(b, session.Flush, 50_000)
		spill(b, s, 1000, 1_000_000)
		to := filepath.Join(b.TempDir(), "to")
		for b.Loop() {
			check(b, os.Mkdir(to, 0o700))
			for i := range 1000 {
				name := fmt.Sprintf("%d.bash.log", i)
				check(b, os.Link(filepath.Join(s.ArtifactsDir(), name), filepath.Join(to, name)))
			}
			b.StopTimer()
			check(b, os.RemoveAll(to))
			b.StartTimer()
		}
	})
}

// BenchmarkHundredForks reports what 100 forks of that session take of the disk.
func BenchmarkHundredForks(b *testing.B) {
	if testing.Short() {
		b.Skip("it takes seconds for each round")
	}
	m, s := source(b, session.Sync, 50_000)
	spill(b, s, 1000, 1_000_000)
	before := usage(b, m.Home())
	for b.Loop() {
		var forks []session.Forked
		for range 100 {
			forks = append(forks, fork(b, m, s, session.ForkOptions{}))
		}
		b.StopTimer()
		b.ReportMetric(float64(usage(b, m.Home())-before), "disk-bytes")
		for _, f := range forks {
			remove(b, f)
		}
		b.StartTimer()
	}
}

// BenchmarkEntries forks a log of 10,000 entries, whole, as it was in its middle, and
// the path to that entry.
func BenchmarkEntries(b *testing.B) {
	m, s := source(b, session.Sync, 1)
	ctx := context.Background()
	for i := range 156 {
		bodies := make([]entry.Body, 0, 64)
		for k := range 64 {
			bodies = append(bodies, message(64*i+k))
		}
		_, err := s.AppendAll(ctx, bodies...)
		check(b, err)
	}
	t, err := s.Tree(ctx)
	check(b, err)
	middle := t.Node(t.Len() / 2).ID
	for _, c := range []struct {
		name string
		o    session.ForkOptions
	}{
		{"whole", session.ForkOptions{}},
		{"at", session.ForkOptions{At: middle}},
		{"path-only", session.ForkOptions{PathOnly: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				f := fork(b, m, s, c.o)
				b.StopTimer()
				check(b, os.Remove(f.Path))
				b.StartTimer()
			}
		})
	}
}

// BenchmarkLargeLog forks a log of 256 MiB beside a plain copy of the file, without
// waiting for the disk and with.
func BenchmarkLargeLog(b *testing.B) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 8 << 20
	}
	m, s := source(b, session.Flush, size)
	synced, err := session.OpenManager(m.Home(), session.Options{})
	check(b, err)
	for _, c := range []struct {
		name string
		m    *session.Manager
	}{{"flush", m}, {"sync", synced}} {
		b.Run("fork/"+c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				f := fork(b, c.m, s, session.ForkOptions{})
				b.StopTimer()
				check(b, os.Remove(f.Path))
				b.StartTimer()
			}
		})
		b.Run("copy/"+c.name, func(b *testing.B) {
			b.SetBytes(size)
			name := s.Path() + ".copy"
			for b.Loop() {
				from, err := os.Open(s.Path())
				check(b, err)
				to, err := os.Create(name)
				check(b, err)
				_, err = io.Copy(to, from)
				check(b, err)
				if c.m == synced {
					check(b, to.Sync())
				}
				check(b, to.Close())
				check(b, from.Close())
				b.StopTimer()
				check(b, os.Remove(name))
				b.StartTimer()
			}
		})
	}
}
