package lineindex

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// withCells returns a builder whose cells begin small, so that small inputs have many samples and thinning happens.
func withCells(every int64) *Builder { return &Builder{every: every, next: every} }

func build(t testing.TB, data []byte) Index {
	t.Helper()
	ix, err := Build(context.Background(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// starts returns the offsets of all lines, and the size behind them.
func starts(data []byte) []int64 {
	s := []int64{}
	for off := 0; off < len(data); {
		s = append(s, int64(off))
		i := bytes.IndexByte(data[off:], '\n')
		if i < 0 {
			break
		}
		off += i + 1
	}
	return append(s, int64(len(data)))
}

func TestTotalsCountNewlinesAndAnUnterminatedLastLine(t *testing.T) {
	for _, c := range []struct {
		name, data string
		lines      int64
		partial    bool
	}{
		{"nothing", "", 0, false},
		{"only a newline", "\n", 1, false},
		{"a line without its newline", "a", 1, true},
		{"a line with its newline", "a\n", 1, false},
		{"an unterminated second line", "a\nb", 2, true},
		{"empty lines", "\n\n\n", 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ix := build(t, []byte(c.data))
			if ix.Size != int64(len(c.data)) || ix.Lines != c.lines || ix.Partial != c.partial {
				t.Errorf("got %d bytes, %d lines, partial %v; want %d, %d, %v", ix.Size, ix.Lines, ix.Partial, len(c.data), c.lines, c.partial)
			}
			if want := crc32.Checksum([]byte(c.data), castagnoli); ix.CRC32C != want {
				t.Errorf("CRC %08x, want %08x", ix.CRC32C, want)
			}
		})
	}
}

// text draws text of short lines with a few long ones between them.
func text(t *rapid.T) []byte {
	seed := rapid.Uint64().Draw(t, "seed")
	lines := rapid.IntRange(0, 3000).Draw(t, "lines")
	short := rapid.IntRange(1, 40).Draw(t, "short")
	long := rapid.IntRange(1, 3000).Draw(t, "long")
	r := rand.New(rand.NewPCG(seed, 1))
	var b []byte
	for range lines {
		n := r.IntN(short)
		if r.IntN(50) == 0 {
			n = r.IntN(long)
		}
		b = append(b, bytes.Repeat([]byte{'x'}, n)...)
		b = append(b, '\n')
	}
	return append(b, bytes.Repeat([]byte{'y'}, rapid.IntRange(0, 40).Draw(t, "rest"))...)
}

func TestAnySplitAndAnyGrowthGiveTheSameIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := text(t)
		every := int64(8) << rapid.IntRange(0, 5).Draw(t, "every")
		whole := withCells(every)
		_, _ = whole.Write(data)
		want := whole.Index()

		parts := withCells(every)
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 5000)).Draw(t, "chunk")
			_, _ = parts.Write(rest[:n])
			rest = rest[n:]
			if rapid.IntRange(0, 4).Draw(t, "resume") == 0 {
				parts = Resume(parts.Index())
			}
			if ix := parts.Index(); ix.Size != parts.Size() || ix.Lines != parts.Lines() {
				t.Fatalf("the index says %d bytes and %d lines, the builder %d and %d", ix.Size, ix.Lines, parts.Size(), parts.Lines())
			}
		}
		got := parts.Index()
		if len(want.samples) == 0 {
			want.samples, got.samples = nil, nil
		}
		if len(data) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("in parts: %+v\nat once: %+v", got, want)
		}
	})
}

func TestEveryRangeOfLinesIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := text(t)
		b := withCells(int64(16) << rapid.IntRange(0, 6).Draw(t, "every"))
		_, _ = b.Write(data)
		ix, lines := b.Index(), starts(data)
		if ix.Lines != int64(len(lines)-1) {
			t.Fatalf("%d lines, want %d", ix.Lines, len(lines)-1)
		}
		for range min(50, len(lines)-1) {
			first := rapid.Int64Range(1, ix.Lines).Draw(t, "first")
			last := rapid.Int64Range(first, ix.Lines).Draw(t, "last")
			off, end, err := ix.LineRange(bytes.NewReader(data), first, last)
			if err != nil || off != lines[first-1] || end != lines[last] {
				t.Fatalf("lines %d to %d: bytes %d to %d, %v; want %d to %d", first, last, off, end, err, lines[first-1], lines[last])
			}
			if at, from := ix.Nearest(first); at > first || lines[at-1] != from || lines[first-1]-from >= ix.Every() {
				t.Fatalf("line %d at %d: the nearest is line %d at %d, cells of %d bytes", first, lines[first-1], at, from, ix.Every())
			}
		}
	})
}

func TestAnIndexStaysSmallWhateverTheSize(t *testing.T) {
	block := bytes.Repeat([]byte("0123456\n"), 1<<17) // 1 MiB
	var b Builder
	for range 600 {
		_, _ = b.Write(block)
	}
	ix := b.Index()
	if len(ix.samples) >= maxSamples || len(ix.samples) < maxSamples/2-1 {
		t.Errorf("%d samples for 600 MiB", len(ix.samples))
	}
	if ix.Lines != 600<<17 || ix.Every() != 128<<10 {
		t.Errorf("%d lines, cells of %d bytes", ix.Lines, ix.Every())
	}
	if n := len(ix.Marshal(Stamp{})); n > 64<<10 {
		t.Errorf("%d bytes encoded", n)
	}
}

func TestLongLinesEverywhereStillThinTheSamples(t *testing.T) {
	// Each line fills more than four cells, so that doubling the cells once drops none of the samples.
	b := withCells(8)
	line := append(bytes.Repeat([]byte{'x'}, 99), '\n')
	for range 3 * maxSamples {
		_, _ = b.Write(line)
	}
	if n := len(b.samples); n >= maxSamples {
		t.Fatalf("%d samples", n)
	}
	ix := b.Index()
	if at, off := ix.Nearest(20000); at > 20000 || 19999*100-off >= ix.Every() {
		t.Errorf("nearest to line 20000: %d at %d, cells of %d", at, off, ix.Every())
	}
}

// countingReaderAt is a file of which only the first `real` bytes exist; it counts what is read.
type countingReaderAt struct {
	io.ReaderAt
	read int64
}

func (c *countingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	c.read += int64(len(p))
	return c.ReaderAt.ReadAt(p, off)
}

func TestAGiantLineIsPassedWithoutReadingIt(t *testing.T) {
	data := []byte("one\n" + strings.Repeat("x", 8<<20) + "\nthree\nfour\n")
	ix := build(t, data)
	r := &countingReaderAt{ReaderAt: bytes.NewReader(data)}
	for _, c := range []struct{ first, last, off, end int64 }{
		{1, 1, 0, 4},
		{2, 2, 4, 4 + 8<<20 + 1},
		{3, 3, 4 + 8<<20 + 1, 4 + 8<<20 + 7},
		{3, 4, 4 + 8<<20 + 1, int64(len(data))},
		{1, 4, 0, int64(len(data))},
	} {
		r.read = 0
		off, end, err := ix.LineRange(r, c.first, c.last)
		if err != nil || off != c.off || end != c.end {
			t.Errorf("lines %d to %d: %d to %d, %v; want %d to %d", c.first, c.last, off, end, err, c.off, c.end)
		}
		if r.read > 2*ix.Every() {
			t.Errorf("lines %d to %d: %d bytes were read", c.first, c.last, r.read)
		}
	}
}

func TestTail(t *testing.T) {
	ix := build(t, []byte("1\n2\n3\n4"))
	for _, c := range []struct{ n, first, last int64 }{{2, 3, 4}, {4, 1, 4}, {9, 1, 4}, {0, 5, 4}, {-1, 5, 4}} {
		if first, last := ix.Tail(c.n); first != c.first || last != c.last {
			t.Errorf("last %d lines: %d to %d, want %d to %d", c.n, first, last, c.first, c.last)
		}
	}
}

func TestLinesThatAreNotThereAreRefused(t *testing.T) {
	data := []byte("1\n2\n3\n")
	ix := build(t, data)
	for _, c := range [][2]int64{{0, 1}, {-1, 2}, {2, 1}, {4, 4}, {1, 4}} {
		if _, _, err := ix.LineRange(bytes.NewReader(data), c[0], c[1]); !errors.Is(err, ErrRange) {
			t.Errorf("lines %d to %d: %v, want ErrRange", c[0], c[1], err)
		}
	}
	empty := build(t, nil)
	if _, _, err := empty.LineRange(bytes.NewReader(nil), 1, 1); !errors.Is(err, ErrRange) {
		t.Errorf("line 1 of nothing: %v, want ErrRange", err)
	}
}

func TestAFileThatContradictsItsIndexIsNoticed(t *testing.T) {
	data := bytes.Repeat([]byte("line\n"), 100)
	ix := build(t, data)
	for name, file := range map[string][]byte{
		"cut short":        data[:200],
		"without newlines": bytes.Repeat([]byte("x"), len(data)),
	} {
		if _, _, err := ix.LineRange(bytes.NewReader(file), 90, 91); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v, want ErrStale", name, err)
		}
	}
	broken := errors.New("input/output error")
	if _, _, err := ix.LineRange(failingReaderAt{broken}, 90, 91); !errors.Is(err, broken) {
		t.Errorf("a failing disk: %v", err)
	}
}

type failingReaderAt struct{ err error }

func (f failingReaderAt) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestBuildStopsWithItsContextAndReader(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Build(ctx, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	broken := errors.New("input/output error")
	if _, err := Build(context.Background(), iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("failing reader: %v", err)
	}
	if _, err := Build(context.Background(), idleReader{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("idle reader: %v", err)
	}
	if ix, err := Build(context.Background(), iotest.DataErrReader(strings.NewReader("a\nb"))); err != nil || ix.Lines != 2 {
		t.Errorf("data together with EOF: %d lines, %v", ix.Lines, err)
	}
}

type idleReader struct{}

func (idleReader) Read([]byte) (int, error) { return 0, nil }

func BenchmarkBuilder(b *testing.B) {
	chunk := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 41)[:4096]
	var x Builder
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		_, _ = x.Write(chunk)
	}
}

func BenchmarkLineRange(b *testing.B) {
	data := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 50<<20/100)
	ix := build(b, data)
	for b.Loop() {
		if _, _, err := ix.LineRange(bytes.NewReader(data), 499_990, 500_090); err != nil {
			b.Fatal(err)
		}
	}
}
