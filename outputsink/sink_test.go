package outputsink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func numbered(from, to int) []byte {
	var b bytes.Buffer
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.Bytes()
}

func TestWhatIsWholeNeedsNoFile(t *testing.T) {
	for name, in := range map[string]string{
		"no output":                   "",
		"a line":                      "hello\n",
		"an unterminated line":        "hello",
		"exactly MaxBytes":            strings.Repeat(strings.Repeat("x", 511)+"\n", DefaultMaxBytes/512),
		"exactly MaxLines":            strings.Repeat("\n", DefaultMaxLines),
		"lines of exactly MaxColumns": strings.Repeat("x", DefaultMaxColumns) + "\n",
		"a long line rewritten":       strings.Repeat("x", 2000) + "\rshort\n",
		"colours":                     "\x1b[31mred\x1b[0m\n",
	} {
		t.Run(name, func(t *testing.T) {
			sum, _ := run(t, DefaultOptions(), []byte(in))
			check(t, []byte(in), DefaultOptions(), sum, nil)
			if sum.Truncated || sum.Notice != "" || sum.View != sanitize([]byte(in)) {
				t.Errorf("truncated %v, notice %q", sum.Truncated, sum.Notice)
			}
		})
	}
}

func TestNotices(t *testing.T) {
	long := strings.Repeat("x", 1000)
	with := func(f func(*Options)) Options {
		o := DefaultOptions()
		f(&o)
		return o
	}
	for _, c := range []struct {
		name string
		o    Options
		in   string
		want string
	}{
		{
			"lines missing in the middle", DefaultOptions(), string(numbered(1, 300_000)),
			"[Showing lines 1-1200 and 298201-300000 of 300000; 297000 lines (3.3 MB) between them: artifact://0]",
		},
		{
			"the tail only", with(func(o *Options) { o.HeadBytes = 0 }), string(numbered(1, 5000)),
			"[Showing lines 2001-5000 of 5000; 2000 lines (18.5 KB) before them: artifact://0]",
		},
		{
			"the head only",
			Options{MaxBytes: 21, HeadBytes: 21},
			string(numbered(1, 10)),
			"[Showing lines 1-3 of 10; 7 lines (50 B) after them: artifact://0]",
		},
		{
			"single lines",
			Options{MaxBytes: 14, HeadBytes: 7},
			string(numbered(1, 9)),
			"[Showing lines 1 and 9 of 9; 7 lines (49 B) between them: artifact://0]",
		},
		{
			"nothing fits",
			Options{MaxBytes: 1, MaxColumns: 0},
			"é\né\n",
			"[Showing no lines of 2; 2 lines (6 B) in all: artifact://0]",
		},
		{
			"lines shortened", DefaultOptions(), "a\n" + strings.Repeat(long+"\n", 12),
			"[Showing lines 1-13 of 13; 12 lines shortened to 768 bytes: artifact://0]",
		},
		{
			"one line shortened", DefaultOptions(), long,
			"[Showing line 1 of 1; 1 line shortened to 768 bytes: artifact://0]",
		},
		{
			"lines shortened and missing", DefaultOptions(), strings.Repeat(long+"\n", 100),
			"[Showing lines 1-26 and 61-100 of 100; 34 lines (33.2 KB) between them; 66 lines shortened to 768 bytes: artifact://0]",
		},
		{
			"one line larger than the view",
			Options{MaxBytes: 50, HeadBytes: 20},
			strings.Repeat("x", 1<<20),
			"[Showing the beginning of line 1 and the end of line 1 of 1; 1.0 MB in all: artifact://0]",
		},
		{
			"a last line larger than the view",
			Options{MaxBytes: 50, HeadBytes: 20},
			"a\nb\n" + strings.Repeat("x", 100) + "\n",
			"[Showing lines 1-2 and the end of line 3 of 3; 105 B in all: artifact://0]",
		},
		{
			"control sequences only", DefaultOptions(), strings.Repeat("\x1b[31m", 20_000) + "red\n",
			"[Showing line 1 of 1; 100000 bytes of control sequences and rewritten text left out: artifact://0]",
		},
		{"binary", DefaultOptions(), "\x7fELF\x00" + strings.Repeat("x", 12_340), "[Binary output, 12345 bytes: artifact://0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sum, f := run(t, c.o, []byte(c.in))
			check(t, []byte(c.in), c.o, sum, f)
			if sum.Notice != c.want {
				t.Errorf("got  %s\nwant %s", sum.Notice, c.want)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KB", 51200: "50.0 KB", 1<<20 - 1: "1.0 MB", 1 << 20: "1.0 MB", 1 << 30: "1.0 GB", 10 << 30: "10.0 GB", 5 << 40: "5.0 TB", 5000 << 40: "5000.0 TB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestBinaryOutputIsDescribedNotShown(t *testing.T) {
	random := make([]byte, 20_000)
	for i, x := 0, uint32(1); i < len(random); i++ {
		x = x*1664525 + 1013904223
		random[i] = byte(x>>24) | 1 // no NUL
	}
	text := strings.Repeat("some text\n", 1000)
	latin := strings.Repeat("na\xefve caf\xe9\n", 1000)
	for _, c := range []struct {
		name   string
		in     string
		binary bool
	}{
		{"a NUL at the beginning", "\x00", true},
		{"a NUL as the last byte of the window", text[:BinaryWindow-1] + "\x00", true},
		{"a NUL behind the window", text[:BinaryWindow] + "\x00" + text, false},
		{"random bytes without NUL", string(random), true},
		{"invalid bytes only", strings.Repeat("\xff", 100), true},
		{"invalid bytes behind the window", text[:BinaryWindow] + string(random), false},
		{"a few invalid bytes", "\xff\xfe\xfd", false},
		{"text in Latin-1", latin, false},
		{"text in Japanese", strings.Repeat("日本語のテキスト\n", 1000), false},
		{"nothing but colours", strings.Repeat("\x1b[31m\x1b[0m", 1000), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{len(c.in), 1000, 7} {
				var chunks [][]byte
				for rest := []byte(c.in); len(rest) > 0; {
					n := min(size, len(rest))
					chunks = append(chunks, rest[:n])
					rest = rest[n:]
				}
				sum, f := run(t, DefaultOptions(), chunks...)
				check(t, []byte(c.in), DefaultOptions(), sum, f)
				if sum.Binary != c.binary {
					t.Errorf("in chunks of %d: binary %v, want %v", size, sum.Binary, c.binary)
				}
				if c.binary && (sum.Text != "" || sum.View != sum.Notice || sum.ShownBytes != 0 || sum.Ranges != nil) {
					t.Errorf("binary output is shown: %.100q", sum.View)
				}
			}
		})
	}
}

func TestSanitizedBytesAreThoseThatAreNoText(t *testing.T) {
	for in, want := range map[string]int64{
		"plain\n":               0,
		"é\t😀\n":                0,
		"\x1b[31mred\x1b[0m\n":  9,
		"a\r\n":                 1,
		"10%\r20%\r100%\n":      8,
		"é\xffé\n":              1,
		"é\xff\rx\n":            4,
		"a\x1b]0;never":         9,
		"10%\x1b[2K\x1b[1Gok\n": 11,
		"\xe2\x82":              2,
	} {
		sum, _ := run(t, DefaultOptions(), []byte(in))
		if sum.SanitizedBytes != want {
			t.Errorf("%q: %d, want %d", in, sum.SanitizedBytes, want)
		}
	}
}

func TestLargeOutputs(t *testing.T) {
	if testing.Short() {
		t.Skip("a hundred megabytes")
	}
	for _, c := range []struct {
		name  string
		chunk string
		times int
		o     Options
		lines int64
	}{
		{"a line without an end", strings.Repeat("x", 64<<10), 1 << 10, DefaultOptions(), 1},
		{"a line without an end, not shortened", strings.Repeat("x", 64<<10), 1 << 8, Options{HeadBytes: 100}, 1},
		{"a line of control sequences", strings.Repeat("\x1b[1m\r", 10<<10), 1 << 4, DefaultOptions(), 1},
		{"ten million tiny lines", strings.Repeat("\n", 10_000), 1000, DefaultOptions(), 10_000_000},
		{"clean lines", strings.Repeat(strings.Repeat("x", 99)+"\n", 41), 5000, DefaultOptions(), 41 * 5000},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &nullFile{}
			o := c.o
			o.Open = func() (File, error) { return f, nil }
			before := heap()
			s := New(o)
			chunk := []byte(c.chunk)
			for range c.times {
				if _, err := s.Stdout().Write(chunk); err != nil {
					t.Fatal(err)
				}
			}
			used := heap() - before
			sum, err := s.Close()
			if err != nil || sum.TotalBytes != int64(len(chunk)*c.times) || sum.TotalLines != c.lines || f.size != sum.TotalBytes {
				t.Errorf("%d bytes, %d lines, file of %d, %v", sum.TotalBytes, sum.TotalLines, f.size, err)
			}
			if used > 1<<20 {
				t.Errorf("%d bytes of memory are held", used)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// nullFile is a file that only counts.
type nullFile struct{ size int64 }

func (f *nullFile) Write(p []byte) (int, error)            { f.size += int64(len(p)); return len(p), nil }
func (f *nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (f *nullFile) ReadAt(p []byte, _ int64) (int, error)  { return 0, errors.ErrUnsupported }
func (f *nullFile) Truncate(int64) error                   { return nil }
func (f *nullFile) URL() string                            { return "artifact://0" }
func (f *nullFile) Finish(Index) error                     { return nil }
func (f *nullFile) Close() error                           { return nil }

func TestBothStreamsAtOnce(t *testing.T) {
	f := &memFile{url: "artifact://0"}
	o := DefaultOptions()
	o.Open = func() (File, error) { return f, nil }
	s := New(o)
	var wg sync.WaitGroup
	for name, w := range map[string]io.Writer{"out": s.Stdout(), "err": s.Stderr()} {
		wg.Go(func() {
			for i := range 5000 {
				fmt.Fprintf(w, "%s %d\n", name, i)
			}
		})
	}
	wg.Wait()
	sum, err := s.Close()
	if err != nil || sum.TotalLines != 10_000 || sum.Index.Lines != 10_000 {
		t.Fatalf("%d lines, %v", sum.TotalLines, err)
	}
	next := map[string]int{}
	for line := range strings.Lines(string(f.data)) {
		var name string
		var i int
		if _, err := fmt.Sscanf(line, "%s %d\n", &name, &i); err != nil || next[name] != i {
			t.Fatalf("line %q, want number %d", line, next[name])
		}
		next[name]++
	}
}

func TestWritesBehindCloseAreRefused(t *testing.T) {
	s := New(DefaultOptions())
	fmt.Fprintln(s.Stdout(), "a")
	first, err := s.Close()
	if n, werr := s.Stderr().Write([]byte("b")); n != 0 || !errors.Is(werr, ErrClosed) {
		t.Errorf("written %d, %v", n, werr)
	}
	again, err2 := s.Close()
	if fmt.Sprint(first, err) != fmt.Sprint(again, err2) || first.View != "a\n" {
		t.Errorf("%v, %v and then %v, %v", first, err, again, err2)
	}
}
