package outputsink

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/parser"
	"pgregory.net/rapid"
)

// sanitize returns the text of a whole stream.
func sanitize(p []byte) string {
	var s Sanitizer
	return string(s.Flush(s.Append(nil, p)))
}

func TestSanitizer(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"clean text stays as it is", "a\tb ~\nc\n\n", "a\tb ~\nc\n\n"},
		{"characters of all lengths stay", "é€😀\u00a0\ufeff", "é€😀\u00a0\ufeff"},
		{"control characters vanish", "a\x00b\x01c\x08d\x0be\x0cf\x7fg\x1fh", "abcdefgh"},
		{"C1 controls vanish", "a\u0085b\u0080c", "abc"},

		{"colours vanish", "\x1b[1;31mred\x1b[0m", "red"},
		{"a private CSI vanishes", "\x1b[?25lx\x1b[?25h", "x"},
		{"a CSI with intermediates vanishes", "\x1b[0 qx", "x"},
		{"CSI as a C1 control", "a\u009b31mb", "ab"},
		{"two-byte escapes vanish", "\x1b7a\x1b8\x1bMb\x1b=", "ab"},
		{"escapes with intermediates vanish", "\x1b(Ba\x1b#8b", "ab"},
		{"a title ended by BEL", "\x1b]0;title\x07a", "a"},
		{"a title ended by ST", "\x1b]0;title\x1b\\a", "a"},
		{"a title ended by the C1 ST", "\x1b]0;tit\u2713le\u009ca", "a"},
		{"the text of a hyperlink stays", "\x1b]8;;https://x.test/\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"OSC as a C1 control", "\u009d0;title\x07a", "a"},
		{"a sixel image vanishes, its newlines stay", "a\x1bPq#0;2;0\n#0~~\n\x1b\\b", "a\n\nb"},
		{"APC, PM and SOS vanish", "\x1b_Gf=1;AAAA\x1b\\a\x1b^x\x1b\\b\x1bXy\x1b\\c", "abc"},
		{"BEL ends no DCS", "\x1bPab\x07c\x1b\\d", "d"},
		{"CAN ends a sequence", "\x1b[3\x18a\x1b]0;x\x1ab", "ab"},
		{"ESC begins anew within a sequence", "\x1b[3\x1b[1ma\x1b]0;x\x1b[1mb", "ab"},
		{"a tab within a sequence is done", "\x1b[3\t1ma", "\ta"},
		{"a newline ends a sequence cut off", "\x1b[3\n1m\x1b]0;x\ny\x1b\nz", "\n1m\ny\nz"},
		{"a character ends a sequence cut off", "\x1b[3é1m", "é1m"},
		{"an unfinished sequence at the end is nothing", "a\x1b[3", "a"},

		{"CR LF is a newline", "a\r\nb\r\n", "a\nb\n"},
		{"several CRs before LF too", "a\r\r\nb", "a\nb"},
		{"text behind a lone CR replaces", "10%\r20%\r100%\n", "100%\n"},
		{"a shorter text replaces a longer one whole", "downloading\rdone\n", "done\n"},
		{"a CR with nothing behind it changes nothing", "100%\r", "100%"},
		{"colours behind a CR are no text", "10%\r\x1b[32m20%\x1b[0m\r\n", "20%\n"},
		{"a CR touches its own line only", "a\nb\rc\n", "a\nc\n"},
		{"a tab behind a CR replaces", "a\r\tb", "\tb"},
		{"an invalid byte behind a CR replaces", "a\r\xff", "\uFFFD"},
		{"erasing behind a CR empties the line", "10%\r\x1b[K\n", "\n"},
		{"erasing to the end of a written line does nothing", "10%\x1b[K\n", "10%\n"},
		{"erasing the whole line empties it", "10%\x1b[2K\x1b[1Gdone\n", "done\n"},
		{"column one is a CR", "10%\x1b[Gdone\n", "done\n"},
		{"column nine is none", "10%\x1b[9Gdone\n", "10%done\n"},
		{"erasing below behind a CR empties the line", "10%\r\x1b[Jdone", "done"},
		{"erasing with a private parameter is not erasing", "10%\x1b[?2Kx", "10%x"},

		{"each byte that begins nothing is replaced", "a\x80b\xc0\xafc\xf5d", "a\uFFFDb\uFFFD\uFFFDc\uFFFDd"},
		{"the example of the Unicode standard", "a\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd", "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"},
		{"a surrogate is three", "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"a cut character at the end is one", "a\xf0\x9f\x98", "a\uFFFD"},
		{"a cut character before an escape is one", "\xe2\x82\x1b[1ma", "\uFFFDa"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sanitize([]byte(c.in)); got != c.want {
				t.Errorf("%q became %q, want %q", c.in, got, c.want)
			}
			var s Sanitizer
			var got []byte
			for i := range len(c.in) {
				got = s.Append(got, []byte{c.in[i]})
			}
			if got = s.Flush(got); string(got) != c.want {
				t.Errorf("%q byte by byte became %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestAControlStringWithoutAnEndIsGivenUp(t *testing.T) {
	for _, begin := range []string{"\x1b]", "\x1bP", "\x1b_"} {
		got := sanitize([]byte(begin + strings.Repeat("x", maxString) + "text"))
		if got != "text" {
			t.Errorf("%q: %d bytes, ending in %q", begin, len(got), got[max(0, len(got)-10):])
		}
	}
}

func TestASixelImageOfAnySizeVanishesAndItsNewlinesStay(t *testing.T) {
	row := "#1!200~" + strings.Repeat("?@~", 20_000) + "-\n"
	rows := 3*maxString/len(row) + 1
	image := "\x1bP0;0;8q\"1;1;9;9" + strings.Repeat(row, rows)
	for _, c := range []struct{ name, end, want string }{
		{"ended by ST", "\x1b\\text", "text"},
		{"ended by a colour", "\x1b[1mtext", "text"},
		{"ended by CAN", "\x18text", "text"},
		{"never ended, with words behind it", "some words", " words"},
		{"never ended, with an accent behind it", "\u00e9t\u00e9", "\u00e9t\u00e9"},
		{"cut off", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, want := []byte("a"+image+c.end), "a"+strings.Repeat("\n", rows)+c.want
			if got := sanitize(in); got != want {
				t.Errorf("%d bytes, want %d; the last are %.40q", len(got), len(want), got[max(0, len(got)-40):])
			}
			var s Sanitizer
			var got []byte
			for rest := in; len(rest) > 0; {
				n := min(4093, len(rest))
				got = s.Append(got, rest[:n])
				rest = rest[n:]
			}
			if got = s.Flush(got); string(got) != want {
				t.Errorf("in pieces: %d bytes, want %d", len(got), len(want))
			}
		})
	}
}

func TestAnUnfinishedLineIsHeldBackToABound(t *testing.T) {
	var s Sanitizer
	if got := s.Append(nil, []byte("a\nb\rc")); string(got) != "a\n" || string(s.Pending()) != "c" {
		t.Errorf("handed out %q, pending %q", got, s.Pending())
	}
	if got := s.Flush(nil); string(got) != "c" {
		t.Errorf("flushed %q", got)
	}
	out := 0
	for range 1000 {
		out += len(s.Append(nil, bytes.Repeat([]byte("é"), 1000)))
		if n := len(s.Pending()); n > MaxHeld {
			t.Fatalf("%d bytes are held", n)
		}
	}
	if rest := s.Flush(nil); out+len(rest) != 2_000_000 || !utf8.Valid(rest) {
		t.Errorf("%d bytes handed out, %d flushed", out, len(rest))
	}
}

func TestSanitizerStartsAnewAfterFlush(t *testing.T) {
	var s Sanitizer
	s.Append(nil, []byte("a\x1b]0;never ended"))
	s.Flush(nil)
	if got := string(s.Flush(s.Append(nil, []byte("b")))); got != "b" {
		t.Errorf("got %q", got)
	}
}

// TestUTF8Conformance runs the cases of flenniken/utf8tests, without the control characters that views leave out.
func TestUTF8Conformance(t *testing.T) {
	f, err := os.Open(realInputs(t, "logs/utf8/utf8tests.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unhex := func(s string) []byte {
		s = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(s), " ", ""), "nothing", "")
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return b
	}
	visible := func(b []byte) string {
		return strings.Map(func(r rune) rune {
			if r < 0x20 && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 {
				return -1
			}
			return r
		}, string(b))
	}
	cases := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		field := strings.Split(sc.Text(), ":")
		if strings.HasPrefix(sc.Text(), "#") || len(field) < 3 {
			continue
		}
		var in []byte
		var want string
		switch strings.TrimSpace(field[1]) {
		case "valid":
			in = []byte(field[2])
			want = field[2]
		case "valid hex":
			in = unhex(field[2])
			want = visible(in)
		case "invalid hex":
			in = unhex(field[2])
			want = visible(unhex(field[4]))
		default:
			t.Fatalf("unknown kind of case: %s", sc.Text())
		}
		cases++
		if got := sanitize(in); got != want {
			t.Errorf("case %s: % x became % x, want % x", field[0], in, got, want)
		}
	}
	if cases < 200 {
		t.Errorf("only %d cases were found", cases)
	}
}

func TestCleanLenStopsAtEveryByteThatIsNotClean(t *testing.T) {
	for at := range 70 {
		for b := range 256 {
			p := bytes.Repeat([]byte("a\tb\n ~"), 12)[:72]
			p[at] = byte(b)
			want := at
			if b == '\t' || b == '\n' || b >= 0x20 && b < 0x7f {
				want = len(p)
			}
			if got := cleanLen(p); got != want {
				t.Fatalf("byte %#x at %d: %d are clean, want %d", b, at, got, want)
			}
			if p[len(p)-1] = byte(b ^ 0x80); at < 60 && want == at && cleanLen(p) != at {
				t.Fatalf("byte %#x at %d, %#x at the end: %d are clean", b, at, b^0x80, cleanLen(p))
			}
		}
	}
}

func TestShortLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOf(rapid.SampledFrom([]byte("aaaaaaa\n"))).Draw(t, "p")
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		want := 0
		for {
			i := bytes.IndexByte(p[want:], '\n')
			if i < 0 || i > limit {
				break
			}
			want += i + 1
		}
		if got := shortLines(p, limit); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	})
}

// pieces cuts p in random chunks.
func pieces(t *rapid.T, p []byte, largest int) [][]byte {
	var all [][]byte
	for len(p) > 0 {
		n := rapid.IntRange(1, min(len(p), largest)).Draw(t, "chunk")
		all = append(all, p[:n])
		p = p[n:]
	}
	return all
}

// nasty draws output made of what sanitising acts on.
func nasty() *rapid.Generator[[]byte] {
	part := rapid.SampledFrom([]string{
		"a", "word ", "\n", "\n", "\r", "\r\n", "\t", "\x00", "\x7f", "é", "😀", "\xe2\x82", "\xff", "\xc2", "\x9c", "\u009b", "\u009c",
		"\x1b", "\x1b[", "\x1b[31m", "\x1b[K", "\x1b[2K", "\x1b[G", "3", ";", "m", "\x1b]0;", "\x07", "\x1b\\", "\x1bP", "\x1b_", "\x18", "\x1b(", "\x1b[0 q",
		strings.Repeat("x", 50), strings.Repeat("é", 50),
	})
	return rapid.Map(rapid.SliceOf(part), func(s []string) []byte { return []byte(strings.Join(s, "")) })
}

func TestAnySplitGivesTheSameText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := nasty().Draw(t, "stream")
		want := sanitize(p)
		if !utf8.ValidString(want) || strings.Count(want, "\n") != bytes.Count(p, newlineText) {
			t.Fatalf("%q became %q", p, want)
		}
		var s Sanitizer
		var got []byte
		for _, c := range pieces(t, p, 9) {
			got = s.Append(got, c)
		}
		if got = s.Flush(got); string(got) != want {
			t.Fatalf("%q in pieces became %q, at once %q", p, got, want)
		}
	})
}

// peer is the parser of charmbracelet/x/ansi with the line model of this package, written the plain way.
type peer struct {
	done, line []rune
	cr         bool
	params     []byte // of the control sequence, as they came
}

func (p *peer) put(r rune) {
	if p.cr {
		p.line, p.cr = nil, false
	}
	p.line = append(p.line, r)
}

func (p *peer) control(b byte) {
	switch b {
	case '\t':
		p.put('\t')
	case '\r':
		p.cr = true
	case '\n':
		p.done, p.line, p.cr = append(append(p.done, p.line...), '\n'), nil, false
	}
}

func (p *peer) csi(cmd ansi.Cmd, _ ansi.Params) {
	n := 0
	for _, b := range p.params {
		if b < '0' || b > '9' {
			return
		}
		n = min(n*10+int(b-'0'), 9999)
	}
	switch f := cmd.Final(); {
	case f == 'G' && n <= 1:
		p.cr = true
	case (f == 'K' || f == 'J') && n == 0 && p.cr, f == 'K' && n == 2:
		p.line = nil
	}
}

// FuzzSanitizer compares with the parser of charmbracelet/x/ansi wherever both mean to do the same, and checks what
// holds for every input.
func FuzzSanitizer(f *testing.F) {
	for _, s := range []string{
		"plain\n", "\x1b[1;31mred\x1b[0m\r\n", "10%\r20%\n", "\x1b]0;title\x07text", "\x1bPq#0\x1b\\x", "é😀\xff", "\x1b[2K\x1b[1Gx", "\x1b(B\x1b[?25l", "a\x1b_x\x1b\\b",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, split uint8) {
		got := sanitize(in)
		if !utf8.ValidString(got) || strings.Count(got, "\n") != bytes.Count(in, newlineText) {
			t.Fatalf("%q became %q", in, got)
		}
		for _, r := range got {
			if r < 0x20 && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%q became %q with a control character", in, got)
			}
		}
		var s Sanitizer
		var parts []byte
		for at, step := 0, int(split%16)+1; at < len(in); at += step {
			parts = s.Append(parts, in[at:min(at+step, len(in))])
		}
		if parts = s.Flush(parts); string(parts) != got {
			t.Fatalf("%q in pieces of %d became %q, at once %q", in, split%16+1, parts, got)
		}

		if want, ok := peerText(in); ok && got != want {
			t.Fatalf("%q became %q, by x/ansi %q", in, got, want)
		}
	})
}

// peerText returns what the peer makes of the input, and false where it is known to differ on purpose.
func peerText(in []byte) (string, bool) {
	if !utf8.Valid(in) || len(in) >= MaxHeld {
		return "", false // it takes C1 controls for bytes
	}
	var p peer
	x := ansi.NewParser()
	x.SetHandler(ansi.Handler{Print: p.put, Execute: p.control, HandleCsi: p.csi})
	for i, b := range in {
		st := x.State()
		inString := st == parser.DcsStringState || st >= parser.OscStringState && st <= parser.ApcStringState
		switch {
		case b == '\n' && st != parser.GroundState:
			return "", false // a newline ends sequences here, and is one in DCS
		case b == 0xc2 && i+1 < len(in) && in[i+1] < 0xa0:
			return "", false // C1 controls as characters: text to it
		case b >= 0x80 && (inString || st >= parser.DcsEntryState && st <= parser.DcsIntermediateState):
			return "", false // bytes of characters are C1 controls to it
		case b == 0x1b && st >= parser.DcsEntryState && st <= parser.DcsIntermediateState:
			return "", false // ESC directly behind DCS is data to it
		case st == parser.CsiIntermediateState && b >= 0x30 && b < 0x40:
			return "", false // it gives a malformed CSI up one byte earlier
		case b == 0x1b:
			p.params = nil
		case b < 0x20 && st >= parser.CsiEntryState && st <= parser.CsiIntermediateState:
			return "", false // a control inside of a CSI is obeyed here, as terminals do; it gives some up
		case st >= parser.CsiEntryState && st <= parser.CsiIntermediateState && b >= 0x20 && b < 0x40:
			p.params = append(p.params, b)
		}
		x.Advance(b)
	}
	return string(append(p.done, p.line...)), true
}

// realInputs returns the path of a file or folder of real inputs, or skips the test.
func realInputs(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("AGENTRUN_TEST_DATA")
	if root == "" {
		dir, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for ; ; dir = filepath.Dir(dir) {
			root = filepath.Join(dir, "shared", "data")
			if _, err := os.Stat(root); err == nil || dir == filepath.Dir(dir) {
				break
			}
		}
	}
	path := filepath.Join(root, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("real inputs absent: %v", err)
	}
	return path
}
