// Package outputsink measures the sink against a plain write of the same chunks to the same file system, in the same
// run: BenchmarkSink/<place>/<output>/sink and .../plain. The place is a tmpfs where there is one, and the temporary
// directory.
package outputsink

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/outputsink"
)

const (
	streamBytes = 256 << 20
	chunkBytes  = 4 << 10
)

// file is an artifact without a name, index or fsync, as the plain write has none.
type file struct{ *os.File }

func (file) URL() string                   { return "artifact://0" }
func (file) Finish(outputsink.Index) error { return nil }

// chunks are 1 MiB of output in pieces of 4 KiB, of which the stream repeats the whole.
func chunks(line func(i int) string) [][]byte {
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		b.WriteString(line(i))
	}
	var all [][]byte
	for p := []byte(b.String()[:1<<20]); len(p) > 0; p = p[chunkBytes:] {
		all = append(all, p[:chunkBytes])
	}
	return all
}

var outputs = []struct {
	name string
	line func(i int) string
}{
	{"clean", func(i int) string { return fmt.Sprintf("%08d %s\n", i, strings.Repeat("x", 90)) }},
	{"ansi-crlf", func(i int) string {
		return fmt.Sprintf("\x1b[32m%08d\x1b[0m \x1b[1;31merror\x1b[0m %s\r\n", i, strings.Repeat("x", 64))
	}},
	{"utf8", func(i int) string { return fmt.Sprintf("%08d %s\n", i, strings.Repeat("日本語 é ", 8)) }},
	{"progress", func(i int) string { return fmt.Sprintf("\r%3d%% %s", i%100, strings.Repeat("#", i%100)) }},
}

func places(b *testing.B) map[string]string {
	p := map[string]string{"disk": b.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "agentrun-bench"); err == nil {
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
		p["tmpfs"] = dir
	}
	return p
}

func BenchmarkSink(b *testing.B) {
	for place, dir := range places(b) {
		for _, o := range outputs {
			c := chunks(o.line)
			b.Run(place+"/"+o.name+"/plain", func(b *testing.B) {
				b.SetBytes(streamBytes)
				for b.Loop() {
					f := create(b, dir)
					for i := range streamBytes / chunkBytes {
						if _, err := f.Write(c[i%len(c)]); err != nil {
							b.Fatal(err)
						}
					}
					remove(b, f)
				}
			})
			b.Run(place+"/"+o.name+"/sink", func(b *testing.B) {
				b.SetBytes(streamBytes)
				for b.Loop() {
					f := create(b, dir)
					throughSink(b, c, streamBytes, func() (outputsink.File, error) { return keepOpen{file{f}}, nil })
					remove(b, f)
				}
			})
		}
	}
}

// keepOpen leaves closing to the benchmark, which times it for both.
type keepOpen struct{ file }

func (keepOpen) Close() error { return nil }

func create(b *testing.B, dir string) *os.File {
	b.Helper()
	f, err := os.CreateTemp(dir, "out")
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// remove closes and removes a file; what the removal takes is not counted.
func remove(b *testing.B, f *os.File) {
	b.Helper()
	if st, err := f.Stat(); err != nil || st.Size() != streamBytes {
		b.Fatalf("the file is not the stream: %v", err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := os.Remove(f.Name()); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

func throughSink(b *testing.B, c [][]byte, size int, open func() (outputsink.File, error)) {
	b.Helper()
	o := outputsink.DefaultOptions()
	o.Open = open
	s := outputsink.New(o)
	w := s.Stdout()
	for i := range size / chunkBytes {
		if _, err := w.Write(c[i%len(c)]); err != nil {
			b.Fatal(err)
		}
	}
	sum, err := s.Close()
	if err != nil || sum.TotalBytes != int64(size) {
		b.Fatalf("%d bytes, %v", sum.TotalBytes, err)
	}
}

// BenchmarkSanitizer is the sanitizer alone.
func BenchmarkSanitizer(b *testing.B) {
	for _, o := range outputs {
		c := chunks(o.line)
		b.Run(o.name, func(b *testing.B) {
			var s outputsink.Sanitizer
			var dst []byte
			b.SetBytes(1 << 20)
			for b.Loop() {
				for _, p := range c {
					dst = s.Append(dst[:0], p)
				}
			}
		})
	}
}

// BenchmarkSmallCommand is a command that prints ten lines: nearly all commands do.
func BenchmarkSmallCommand(b *testing.B) {
	lines := []byte(strings.Repeat("some text of a small command\n", 10))
	b.ReportAllocs()
	for b.Loop() {
		s := outputsink.New(outputsink.DefaultOptions())
		_, _ = s.Stdout().Write(lines)
		if sum, err := s.Close(); err != nil || sum.Truncated {
			b.Fatal(err)
		}
	}
}

// nowhere is a file that keeps nothing.
type nowhere struct{ file }

func (nowhere) Write(p []byte) (int, error)           { return len(p), nil }
func (nowhere) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) Close() error                          { return nil }

// BenchmarkMemory puts 10 GB through a sink and reports how much the heap has grown while it is open.
func BenchmarkMemory(b *testing.B) {
	c := chunks(outputs[0].line)
	const size = 10 << 30
	b.SetBytes(size)
	var grown int64
	for b.Loop() {
		before := heap()
		o := outputsink.DefaultOptions()
		o.Open = func() (outputsink.File, error) { return nowhere{}, nil }
		s := outputsink.New(o)
		w := s.Stdout()
		for i := range size / chunkBytes {
			_, _ = w.Write(c[i%len(c)])
		}
		grown = max(grown, heap()-before)
		if sum, err := s.Close(); err != nil || sum.TotalBytes != size {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(grown)/1024, "KiB-held")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
