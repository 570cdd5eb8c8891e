package screen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// show is the text of what is written to a terminal of a size.
func show(t testing.TB, size Size, pieces ...string) string {
	t.Helper()
	var b bytes.Buffer
	s, err := New(size, func(p []byte) { b.Write(p) })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		s.Write([]byte(p))
	}
	s.Finish()
	return b.String()
}

var small = Size{Rows: 4, Cols: 10}

func TestAPersonSees(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"a line", "one\r\n", "one\n"},
		{"a line without an end", "Password: ", "Password:"},
		{"a line feed alone as a step down", "a\nb", "a\n b"},
		{"a progress bar as its last state", "  0%\r 50%\r100%\r\ndone\r\n", "100%\ndone\n"},
		{"a shorter text over a longer one", "longer\rxy\r\n", "xynger\n"},
		{"a line that was erased", "longer\r\x1b[Kxy\r\n", "xy\n"},
		{"a bar that fills its line", strings.Repeat("#", 10) + "\r" + strings.Repeat("=", 10) + "\r\nend\r\n", "==========\nend\n"},
		{"a long line in one", "abcdefghijklmno\r\nx\r\n", "abcdefghijklmno\nx\n"},
		{"a line as wide as the screen", "abcdefghij\r\nx\r\n", "abcdefghij\nx\n"},
		{"what scrolled off", "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n", "1\n2\n3\n4\n5\n6\n"},
		{"a long line that scrolled off", "abcdefghijklmno\r\n1\r\n2\r\n3\r\n4\r\n5", "abcdefghijklmno\n1\n2\n3\n4\n5"},
		{"a backspace", "ab\bc\r\n", "ac\n"},
		{"colours as nothing", "\x1b[1;31mred\x1b[0m\r\n", "red\n"},
		{"a tab as spaces", "a\tb\r\n", "a       b\n"},
		{"the cursor moved up", "one\r\ntwo\r\n\x1b[2Aup\r\n", "upe\ntwo"},
		{"a cleared screen", "old\r\n\x1b[H\x1b[2Jnew\r\n", "new\n"},
		{"the main screen when the alternate one was left", "before\r\n\x1b[?1049h\x1b[Hfull\r\nscreen\x1b[?1049lafter\r\n", "before\nafter\n"},
		{"the alternate screen when it was not left", "before\r\n\x1b[?1049h\x1b[H\x1b[2Jfull\r\nscreen", "before\nfull\nscreen"},
		{"the alternate screen of old", "a\r\n\x1b[?47hb\x1b[?47lc\r\n", "a\n c\n"},
		{"nothing of what scrolled off the alternate screen", "m\r\n\x1b[?1049h1\r\n2\r\n3\r\n4\r\n5\r\n6\x1b[?1049l", "m\n"},
		{"a full screen behind a reset", "\x1b[?1049hx\x1bcy", "y"},
		{"a scroll region", "\x1b[2;3r\x1b[1;1Htop\x1b[2;1Ha\r\nb\r\nc\x1b[4;1Hend", "top\nb\nc\nend"},
		{"wide characters", "日本語\r\nx\r\n", "日本語\nx\n"},
		{"half of a wide character as none", "日本\r\x1b[Cx\r\n", " x本\n"},
		{"wide characters over the margin", "日本語日本語\r\nx", "日本語日本語\nx"},
		{"a wide character that has no room at the margin, and is erased", "日本語日x日\r\x1b[Jy\r\nx", "日本語日xy\nx"},
		{"a wide character in the next row, where one column is left", "abcdefghi日本\r\nx", "abcdefghi日本\nx"},
		{"an emoji in the next row, where one column is left", "abcdefghi👨‍👩‍👧z\r\nx", "abcdefghi👨‍👩‍👧z\nx"},
		{"an accent on its letter", "e\u0301\r\n", "e\u0301\n"},
		{"a family in one place", "👨‍👩‍👧x\r\n", "👨‍👩‍👧x\n"},
		{"a title as nothing", "\x1b]0;title\x07x\r\n", "x\n"},
		{"a link as its text", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\r\n", "link\n"},
		{"no query", "\x1b[6n\x1b[cx\r\n", "x\n"},
		{"blank lines within", "a\r\n\r\nb\r\n", "a\n\nb\n"},
		{"no control characters", "a\x01\x02\x7f\xc2\x9bb\r\n", "ab\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(t, small, tt.in); got != tt.want {
				t.Errorf("%q\n got %q\nwant %q", tt.in, got, tt.want)
			}
			var pieces []string
			for i := range len(tt.in) {
				pieces = append(pieces, tt.in[i:i+1])
			}
			if got := show(t, small, pieces...); got != tt.want {
				t.Errorf("byte by byte %q\n got %q\nwant %q", tt.in, got, tt.want)
			}
		})
	}
}

// corpus makes output of terminals at random.
func corpus(r *rand.Rand, n int) []byte {
	parts := []string{
		"\r\n", "\r\n", "\r\n", "\r", "\n", "\b", "\t", " ", "word", "a longer text than the line is", "日本", "é", "e\u0301", "\x1b[31m", "\x1b[0m", "\x1b[K", "\x1b[2J", "\x1b[H", "\x1b[A", "\x1b[3;4H",
		"\x1b[?1049h", "\x1b[?1049l", "\x1b[2;3r", "\x1b[r", "\x1b[M", "\x1b[L", "\x1b[2P", "\x1b[2@", "\x1b[S", "\x1b[T", "\x1bM", "\x1b7", "\x1b8", "\x1b]0;t\x07", "\xff", "\xe6\x97",
	}
	var b []byte
	for len(b) < n {
		b = append(b, parts[r.IntN(len(parts))]...)
	}
	return b
}

func TestPiecesDoNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		in := corpus(r, 2000)
		whole := show(t, small, string(in))
		var pieces []string
		for rest := in; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(40))
			pieces = append(pieces, string(rest[:n]))
			rest = rest[n:]
		}
		if got := show(t, small, pieces...); got != whole {
			t.Fatalf("%q\nwhole  %q\npieces %q", in, whole, got)
		}
	}
}

// plainLines are lines of all the forms that are not emulated.
func plainLines(r *rand.Rand, lines int) string {
	words := []string{"x", "word", "日本語", "größe", "\x1b[1;32mok\x1b[0m", "a text that is longer than any line", "  ", "\t", "🙂"}
	var b strings.Builder
	for range lines {
		for range r.IntN(4) {
			b.WriteString(words[r.IntN(len(words))])
		}
		b.WriteString("\r\n")
	}
	return b.String()
}

func TestWhatIsNotEmulatedIsAsIfItWere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		in := plainLines(r, 60) + string(corpus(r, 50)) + plainLines(r, 60) + "\x1b[2;3Hend"
		passed := show(t, small, in)
		var b bytes.Buffer
		s, err := New(small, func(p []byte) { b.Write(p) })
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(in) {
			s.emulate([]byte(line))
		}
		s.Finish()
		if b.String() != passed {
			n := 0
			for n < min(b.Len(), len(passed)) && b.String()[n] == passed[n] {
				n++
			}
			t.Fatalf("%q\nemulated %q\npassed   %q\n%q %q", in, b.String(), passed, b.String()[max(0, n-60):min(b.Len(), n+30)], passed[max(0, n-60):min(len(passed), n+30)])
		}
	}
}

func TestExactIsSaidOfTextAlone(t *testing.T) {
	for in, want := range map[string]bool{
		"": true, "a\r\nb\r\n": true, "prompt>": true, "größe\r\n": true,
		"a\x1b[m\r\n": false, "a\rb\r\n": false, "a\tb\r\n": false, "a \r\n": false, "a\nb": false, "\xff\r\n": false,
	} {
		s, err := New(small, func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte(in))
		s.Finish()
		if s.Exact() != want {
			t.Errorf("%q is exact: %v", in, !want)
		}
	}
}

func TestTheEmulatorIsStoppedWhenItIsKeptTooBusy(t *testing.T) {
	in := "before\r\n" + strings.Repeat("\x1b[2147483647S", 3) + strings.Repeat(strings.Repeat("\x1b[m", 1000)+"lost\r\n", 100) + "\x1b[H\x1b[2Jafter\r\n"
	var b bytes.Buffer
	s, err := New(Size{24, 80}, func(p []byte) { b.Write(p) })
	if err != nil {
		t.Fatal(err)
	}
	s.cells.work = 1 << 20
	s.Write([]byte(in))
	s.Finish()
	got := b.String()
	if !strings.HasPrefix(got, "before\n") || !strings.Contains(got, "[The screen is not known from byte ") || !strings.HasSuffix(got, "\nafter\n") {
		t.Errorf("%q", got[:min(len(got), 1000)])
	}
}

func TestAControlStringThatNobodyEndsIsEnded(t *testing.T) {
	got := show(t, small, "a\r\n\x1b]0;"+strings.Repeat("x", maxSilence+10)+"\r\nend\r\n")
	if !strings.HasPrefix(got, "a\n") || !strings.HasSuffix(got, "\nend\n") {
		t.Errorf("%q", got)
	}
}

func TestAScreenIsResized(t *testing.T) {
	var b bytes.Buffer
	s, err := New(small, func(p []byte) { b.Write(p) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		fmt.Fprintf(s, "line %d\r\n", i)
	}
	s.Resize(Size{Rows: 2, Cols: 20})
	fmt.Fprintf(s, "a line of twenty chars\r\n")
	s.Resize(Size{Rows: 30, Cols: 90})
	fmt.Fprintf(s, "end\r\n")
	s.Finish()
	if want := "line 0\nline 1\nline 2\nline 3\na line of twenty chars\nend\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}

func TestTheScreenIsShownOnItsWay(t *testing.T) {
	var b bytes.Buffer
	s, err := New(small, func(p []byte) { b.Write(p) })
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ in, want string }{
		{"one\r", "one\n"}, {"\ntwo \xc3", "one\ntwo\n"}, {"\xb6\r\n", "one\ntwo ö\n"}, {"3\r\n4\r\n5", "two ö\n3\n4\n5\n"},
	} {
		s.Write([]byte(step.in))
		if got := s.Shown(); got != step.want {
			t.Errorf("behind %q: %q", step.in, got)
		}
	}
	if s.Finish(); b.String() != "one\ntwo ö\n3\n4\n5" || !s.Exact() {
		t.Errorf("%q, %v", b.String(), s.Exact())
	}
}

func TestSizesAreChecked(t *testing.T) {
	for s, ok := range map[Size]bool{{}: false, {24, 80}: true, {1, 1}: true, {MaxRows, MaxCols}: true, {MaxRows + 1, 80}: false, {24, -1}: false} {
		if (s.Check() == nil) != ok {
			t.Errorf("%v: %v", s, s.Check())
		}
	}
}

func FuzzScreen(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		f.Add(corpus(r, 300), uint8(r.IntN(256)), uint8(r.IntN(256)))
	}
	f.Fuzz(func(t *testing.T, in []byte, rows, cols uint8) {
		size := Size{int(rows)%40 + 1, int(cols)%100 + 1}
		var b bytes.Buffer
		s, err := New(size, func(p []byte) { b.Write(p) })
		if err != nil {
			t.Fatal(err)
		}
		s.cells.work = 1 << 22
		s.Write(in[:len(in)/2])
		s.Resize(Size{int(cols)%40 + 1, int(rows)%100 + 1})
		s.Resize(size)
		s.Write(in[len(in)/2:])
		s.Finish()
		for i, c := range b.Bytes() {
			if c < ' ' && c != '\n' || c == 0x7f {
				t.Fatalf("%q has the control character %q at %d", b.Bytes(), c, i)
			}
		}
		if text := b.String(); strings.ToValidUTF8(text, "") != text {
			t.Fatalf("%q is not valid UTF-8", text)
		}
	})
}

func BenchmarkScreen(b *testing.B) {
	for _, bb := range []struct{ name, line string }{
		{"Plain", strings.Repeat("The quick brown fox. ", 3) + "\r\n"},
		{"Coloured", "\x1b[32mok\x1b[0m  " + strings.Repeat("The quick brown fox. ", 3) + "\r\n"},
		{"Progress", "\r 42% [########                ] 12.3 MB/s"},
		{"Redrawn", "\x1b[H\x1b[2J" + strings.Repeat("a row of a screen that is drawn anew\r\n", 20)},
		{"Endless", strings.Repeat("x", 4096)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			in := []byte(strings.Repeat(bb.line, (64<<10)/len(bb.line)+1))
			s, err := New(Size{24, 80}, func([]byte) {})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				s.Write(in)
			}
			b.StopTimer()
			b.ReportMetric(float64(Budget-s.cells.work)/float64(b.N)/float64(len(in)), "units/byte")
			if s.lost {
				b.Log("given up")
			}
		})
	}
}
