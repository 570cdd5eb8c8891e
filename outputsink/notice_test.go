package outputsink

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

var (
	noticeForm = regexp.MustCompile(`^\[Showing (no lines|lines? [0-9-]+(?: and [0-9-]+)?) of (\d+)(?:; (\d+) lines? \(([^)]+)\) (between|before|after) them|; \d+ lines? \([^)]+\) in all)?(?:; (\d+) lines? shortened to (\d+) bytes)?(?:; (\d+) bytes? of control sequences and rewritten text left out)?: artifact://0\]$`)
	rangeForm  = regexp.MustCompile(`(\d+)(?:-(\d+))?`)
)

func number(t fataler, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%q is no number", s)
	}
	return n
}

// TestEveryNumberOfANoticeIsThatOfTheFile counts again, in the bytes of the file, what the notice says.
func TestEveryNumberOfANoticeIsThatOfTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []byte
		word := rapid.SampledFrom([]string{"word", "\x1b[31mred\x1b[0m", "10%\r20%", "é", "a line of some more bytes than others"})
		for range rapid.IntRange(5, 120).Draw(t, "lines") {
			for range rapid.IntRange(0, 4).Draw(t, "words") {
				in = append(in, word.Draw(t, "word")...)
			}
			in = append(in, '\n')
		}
		o := Options{
			MaxBytes: rapid.IntRange(160, 2000).Draw(t, "bytes"), MaxLines: rapid.IntRange(4, 100).Draw(t, "lines shown"),
			MaxColumns: rapid.IntRange(20, 60).Draw(t, "columns"),
		}
		o.HeadBytes = rapid.IntRange(0, o.MaxBytes).Draw(t, "head")
		f := &memFile{url: "artifact://0"}
		o.Open = func() (File, error) { return f, nil }
		s := New(o)
		for _, c := range pieces(t, in, 300) {
			_, _ = s.Stderr().Write(c)
		}
		sum, err := s.Close()
		if err != nil || !sum.Truncated {
			return // everything is shown
		}
		m := noticeForm.FindStringSubmatch(sum.Notice)
		if m == nil {
			if bytes.Contains([]byte(sum.Notice), []byte("ning of line")) || bytes.Contains([]byte(sum.Notice), []byte("end of line")) {
				return // a part of a line is shown: TestNotices has those
			}
			t.Fatalf("%s is not of the form", sum.Notice)
		}
		lines := bytes.SplitAfter(f.data, newlineText)
		lines = lines[:len(lines)-1]
		if number(t, m[2]) != len(lines) {
			t.Fatalf("%s: the file has %d lines", sum.Notice, len(lines))
		}
		missing := map[int]bool{}
		for i := range lines {
			missing[i+1] = true
		}
		shortened := 0
		for _, r := range rangeForm.FindAllStringSubmatch(m[1], -1) {
			first, last := number(t, r[1]), number(t, r[1])
			if r[2] != "" {
				last = number(t, r[2])
			}
			for n := first; n <= last; n++ {
				delete(missing, n)
				if len(sanitize(lines[n-1]))-1 > o.MaxColumns {
					shortened++
				}
			}
		}
		size := 0
		for n := range missing {
			size += len(lines[n-1])
		}
		if m[3] != "" && (number(t, m[3]) != len(missing) || m[4] != FormatBytes(int64(size))) || m[3] == "" && m[1] != "no lines" && len(missing) > 0 {
			t.Fatalf("%s: %d lines of %s are missing", sum.Notice, len(missing), FormatBytes(int64(size)))
		}
		if shortened > 0 && m[6] != fmt.Sprint(shortened) || shortened == 0 && m[6] != "" {
			t.Fatalf("%s: %d lines are shortened", sum.Notice, shortened)
		}
		if m[7] != "" && number(t, m[7]) != o.MaxColumns {
			t.Fatalf("%s: they are shortened to %d", sum.Notice, o.MaxColumns)
		}
		if m[8] != "" {
			kept := 0
			for _, l := range lines {
				kept += len(sanitize(l))
			}
			if number(t, m[8]) != len(in)-kept {
				t.Fatalf("%s: %d bytes were left out", sum.Notice, len(in)-kept)
			}
		}
	})
}
