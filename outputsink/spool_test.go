package outputsink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestAFileThatCannotBeOpened(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		open         func() (File, error)
	}{
		{"an error", "permission denied", func() (File, error) { return nil, &os.PathError{Op: "open", Path: "/x", Err: os.ErrPermission} }},
		{"no file and no error", "no file was asked for", func() (File, error) { return nil, nil }},
		{"no opener", "no file was asked for", nil},
		{"an error of several lines", "one two", func() (File, error) { return nil, errors.New("one\ntwo\x1b") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			o := DefaultOptions()
			if c.open != nil {
				o.Open = func() (File, error) { calls++; return c.open() }
			}
			s := New(o)
			in := numbered(1, 20_000)
			for chunk := range bytes.Lines(in) {
				if _, err := s.Stdout().Write(chunk); err != nil {
					t.Fatal(err)
				}
			}
			sum, err := s.Close()
			if err == nil || calls > 1 {
				t.Errorf("error %v, opened %d times", err, calls)
			}
			if sum.Text != model(in, o).text || sum.TotalLines != 20_000 || sum.TotalBytes != int64(len(in)) {
				t.Errorf("the view is not as with a file: %d bytes of %d lines", len(sum.Text), sum.TotalLines)
			}
			if sum.Artifact != "" || sum.ArtifactState.Kind != ArtifactMissing || !strings.Contains(sum.Notice, "; the rest could not be kept: ") ||
				!strings.Contains(sum.Notice, c.reason) || strings.Contains(sum.Notice, "\n") {
				t.Errorf("state %q, artifact %q, notice %s", sum.ArtifactState, sum.Artifact, sum.Notice)
			}
			if !strings.HasPrefix(sum.ArtifactState.String(), "could not be opened because of ") {
				t.Errorf("state %q", sum.ArtifactState)
			}
		})
	}
}

func TestADiskThatIsFullAtAnyByte(t *testing.T) {
	in := numbered(1, 12_000) // 128 KB
	want := model(in, DefaultOptions())
	full := &os.PathError{Op: "write", Path: "0.bash.log", Err: syscall.ENOSPC}
	for _, limit := range []int64{0, 64 << 10} {
		for room := 0; room < len(in); room += 3001 {
			f := &memFile{url: "artifact://0", room: room, err: full}
			o := DefaultOptions()
			o.MaxArtifactBytes = limit
			o.Open = func() (File, error) { return f, nil }
			s := New(o)
			for chunk := range slices.Chunk(in, 777) {
				if _, err := s.Stdout().Write(chunk); err != nil {
					t.Fatal(err)
				}
			}
			sum, err := s.Close()
			if limit > 0 && room >= int(limit) {
				if err != nil || sum.ArtifactState.Kind != ArtifactCapped {
					t.Fatalf("limit %d, room for %d: %q, %v", limit, room, sum.ArtifactState, err)
				}
				continue
			}
			if sum.Text != want.text || sum.TotalLines != 12_000 || sum.TotalBytes != int64(len(in)) || !errors.Is(err, syscall.ENOSPC) || !f.closed {
				t.Fatalf("room for %d: %d bytes of view, %d lines, %v, closed %v", room, len(sum.Text), sum.TotalLines, err, f.closed)
			}
			if room == 0 {
				if sum.Artifact != "" || sum.ArtifactState.Kind != ArtifactMissing || f.finished {
					t.Fatalf("nothing was kept: %q, %q, finished %v", sum.Artifact, sum.ArtifactState, f.finished)
				}
				continue
			}
			k := sum.ArtifactState.Head
			if sum.ArtifactState.Kind != ArtifactCut || k != int64(room) || !bytes.Equal(f.data, in[:k]) || sum.ArtifactBytes != k {
				t.Fatalf("room for %d: %q, file of %d", room, sum.ArtifactState, len(f.data))
			}
			if state := fmt.Sprintf("ends at byte %d because of write 0.bash.log: no space left on device", k); sum.ArtifactState.String() != state || !strings.Contains(sum.Notice, ": artifact://0, which "+state) {
				t.Fatalf("state %q, notice %s", sum.ArtifactState, sum.Notice)
			}
			ix, err := extendIndex(Index{}, bytes.NewReader(in), k)
			if err != nil || fmt.Sprint(ix) != fmt.Sprint(f.index) || !f.finished {
				t.Fatalf("room for %d: the index is that of %d bytes, %d lines", room, f.index.Size, f.index.Lines)
			}
		}
	}
}

func TestAFileThatFilledTheDiskGivesSomeOfItBack(t *testing.T) {
	in := numbered(1, 200_000)
	for _, writes := range []int{100, 40_000, len(in)} {
		for _, full := range []int64{1, 127 << 10, 128 << 10, 500_001, 2_000_000} {
			t.Run(fmt.Sprintf("at byte %d in writes of %d", full, writes), func(t *testing.T) {
				f := &memFile{url: "artifact://0", room: int(full), err: syscall.ENOSPC}
				o := DefaultOptions()
				o.Open = func() (File, error) { return f, nil }
				s := New(o)
				for rest := in; len(rest) > 0; {
					n := min(writes, len(rest))
					_, _ = s.Stdout().Write(rest[:n])
					rest = rest[n:]
				}
				sum, err := s.Close()
				want := full
				if full >= 2*spareBytes {
					want -= spareBytes
				}
				if !errors.Is(err, syscall.ENOSPC) || sum.ArtifactState.Kind != ArtifactCut || sum.ArtifactState.Head != want || !bytes.Equal(f.data, in[:want]) {
					t.Fatalf("%q, %v; the file has %d bytes, want %d", sum.ArtifactState, err, len(f.data), want)
				}
				ix, err := extendIndex(Index{}, bytes.NewReader(f.data), want)
				if err != nil || fmt.Sprint(ix) != fmt.Sprint(sum.Index) || fmt.Sprint(ix) != fmt.Sprint(f.index) {
					t.Errorf("the index is not that of the file")
				}
				if sum.TotalBytes != int64(len(in)) || sum.Text != model(in, o).text {
					t.Errorf("view or totals changed")
				}
			})
		}
	}
}

func TestFilesThatLieHarmNobody(t *testing.T) {
	in := numbered(1, 50_000)
	broken := errors.New("input/output error")
	for _, c := range []struct {
		name string
		f    *memFile
		kind ArtifactKind
	}{
		{"writes less and says nothing", &memFile{short: true}, ArtifactCut},
		{"says it wrote more", &memFile{boast: true}, ArtifactMissing},
		{"does not finish", &memFile{finishErr: broken}, ArtifactUnconfirmed},
		{"was removed", &memFile{finishErr: fmt.Errorf("finishing it: %w", fs.ErrNotExist)}, ArtifactMissing},
		{"does not close", &memFile{closeErr: broken}, ArtifactUnconfirmed},
	} {
		for _, limit := range []int64{0, 100_000} {
			t.Run(fmt.Sprintf("%s, limit %d", c.name, limit), func(t *testing.T) {
				f := *c.f
				f.url = "artifact://0"
				o := DefaultOptions()
				o.MaxArtifactBytes = limit
				o.Open = func() (File, error) { return &f, nil }
				s := New(o)
				if _, err := s.Stdout().Write(in); err != nil {
					t.Fatal(err)
				}
				sum, err := s.Close()
				if err == nil || sum.ArtifactState.Kind != c.kind || sum.Text != model(in, o).text {
					t.Errorf("%q, %v", sum.ArtifactState, err)
				}
				if c.kind == ArtifactMissing && strings.Contains(sum.View+sum.Artifact, "artifact://") {
					t.Errorf("one that is not there is named: %s", sum.Notice)
				}
				if c.kind == ArtifactCut && !bytes.Equal(f.data, in[:sum.ArtifactState.Head]) {
					t.Errorf("%q, but the file has %d bytes", sum.ArtifactState, len(f.data))
				}
			})
		}
	}
}

func TestAFileWithALimitKeepsHeadAndTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 40_000).Draw(t, "limit") + 1
		in := numbered(1, rapid.IntRange(1, 30_000).Draw(t, "lines"))
		f := &memFile{url: "artifact://0"}
		o := Options{MaxBytes: 100, HeadBytes: 50, MaxArtifactBytes: limit, Open: func() (File, error) { return f, nil }}
		s := New(o)
		for rest := in; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 100_000)).Draw(t, "chunk")
			_, _ = s.Stdout().Write(rest[:n])
			rest = rest[n:]
		}
		live := s.Live()
		defer live.Close()
		sum, err := s.Close()
		if err != nil {
			t.Fatal(err)
		}
		limit = max(limit, MinArtifactBytes)
		if int64(len(f.data)) > limit || sum.ArtifactBytes != int64(len(f.data)) && sum.Truncated {
			t.Fatalf("the file has %d bytes, the summary says %d", len(f.data), sum.ArtifactBytes)
		}
		if int64(len(in)) <= limit {
			if sum.Truncated && (!bytes.Equal(f.data, in) || sum.ArtifactState.Kind != ArtifactComplete) {
				t.Fatalf("%d bytes fit in %d: %q", len(in), limit, sum.ArtifactState)
			}
			return
		}
		st := sum.ArtifactState
		head, line, tail := f.data[:st.Head], f.data[st.Head:st.Head+elisionBytes], f.data[st.Head+elisionBytes:]
		gone := int64(len(in)) - st.Head - st.Tail
		if st.Kind != ArtifactCapped || st.Head != limit/2 || st.Tail < limit/4-elisionBytes || !bytes.Equal(head, in[:st.Head]) ||
			!bytes.Equal(tail, in[int64(len(in))-st.Tail:]) || !strings.HasPrefix(string(line), fmt.Sprintf("\n[%d bytes (%s) of the output, from byte %d on, are left out here", gone, FormatBytes(gone), st.Head)) ||
			bytes.Count(line, newlineText) != 2 || line[elisionBytes-1] != '\n' {
			t.Fatalf("%q of %d bytes, limit %d; line %q", st, len(in), limit, line)
		}
		if !strings.HasSuffix(sum.Notice, fmt.Sprintf("which keeps the first %s and the last %s of %s]", FormatBytes(st.Head), FormatBytes(st.Tail), FormatBytes(int64(len(in))))) {
			t.Fatalf("notice %s", sum.Notice)
		}
		ix, err := extendIndex(Index{}, bytes.NewReader(f.data), int64(len(f.data)))
		if err != nil || fmt.Sprint(ix) != fmt.Sprint(sum.Index) || fmt.Sprint(ix) != fmt.Sprint(f.index) {
			t.Fatalf("the index is not that of the file")
		}
		got, lost := readAll(t, live)
		if want := string(in[:st.Head]) + string(in[int64(len(in))-st.Tail:]); got != want || lost != gone {
			t.Fatalf("read %d bytes and lost %d; want %d and %d", len(got), lost, len(want), gone)
		}
	})
}

// readAll reads to the end and returns also how many bytes were lost.
func readAll(t fataler, l *Live) (string, int64) {
	t.Helper()
	var b bytes.Buffer
	var lost int64
	buf := make([]byte, 1000)
	for {
		n, err := l.Read(buf)
		b.Write(buf[:n])
		var gone *LostError
		switch {
		case errors.As(err, &gone):
			lost += gone.To - gone.From
		case errors.Is(err, io.EOF):
			return b.String(), lost
		case err != nil:
			t.Fatalf("reading: %v", err)
		}
	}
}

func TestBytesThatWaitAreWrittenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &memFile{url: "artifact://0"}
		o := DefaultOptions()
		o.MaxBytes = 10
		o.Open = func() (File, error) { return f, nil }
		s := New(o)
		for i := range 3 {
			fmt.Fprintf(s.Stdout(), "round %d, some text\n", i)
			time.Sleep(FlushAfter + time.Millisecond)
			synctest.Wait()
			if n := len(f.data); n != 19*(i+1) {
				t.Errorf("round %d: %d bytes have been written", i, n)
			}
		}
		fmt.Fprint(s.Stdout(), "the end")
		if _, err := s.Close(); err != nil || len(f.data) != 64 {
			t.Errorf("%d bytes at the end, %v", len(f.data), err)
		}
	})
}

func TestSmallWritesAreCollected(t *testing.T) {
	f := &memFile{url: "artifact://0"}
	o := DefaultOptions()
	o.Open = func() (File, error) { return f, nil }
	s := New(o)
	for range 10_000 {
		fmt.Fprintln(s.Stdout(), strings.Repeat("x", 99))
	}
	sum, err := s.Close()
	if err != nil || len(f.data) != 1_000_000 || sum.ArtifactBytes != 1_000_000 {
		t.Fatalf("%d bytes, %v", len(f.data), err)
	}
	if f.writes > 100 {
		t.Errorf("%d writes for 1 MB", f.writes)
	}
}
