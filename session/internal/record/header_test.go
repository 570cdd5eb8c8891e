package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var ignoreParsed = cmpopts.IgnoreUnexported(Header{})

func mustParseHeader(t interface {
	Helper()
	Fatalf(string, ...any)
}, line []byte,
) Header {
	t.Helper()
	h, err := ParseHeader(line)
	if err != nil {
		t.Fatalf("ParseHeader(%s): %v", line, err)
	}
	return h
}

func TestParseHeader(t *testing.T) {
	tests := []struct {
		name     string
		line     string
		want     Header
		writable bool
	}{
		{
			name:     "a header of pi",
			line:     `{"type":"session","version":3,"id":"s","timestamp":"2026-05-12T01:02:27.657Z","cwd":"/tmp/x"}`,
			want:     Header{Version: 3, ID: "s", Timestamp: "2026-05-12T01:02:27.657Z", CWD: "/tmp/x"},
			writable: true,
		},
		{
			name:     "version 1 has none",
			line:     `{"type":"session","id":"s","timestamp":"t","cwd":"/tmp/x","provider":"anthropic"}`,
			want:     Header{Version: 1, ID: "s", Timestamp: "t", CWD: "/tmp/x"},
			writable: true,
		},
		{
			name: "every member, out of order, with CRLF and a byte order mark",
			line: bom + `{"previousSessionFiles":["/a","/b"],"parentSession":"p","additionalDirectories":["/d",7],"artifactRoot":{"path":"..","session":"r","more":1},"titleSource":"user","title":"a\u00e9","cwd":"/c","timestamp":"t","id":"s","version":2,"type":"session"}` + "\r",
			want: Header{
				Version: 2, ID: "s", Timestamp: "t", CWD: "/c", Title: "aé", TitleSource: "user",
				AdditionalDirectories: []string{"/d"}, ParentSession: "p", PreviousSessionFiles: []string{"/a", "/b"},
				ArtifactRoot: ArtifactRoot{Session: "r", Path: ".."},
			},
			writable: true,
		},
		{name: "a version in a string is another program's", line: `{"type":"session","id":"s","version":"0.1.0"}`, want: Header{ID: "s"}},
		{name: "a version in a string is another program's even if it is ours", line: `{"type":"session","id":"s","version":"3"}`, want: Header{ID: "s"}},
		{name: "a version that is a fraction", line: `{"type":"session","id":"s","version":2.5}`, want: Header{ID: "s"}},
		{name: "version 0", line: `{"type":"session","id":"s","version":0}`, want: Header{ID: "s"}},
		{name: "a huge version", line: `{"type":"session","id":"s","version":1e99}`, want: Header{ID: "s"}},
		{name: "a newer version", line: `{"type":"session","id":"s","version":4}`, want: Header{Version: 4, ID: "s"}},
		{name: "a version that is null", line: `{"type":"session","id":"s","version":null}`, want: Header{Version: 1, ID: "s"}, writable: true},
		{name: "3.0 is 3 in JavaScript", line: `{"type":"session","id":"s","version":3.0}`, want: Header{Version: 3, ID: "s"}, writable: true},
		{name: "members of unexpected types mean nothing", line: `{"type":"session","id":"s","cwd":7,"title":["x"],"additionalDirectories":"x","previousSessionFiles":{},"artifactRoot":"."}`, want: Header{Version: 1, ID: "s"}, writable: true},
		{name: "a pad of ours", line: `{"type":"session","id":"s","pad":"  "}`, want: Header{Version: 1, ID: "s", Padded: true}, writable: true},
		{name: "a pad of something else", line: `{"type":"session","id":"s","pad":"xx"}`, want: Header{Version: 1, ID: "s"}, writable: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustParseHeader(t, []byte(tt.line))
			if diff := cmp.Diff(tt.want, got, ignoreParsed); diff != "" {
				t.Error(diff)
			}
			if got.Writable() != tt.writable {
				t.Errorf("Writable = %v", got.Writable())
			}
		})
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"an entry":              entryLine("a", "", ""),
		"no id":                 `{"type":"session","version":3}`,
		"an empty id":           `{"type":"session","id":""}`,
		"an id that is no text": `{"type":"session","id":7}`,
		"no object":             `["session"]`,
		"no JSON":               `{"type":"session","id":"s"`,
		"nothing":               ``,
		"a title slot":          string(AppendSlot(nil, "x", "", at)),
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := ParseHeader([]byte(line)); !errors.Is(err, ErrHeader) {
				t.Errorf("ParseHeader = %+v, %v", h, err)
			}
		})
	}
}

func TestHeaderLineHas511BytesWhereItFits(t *testing.T) {
	tests := []struct {
		name  string
		cwd   string
		title string
		size  int
		want  string // the title that is read back
	}{
		{"no title", "/srv/app", "", 511, ""},
		{"a short title", "/srv/app", "Fix é", 511, "Fix é"},
		{"a title that is cut", "/srv/app", strings.Repeat("é", 400), 511, strings.Repeat("é", 171)},
		{"a title that is cut at an emoji", "/srv/app", strings.Repeat("😀", 400), 511, strings.Repeat("😀", 85)},
		{"no room for a title", "/" + strings.Repeat("d", 350), "Fix", 511, ""},
		{"a long cwd", "/" + strings.Repeat("d", 500), "Fix", 768 + 256, "Fix"},
		{"a long cwd and a long title", "/" + strings.Repeat("d", 500), strings.Repeat("t", 700), 1536, strings.Repeat("t", 700)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHeader("01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a001", tt.cwd, at)
			h.Title = tt.title
			line := h.AppendLine(nil)
			got := mustParseHeader(t, line)
			if len(line) != tt.size || got.Title != tt.want || got.CRC != CRCOK || !got.Padded || got.CWD != tt.cwd || !json.Valid(line) {
				t.Errorf("%d bytes, title of %d bytes, %v, padded %v\n%s", len(line), len(got.Title), got.CRC, got.Padded, line)
			}
		})
	}
}

func TestUnknownMembersAreKeptToTheByte(t *testing.T) {
	const line = `{"version":3,"x" : {"b":1,  "a":"\u0041"},"type":"session","title":"\u0061","id":"s","n":1.0,"cwd":"\u002fsrv","crc":"nonsense","q\u0022":[ ]}`
	h := mustParseHeader(t, []byte(line))
	if h.Title != "a" || h.CWD != "/srv" || string(h.Member("n")) != "1.0" || h.Member("absent") != nil {
		t.Fatalf("%+v", h)
	}
	out := string(h.AppendLine(nil))
	const want = `{"version":3,"x":{"b":1,  "a":"\u0041"},"type":"session","id":"s","n":1.0,"cwd":"\u002fsrv","q\u0022":[ ],"title":"\u0061","pad":"`
	if !strings.HasPrefix(out, want) || len(out) != 511 {
		t.Errorf("%d bytes: %s", len(out), out)
	}
	h.Title, h.ParentSession, h.CWD = "b", "p", "/new"
	out = string(h.AppendLine(nil))
	const changed = `{"version":3,"x":{"b":1,  "a":"\u0041"},"type":"session","id":"s","n":1.0,"cwd":"/new","q\u0022":[ ],"parentSession":"p","title":"b","pad":"`
	if !strings.HasPrefix(out, changed) || len(out) != 511 {
		t.Errorf("%d bytes: %s", len(out), out)
	}
	h.Title, h.ParentSession = "", ""
	if out = string(h.AppendLine(nil)); strings.Contains(out, `"title"`) || strings.Contains(out, "parentSession") {
		t.Errorf("removed members are written: %s", out)
	}
}

func TestAForeignPadAndVersionStay(t *testing.T) {
	const line = `{"type":"session","id":"s","version":"0.1.0","pad":{"x":1},"title":"t"}`
	h := mustParseHeader(t, []byte(line))
	body, ok := Unseal(bytes.TrimSuffix(h.AppendLine(nil), []byte("\n")))
	if string(body)+"}" != line || !ok {
		t.Errorf("%s", body)
	}
}

func TestRetitle(t *testing.T) {
	h := NewHeader("s", "/srv/app", at)
	h.ParentSession = "p"
	plain := h.AppendLine(nil)
	h.Title, h.TitleSource = "Old", "auto"
	titled := h.AppendLine(nil)
	unsealed := []byte(`{"type":"session","x":  1,"pad":"` + strings.Repeat(" ", 40) + `","id":"s"}` + "\r\n")
	long := strings.Repeat("a😀\n", 300)
	for name, line := range map[string][]byte{"a header without a title": plain, "one with a title": titled, "without its newline": titled[:510], "without a crc, its pad in the middle, CRLF": unsealed} {
		for _, title := range []string{"", "x", "New é", long} {
			t.Run(name+", "+title[:min(5, len(title))], func(t *testing.T) {
				before := bytes.Clone(line)
				out, err := Retitle(line, title, "user")
				if err != nil {
					t.Fatal(err)
				}
				got := mustParseHeader(t, out)
				if len(out) != len(line) || !bytes.Equal(line, before) {
					t.Fatalf("%d bytes instead of %d: %s", len(out), len(line), out)
				}
				if !strings.HasPrefix(title, got.Title) || (title != long && title != got.Title) || (title == "") != (got.Title == "") || !utf8.ValidString(got.Title) {
					t.Errorf("title %q is read as %q", title, got.Title)
				}
				if want := map[bool]string{true: "", false: "user"}[title == ""]; got.TitleSource != want {
					t.Errorf("source = %q", got.TitleSource)
				}
				if was := mustParseHeader(t, line); got.CRC != was.CRC || got.ParentSession != was.ParentSession || string(got.Member("x")) != string(was.Member("x")) {
					t.Errorf("%s\nbecame\n%s", line, out)
				}
			})
		}
	}
}

func TestRetitleRefuses(t *testing.T) {
	full := `{"type":"session","id":"s","pad":"  "}`
	for name, tt := range map[string]struct {
		line string
		err  error
	}{
		"a header without a pad":      {`{"type":"session","version":3,"id":"s"}`, ErrNoRoom},
		"a pad of something else":     {`{"type":"session","id":"s","pad":"  x  "}`, ErrNoRoom},
		"a pad too short for a title": {full, ErrNoRoom},
		"an entry":                    {entryLine("a", "", ""), ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := Retitle([]byte(tt.line), "title", "auto"); !errors.Is(err, tt.err) {
				t.Errorf("Retitle = %s, %v", out, err)
			}
		})
	}
	if out, err := Retitle([]byte(full), "", ""); err != nil || string(out) != full {
		t.Errorf("an empty title needs no room: %s, %v", out, err)
	}
}

func genText(maxLen int) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune("ab \"\\\n\x00\x7fé€😀\u2028\uFFFD")), 0, maxLen, -1)
}

// Renaming again and again never changes anything but the title.
func TestRetitlingKeepsEverythingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := NewHeader(genText(40).Filter(func(s string) bool { return s != "" }).Draw(t, "id"), genText(400).Draw(t, "cwd"), at)
		h.Title = genText(300).Draw(t, "title")
		if h.Title != "" {
			h.TitleSource = rapid.SampledFrom([]string{"auto", "user", ""}).Draw(t, "source")
		}
		h.AdditionalDirectories = rapid.SliceOfN(genText(20).Filter(func(s string) bool { return s != "" }), 0, 3).Draw(t, "directories")
		line := h.AppendLine(nil)
		if n := len(line); n != headerSize && n%headerStep != 0 {
			t.Fatalf("%d bytes", n)
		}
		first := mustParseHeader(t, line)
		if !strings.HasPrefix(h.Title, first.Title) || len(line) > headerSize && h.Title != first.Title {
			t.Fatalf("title %q was written as %q", h.Title, first.Title)
		}
		for range 3 {
			title := genText(300).Draw(t, "new title")
			out, err := Retitle(line, title, rapid.SampledFrom([]string{"auto", "user", ""}).Draw(t, "new source"))
			if errors.Is(err, ErrNoRoom) && title != "" && len(line) == headerSize {
				continue
			}
			if err != nil {
				t.Fatalf("%v", err)
			}
			got := mustParseHeader(t, out)
			if len(out) != len(line) || got.CRC != CRCOK || !strings.HasPrefix(title, got.Title) || (title != "" && got.Title == "") {
				t.Fatalf("%q was written as %q\n%s", title, got.Title, out)
			}
			got.Title, got.TitleSource = first.Title, first.TitleSource
			if diff := cmp.Diff(first, got, ignoreParsed, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s", diff)
			}
			line = out
		}
	})
}

func TestCutLiteralSplitsNothing(t *testing.T) {
	const inner = `a\n\u00e9é\ud83d\ude00😀\ud83dx\ude00\\`
	want := map[int]string{
		0: ``, 1: `a`, 2: `a`, 3: `a\n`, 8: `a\n`, 9: `a\n\u00e9`, 10: `a\n\u00e9`, 11: `a\n\u00e9é`, 17: `a\n\u00e9é`, 22: `a\n\u00e9é`,
		23: `a\n\u00e9é\ud83d\ude00`, 26: `a\n\u00e9é\ud83d\ude00`, 27: `a\n\u00e9é\ud83d\ude00😀`, 33: `a\n\u00e9é\ud83d\ude00😀\ud83d`, len(inner): inner, len(inner) - 1: inner[:len(inner)-2],
	}
	for n, w := range want {
		if got := string(cutLiteral([]byte(inner), n)); got != w {
			t.Errorf("cutLiteral(%d) = %s, want %s", n, got, w)
		}
	}
	if got := cutLiteral([]byte(inner), -5); len(got) != 0 {
		t.Errorf("cutLiteral(-5) = %s", got)
	}
}

func FuzzParseHeader(f *testing.F) {
	h := NewHeader("s", "/srv", at)
	h.Title = "t"
	f.Add(h.AppendLine(nil), "new title", "auto")
	for _, s := range []string{``, `{"type":"session","id":"s"}`, `{"type":"session","id":"s","pad":"    ","pad":"  "}`, `{"type":"session","id":"s","pad":"                         ","title":null,"title":"x"}`, `{"type":"session","version":"0.1.0","id":"s","pad":1}`, bom + `{"type":"session","id":"s","pad":"                         "}` + "\r\n"} {
		f.Add([]byte(s), "t", "")
	}
	f.Fuzz(func(t *testing.T, line []byte, title, source string) {
		before := bytes.Clone(line)
		h, err := ParseHeader(line)
		if err != nil {
			if !errors.Is(err, ErrHeader) {
				t.Fatal(err)
			}
			return
		}
		out := h.AppendLine(nil)
		again := mustParseHeader(t, out)
		if again.ID != h.ID || again.CWD != h.CWD || again.Version != h.Version || again.CRC != CRCOK || len(again.members) > len(h.members) {
			t.Fatalf("%q was written as %q", line, out)
		}
		moved := h
		moved.CWD, moved.PreviousSessionFiles = title, append(slices.Clone(h.PreviousSessionFiles), source)
		elsewhere, err := moved.Rewrite(line)
		if err != nil {
			t.Fatal(err)
		}
		there := mustParseHeader(t, elsewhere)
		want := mustParseHeader(t, moved.AppendLine(nil))
		if there.ID != h.ID || there.CWD != want.CWD || !slices.Equal(there.PreviousSessionFiles, want.PreviousSessionFiles) || (there.CRC == CRCOK) != (h.CRC != CRCNone || h.Padded && len(elsewhere) != len(line)) {
			t.Fatalf("%q was rewritten to %q", line, elsewhere)
		}
		retitled, err := Retitle(line, title, source)
		if !bytes.Equal(line, before) {
			t.Fatal("an argument was changed")
		}
		if err != nil {
			return
		}
		if now := mustParseHeader(t, retitled); len(retitled) != len(line) || now.ID != h.ID || now.CWD != h.CWD || (now.CRC == CRCOK) != (h.CRC != CRCNone) {
			t.Fatalf("%q was retitled to %q", line, retitled)
		}
	})
}

func TestATornHeaderHasEverythingButItsTitle(t *testing.T) {
	h := NewHeader("01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a001", "/srv/app", at)
	h.Title, h.TitleSource, h.ParentSession, h.Project = "the old one", "auto", "p", "fingerprint"
	h.AdditionalDirectories, h.PreviousSessionFiles = []string{"/srv/shared"}, []string{"/home/u/old.jsonl"}
	h.ArtifactRoot = ArtifactRoot{Session: "01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a000", Path: "."}
	old := h.AppendLine(nil)
	now, err := Retitle(old, `the "new" one, longer`, "user")
	if err != nil {
		t.Fatal(err)
	}
	torn := 0
	for k := range now {
		line := append(now[:k:k], old[k:]...)
		if _, err := ParseHeader(line); err == nil {
			continue
		}
		torn++
		got, ok := ParseTornHeader(line)
		if !ok || got.Title != "" || !got.Torn || got.CRC != CRCMismatch || got.Padded {
			t.Fatalf("%d bytes: %v, %+v", k, ok, got)
		}
		again := got.AppendLine(nil)
		h.Title, h.TitleSource = "", ""
		if want := h.AppendLine(nil); !bytes.Equal(again, want) {
			t.Fatalf("%d bytes: written again it is\n%s\nand not\n%s", k, again, want)
		}
	}
	if torn == 0 {
		t.Error("no tear broke the JSON")
	}
}

func TestWhatIsNoTornHeaderIsNone(t *testing.T) {
	for name, line := range map[string]string{
		"nothing":           ``,
		"only a seal":       `{,"crc":"00000000"}`,
		"an entry":          `{"type":"message","id":"a","timestamp":"t","cwd":"/x","title":"a"b,"crc":"00000000"}`,
		"no id":             `{"type":"session","version":3,"timestamp":"t","cwd":"/x","title":"a"b,"crc":"00000000"}`,
		"no cwd":            `{"type":"session","version":3,"id":"a","timestamp":"t","title":"a"b,"crc":"00000000"}`,
		"a cwd that is cut": `{"type":"session","version":3,"id":"a","timestamp":"t","cwd":"/x,"crc":"00000000"}`,
		"another version":   `{"type":"session","version":4,"id":"a","timestamp":"t","cwd":"/x","title":"a"b,"crc":"00000000"}`,
		"not sealed":        `{"type":"session","version":3,"id":"a","timestamp":"t","cwd":"/x","title":"a"b}`,
	} {
		if h, ok := ParseTornHeader([]byte(line)); ok {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// FuzzTornHeader gives a header another title and tears the write at some byte.
func FuzzTornHeader(f *testing.F) {
	f.Add("old", "new \"title\"", "/srv", uint16(200))
	f.Add(`","cwd":"/evil`, `\`, "/srv", uint16(150))
	f.Add("a long one \u2028", "", strings.Repeat("/long", 120), uint16(700))
	f.Fuzz(func(t *testing.T, before, after, cwd string, at uint16) {
		h := NewHeader("01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a001", "/"+cwd, time.UnixMilli(1763670000000))
		h.Title, h.TitleSource, h.ParentSession, h.Project = before, "auto", "p", "fingerprint"
		h.PreviousSessionFiles = []string{"/home/u/old.jsonl"}
		old := h.AppendLine(nil)
		now, err := Retitle(old, after, "user")
		if err != nil {
			return
		}
		k := int(at) % len(now)
		line := append(now[:k:k], old[k:]...)
		got, err := ParseHeader(line)
		if err != nil {
			var ok bool
			if got, ok = ParseTornHeader(line); !ok {
				t.Fatalf("%v: %q", err, line)
			}
		}
		want := mustParseHeader(t, old)
		got.Title, got.TitleSource, got.CRC, got.Torn, got.Padded = want.Title, want.TitleSource, want.CRC, false, want.Padded
		if d := cmp.Diff(want, got, ignoreParsed); d != "" {
			t.Fatalf("%q: %s", line, d)
		}
	})
}
