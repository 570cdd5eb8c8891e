package outputsink

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// shown is what the model says a view shows.
type shown struct {
	text      string
	ranges    []LineRange
	shortened int64
	all       bool
}

// model builds the view of a whole stream the plain way: all lines first, then a choice among them.
func model(stream []byte, o Options) shown {
	o = o.withDefaults()
	text := sanitize(stream)
	if len(stream) == 0 {
		return shown{all: true}
	}
	columns := o.MaxColumns
	if columns >= o.MaxBytes {
		columns = 0
	}
	open := stream[len(stream)-1] != '\n'
	lines := strings.SplitAfter(text, "\n")
	if !open {
		lines = lines[:len(lines)-1]
	}
	cut := make([]bool, len(lines))
	size := 0
	for i, l := range lines {
		body := strings.TrimSuffix(l, "\n")
		if columns > 0 && len(body) > columns {
			n := max(0, columns-3)
			for n > 0 && !utf8.RuneStart(body[n]) {
				n--
			}
			lines[i], cut[i] = body[:n]+"…"+l[len(body):], true
		}
		size += len(lines[i])
	}
	maxLines, headLines := o.MaxLines, o.MaxLines*o.HeadBytes/o.MaxBytes
	if maxLines == 0 {
		maxLines, headLines = 1<<30, 1<<30
	}
	var s shown
	if size <= o.MaxBytes && len(lines) <= maxLines {
		s = shown{text: strings.Join(lines, ""), ranges: []LineRange{{1, int64(len(lines)), false}}, all: true}
		for _, c := range cut {
			if c {
				s.shortened++
				s.all = false
			}
		}
		return s
	}
	head := ""
	h, t := 0, len(lines)
	for h < len(lines) && h < headLines && len(head)+len(lines[h]) <= o.HeadBytes {
		head += lines[h]
		h++
	}
	headPart := h == 0 && o.HeadBytes > 0 && headLines > 0
	if headPart {
		n := min(o.HeadBytes, len(strings.TrimSuffix(lines[0], "\n")))
		for n > 0 && n < len(lines[0]) && !utf8.RuneStart(lines[0][n]) {
			n--
		}
		head = lines[0][:n]
	}
	bytesLeft, linesLeft := o.MaxBytes-len(head), maxLines-h
	if headPart {
		linesLeft--
	}
	for t > h && len(lines)-t < linesLeft && len(lines[t-1]) <= bytesLeft {
		t--
		bytesLeft -= len(lines[t])
	}
	tail := strings.Join(lines[t:], "")
	tailPart := false
	if t == len(lines) && linesLeft > 0 {
		last := lines[t-1]
		n := max(0, len(last)-bytesLeft)
		for n < len(last) && !utf8.RuneStart(last[n]) {
			n++
		}
		if end := last[n:]; strings.TrimSuffix(end, "\n") != "" {
			tail, tailPart, t = end, true, t-1
		}
	}
	switch {
	case headPart:
		s.ranges = append(s.ranges, LineRange{1, 1, true})
		s.text = head
	case h > 0:
		s.ranges = append(s.ranges, LineRange{1, int64(h), false})
		s.text = head
	}
	if t < len(lines) {
		if head != "" || headPart {
			if headPart && s.text != "" {
				s.text += "\n"
			}
			if s.text != "" {
				s.text += "…\n"
			}
		}
		s.text += tail
		s.ranges = append(s.ranges, LineRange{int64(t + 1), int64(len(lines)), tailPart})
	}
	for i, c := range cut {
		if c && (i < h || i >= t) {
			s.shortened++
		}
	}
	return s
}

// run puts a stream through a sink.
func run(t testing.TB, o Options, chunks ...[]byte) (Summary, *memFile) {
	t.Helper()
	f := &memFile{url: "artifact://0"}
	opened := 0
	o.Open = func() (File, error) { opened++; return f, nil }
	s := New(o)
	for i, c := range chunks {
		w := s.Stdout()
		if i%3 == 1 {
			w = s.Stderr()
		}
		if n, err := w.Write(c); n != len(c) || err != nil {
			t.Fatalf("writing %d bytes: %d, %v", len(c), n, err)
		}
	}
	sum, err := s.Close()
	if err != nil {
		t.Fatal(err)
	}
	if want := map[bool]int{false: 0, true: 1}[sum.Truncated]; opened != want {
		t.Fatalf("truncated %v, opened %d times", sum.Truncated, opened)
	}
	return sum, f
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// check holds a summary against the stream it is of.
func check(t fataler, stream []byte, o Options, sum Summary, f *memFile) {
	t.Helper()
	lines := int64(bytes.Count(stream, newlineText))
	if len(stream) > 0 && stream[len(stream)-1] != '\n' {
		lines++
	}
	if sum.TotalBytes != int64(len(stream)) || sum.TotalLines != lines {
		t.Fatalf("%d bytes, %d lines; want %d, %d", sum.TotalBytes, sum.TotalLines, len(stream), lines)
	}
	if sum.Truncated != (sum.Notice != "") || sum.Truncated != (sum.ArtifactState.Kind != ArtifactNone) || sum.Truncated != (sum.Artifact != "") {
		t.Fatalf("truncated %v, notice %q, state %q, artifact %q", sum.Truncated, sum.Notice, sum.ArtifactState, sum.Artifact)
	}
	if sum.Truncated {
		if !bytes.Equal(f.data, stream) || !f.finished || !f.closed {
			t.Fatalf("the file has %d of %d bytes, finished %v, closed %v", len(f.data), len(stream), f.finished, f.closed)
		}
		ix := sum.Index
		if ix.Size != int64(len(stream)) || ix.Lines != lines || ix.CRC32C != crc32.Checksum(stream, crc32.MakeTable(crc32.Castagnoli)) {
			t.Fatalf("the index says %d bytes, %d lines, CRC %08x", ix.Size, ix.Lines, ix.CRC32C)
		}
		if strings.ContainsAny(sum.Notice, "\n\r") || !strings.HasSuffix(sum.View, sum.Notice) {
			t.Fatalf("notice %q, view ends in %q", sum.Notice, sum.View[max(0, len(sum.View)-100):])
		}
	}
	if sum.Binary {
		return
	}
	want := model(stream, o)
	if sum.Text != want.text {
		t.Fatalf("%d bytes of text; want %d\n got %.300q\nwant %.300q", len(sum.Text), len(want.text), sum.Text, want.text)
	}
	if !slices.Equal(sum.Ranges, want.ranges) || sum.ShortenedLines != want.shortened {
		t.Fatalf("ranges %v, %d shortened; want %v, %d", sum.Ranges, sum.ShortenedLines, want.ranges, want.shortened)
	}
	d := o.withDefaults()
	if sum.ShownBytes > int64(d.MaxBytes) || d.MaxLines > 0 && sum.ShownLines > int64(d.MaxLines) {
		t.Fatalf("%d bytes and %d lines are shown", sum.ShownBytes, sum.ShownLines)
	}
	numbers := map[int64]bool{}
	for _, r := range sum.Ranges {
		if !r.Partial && r.Last-r.First > 100_000 {
			break
		}
		for n := r.First; n <= r.Last; n++ {
			numbers[n] = true
		}
	}
	if sum.ShownLines != int64(len(numbers)) {
		t.Fatalf("%d lines shown, ranges %v", sum.ShownLines, sum.Ranges)
	}
	if !want.all && !sum.Truncated {
		t.Fatalf("something is missing and not told")
	}
	if !utf8.ValidString(sum.View) {
		t.Fatalf("the view is no UTF-8")
	}
}

func TestAShortenedLineWithoutRoomShowsNothing(t *testing.T) {
	o := Options{MaxBytes: 2, MaxColumns: 1}
	sum, f := run(t, o, []byte("word\n"))
	check(t, []byte("word\n"), o, sum, f)
	if sum.Text != "" || sum.ShownLines != 0 {
		t.Errorf("%q, %d lines", sum.Text, sum.ShownLines)
	}
}

func TestTheViewIsThatOfTheModelForAnySplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stream := nasty().Draw(rt, "stream")
		o := Options{
			MaxBytes:   rapid.SampledFrom([]int{0, 1, 2, 5, 10, 40, 100, 300}).Draw(rt, "bytes"),
			HeadBytes:  rapid.SampledFrom([]int{0, 1, 4, 10, 30, 100, 400}).Draw(rt, "head"),
			MaxLines:   rapid.SampledFrom([]int{0, 1, 2, 5, 20}).Draw(rt, "lines"),
			MaxColumns: rapid.SampledFrom([]int{0, 1, 3, 4, 10, 60, 200}).Draw(rt, "columns"),
		}
		whole, f := run(t, o, stream)
		check(rt, stream, o, whole, f)
		parts, f := run(t, o, pieces(rt, stream, 50)...)
		check(rt, stream, o, parts, f)
		if !reflect.DeepEqual(whole, parts) {
			rt.Fatalf("at once\n%+v\nin pieces\n%+v", whole, parts)
		}
	})
}

func TestRealRecordings(t *testing.T) {
	if testing.Short() {
		t.Skip("reads all recordings; run without -short")
	}
	dir := realInputs(t, "logs")
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			for _, o := range []Options{
				DefaultOptions(),
				{MaxBytes: DefaultMaxBytes, MaxLines: DefaultMaxLines, MaxColumns: DefaultMaxColumns},
				{MaxBytes: 2000, HeadBytes: 800, MaxLines: 50},
			} {
				whole, f := run(t, o, data)
				check(t, data, o, whole, f)
				for seed := range uint64(6) {
					r := rand.New(rand.NewPCG(seed, 0))
					largest := []int{1, 3, 100, 5000, 70_000, len(data) + 1}[seed]
					if len(data) > 30_000 && largest < 100 || len(data) > 100_000 && seed != 3 {
						continue // every kind of split is for the smaller ones
					}
					var chunks [][]byte
					for rest := data; len(rest) > 0; {
						n := min(1+r.IntN(largest), len(rest))
						chunks = append(chunks, rest[:n])
						rest = rest[n:]
					}
					parts, f := run(t, o, chunks...)
					if !reflect.DeepEqual(whole, parts) || parts.Truncated && !bytes.Equal(f.data, data) {
						t.Fatalf("at once\n%.2000s\nin pieces of up to %d bytes, seed %d\n%.2000s", fmt.Sprintf("%+v", whole), largest, seed, fmt.Sprintf("%+v", parts))
					}
				}
			}
		})
		return nil
	})
	if err != nil || n < 40 {
		t.Errorf("%d recordings, %v", n, err)
	}
}
