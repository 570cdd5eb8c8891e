package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// at is the moment at which every line in these tests is written.
var at = time.Date(2026, 11, 20, 20, 17, 7, 977_000_000, time.UTC)

// entryLine returns a sealed entry without its '\n'.
func entryLine(id, parent, fields string) string {
	line := Seal(append(Begin(nil, "message", id, parent, at), fields...), 0)
	return string(line[:len(line)-1])
}

// typicalLine is an assistant message of about 700 bytes.
func typicalLine() []byte {
	text := strings.Repeat("The pool is closed before its last connection is returned. ", 7)
	return []byte(entryLine("6921f0a1c3d44b7e90aa12fe", "6921f0a1c3d44b7e90aa12fd",
		`,"message":{"role":"assistant","content":[{"type":"text","text":"`+text+`"}],"model":"m","timestamp":1795205827977}`))
}

func describe(e Envelope) string {
	return fmt.Sprintf("type %q id %q parent %q (%v) time %q crc %v", e.Type, e.ID, e.Parent, e.HasParent, e.Timestamp, e.CRC)
}

func TestParse(t *testing.T) {
	const ts = `"timestamp":"2026-11-20T20:17:07.977Z"`
	tests := []struct {
		name string
		line string
		want Envelope
		err  error
	}{
		{
			name: "a line of ours",
			line: entryLine("b", "a", `,"message":{"role":"user"}`),
			want: Envelope{Type: []byte("message"), ID: []byte("b"), Parent: []byte("a"), HasParent: true, CRC: CRCOK},
		},
		{
			name: "a root of ours",
			line: entryLine("b", "", ``),
			want: Envelope{Type: []byte("message"), ID: []byte("b"), HasParent: true, CRC: CRCOK},
		},
		{
			name: "a line of ours that got CRLF and a byte order mark",
			line: bom + entryLine("b", "a", ``) + "\r",
			want: Envelope{Type: []byte("message"), ID: []byte("b"), Parent: []byte("a"), HasParent: true, CRC: CRCOK},
		},
		{
			name: "a changed line of ours is used",
			line: strings.Replace(entryLine("b", "a", `,"x":1`), `"x":1`, `"x":2`, 1),
			want: Envelope{Type: []byte("message"), ID: []byte("b"), Parent: []byte("a"), HasParent: true, CRC: CRCMismatch},
		},
		{
			name: "a crc that is not last is a member like any other",
			line: `{"type":"x","id":"b","crc":"00000000","parentId":"a",` + ts + `}`,
			want: Envelope{Type: []byte("x"), ID: []byte("b"), Parent: []byte("a"), HasParent: true},
		},
		{
			name: "a crc in upper case is none",
			line: `{"type":"x","id":"b","parentId":"a",` + ts + `,"crc":"ABCDEF00"}`,
			want: Envelope{Type: []byte("x"), ID: []byte("b"), Parent: []byte("a"), HasParent: true},
		},
		{
			name: "a crc nested at the end is none",
			line: `{"type":"x","id":"b","parentId":"a",` + ts + `,"data":{"a":1,"crc":"00000000"}}`,
			want: Envelope{Type: []byte("x"), ID: []byte("b"), Parent: []byte("a"), HasParent: true},
		},
		{
			name: "ids that stand last, white space",
			line: ` { "type" : "custom" , "data" : { "id" : "no" , "a" : [ "]" , "}" ] } , "id" : "b" , "parentId" : null , ` + ts + ` } `,
			want: Envelope{Type: []byte("custom"), ID: []byte("b"), HasParent: true},
		},
		{
			name: "the last of duplicates",
			line: `{"type":"x","id":"1","parentId":"p",` + ts + `,"id":"2","type":"y","parentId":null}`,
			want: Envelope{Type: []byte("y"), ID: []byte("2"), HasParent: true},
		},
		{
			name: "escapes in keys and values",
			line: `{"t\u0079pe":"m\u00e9","id":"a\"b","parentId":"\ud83d\ude00",` + ts + `}`,
			want: Envelope{Type: []byte("mé"), ID: []byte(`a"b`), Parent: []byte("😀"), HasParent: true},
		},
		{
			name: "a lone surrogate in an id",
			line: `{"type":"x","id":"\ud83d",` + ts + `}`,
			want: Envelope{Type: []byte("x"), ID: []byte("\xed\xa0\xbd")},
		},
		{
			name: "version 1: no id and no parent",
			line: `{"type":"message",` + ts + `,"message":{"role":"user","id":"x"}}`,
			want: Envelope{Type: []byte("message")},
		},
		{
			name: "ids that are no strings are none",
			line: `{"type":"message","id":7,"parentId":{"id":"x"},` + ts + `}`,
			want: Envelope{Type: []byte("message"), HasParent: true},
		},
		{
			name: "an empty id is none",
			line: entryLine("", "", ``),
			want: Envelope{Type: []byte("message"), HasParent: true, CRC: CRCOK},
		},
		{name: "null", line: `null`, err: ErrScalar},
		{name: "a number", line: ` 42 `, err: ErrScalar},
		{name: "a string", line: `"{}"`, err: ErrScalar},
		{name: "an array", line: `[{"type":"x"}]`, err: ErrScalar},
		{name: "an empty object", line: `{}`, err: ErrNoType},
		{name: "a type that is no string", line: `{"type":3,"id":"x"}`, err: ErrNoType},
		{name: "the last type is no string", line: `{"type":"x","id":"x","type":null}`, err: ErrNoType},
		{name: "an empty line", line: ``, err: ErrBlank},
		{name: "white space and a byte order mark", line: bom + " \t\r", err: ErrBlank},
		{name: "two records", line: `{"type":"x"}{"type":"y"}`, err: ErrSyntax},
		{name: "two sealed records", line: entryLine("a", "", ``) + entryLine("b", "", ``), err: ErrSyntax},
		{name: "a cut record", line: `{"type":"x"`, err: ErrSyntax},
		{name: "zero bytes", line: "\x00\x00", err: ErrSyntax},
		{name: "a trailing comma", line: `{"type":"x",}`, err: ErrSyntax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.line))
			if !errors.Is(err, tt.err) {
				t.Fatalf("Parse error = %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if string(got.Timestamp) != "2026-11-20T20:17:07.977Z" {
				t.Errorf("Timestamp = %q", got.Timestamp)
			}
			got.Timestamp = nil
			if g, w := describe(got), describe(tt.want); g != w {
				t.Errorf("Parse = %s\nwant    %s", g, w)
			}
			if (got.ID == nil) != (tt.want.ID == nil) || (got.Parent == nil) != (tt.want.Parent == nil) {
				t.Errorf("nil ID, Parent = %v, %v", got.ID == nil, got.Parent == nil)
			}
		})
	}
}

func TestParseOfOwnLineDoesNotAllocate(t *testing.T) {
	line := typicalLine()
	if n := testing.AllocsPerRun(100, func() {
		if e, err := Parse(line); err != nil || e.CRC != CRCOK {
			t.Fatal("not parsed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSealIsCRC32COfTheBytesBefore(t *testing.T) {
	// The check value of CRC-32C: RFC 3720, B.4 and every catalogue of CRCs.
	if got := string(Seal([]byte("123456789"), 0)); got != `123456789,"crc":"e3069283"}`+"\n" {
		t.Errorf("Seal = %q", got)
	}
	line := Seal(append(Begin([]byte("before"), "t", "i", "", at), `,"a":1`...), len("before"))
	line = line[len("before") : len(line)-1]
	if Verify(line) != CRCOK {
		t.Errorf("Verify(%s) = %v", line, Verify(line))
	}
	body, ok := Unseal(line)
	if again := Seal(bytes.Clone(body), 0); !ok || string(again) != string(line)+"\n" {
		t.Errorf("Seal(Unseal) = %q", again)
	}
	for i := range len(line) - sealLen {
		bad := bytes.Clone(line)
		bad[i] ^= 1
		if got := Verify(bad); got == CRCOK {
			t.Errorf("a flipped bit at %d is not noticed", i)
		}
	}
}

func TestBeginQuotesWhatItIsGiven(t *testing.T) {
	line := Seal(Begin(nil, "a\"b", "c\nd", "e\\f", at), 0)
	e, err := Parse(line[:len(line)-1])
	if err != nil || string(e.Type) != "a\"b" || string(e.ID) != "c\nd" || string(e.Parent) != `e\f` || e.CRC != CRCOK {
		t.Errorf("%s: %s %v", line, describe(e), err)
	}
}

// The golden files are the format: they are added to and never changed.
func TestGoldenV3(t *testing.T) {
	h := NewHeader("01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a001", "/srv/app", at)
	h.Title, h.TitleSource = "Fix the connection pool", "auto"
	h.AdditionalDirectories = []string{"/srv/shared"}
	h.ParentSession = "01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a000"
	h.PreviousSessionFiles = []string{"/home/u/old.jsonl"}
	file := h.AppendLine(nil)
	file = Seal(append(Begin(file, "message", "6921f0a1c3d44b7e90aa12fe", "", at),
		`,"message":{"role":"user","content":"naïve \ud800 😀","timestamp":1795205827977}`...), len(file))
	file = Seal(append(Begin(file, "custom", "6921f0a1c3d44b7e90aa12ff", "6921f0a1c3d44b7e90aa12fe", at),
		`,"customType":"note","data":{"crc":"00000000"}`...), len(file))
	file = AppendSlot(file, "Fix the connection pool", "user", at)

	path := filepath.Join("testdata", "v3-title-last.jsonl")
	if *update {
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, want) {
		t.Errorf("written:\n%s\ngolden:\n%s", file, want)
	}
}

func TestGoldenV3IsReadable(t *testing.T) {
	for _, name := range []string{"v3.jsonl", "v3-title-last.jsonl"} {
		t.Run(name, func(t *testing.T) { goldenV3(t, name) })
	}
}

func goldenV3(t *testing.T, name string) {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(data) {
		e, err := Parse(bytes.TrimSuffix(line, []byte("\n")))
		got = append(got, fmt.Sprintf("%s %s %s %s %v %v", e.Type, e.ID, e.Parent, e.Timestamp, e.CRC, err))
	}
	want := []string{
		"session 01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a001  2026-11-20T20:17:07.977Z ok <nil>",
		"message 6921f0a1c3d44b7e90aa12fe  2026-11-20T20:17:07.977Z ok <nil>",
		"custom 6921f0a1c3d44b7e90aa12ff 6921f0a1c3d44b7e90aa12fe 2026-11-20T20:17:07.977Z ok <nil>",
		"title    none <nil>",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// jsEnvelope reads a line by another road: encoding/json also takes the last of
// duplicates.
func jsEnvelope(line []byte) (typ, id, parent, ts string, hasParent, ok bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(Trim(line), &m) != nil || m == nil {
		return
	}
	str := func(name string) (s string) {
		if raw := m[name]; len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	}
	_, hasParent = m["parentId"]
	typ = str("type")
	return typ, str("id"), str("parentId"), str("timestamp"), hasParent, typ != ""
}

func TestParseAgreesWithAnotherDecoderOnRealSessions(t *testing.T) {
	for _, path := range realSessions(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range bytes.Lines(data) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			typ, id, parent, ts, hasParent, ok := jsEnvelope(line)
			e, err := Parse(line)
			if ok != (err == nil) {
				t.Errorf("%s: %.100q: %v", path, line, err)
				continue
			}
			if !ok {
				continue
			}
			n++
			if string(e.Type) != typ || string(e.ID) != id || string(e.Parent) != parent || string(e.Timestamp) != ts || e.HasParent != hasParent {
				t.Errorf("%s: %.200q: %s", path, line, describe(e))
			}
		}
		if n == 0 {
			t.Errorf("%s: no records", path)
		}
	}
}

// realSessions lists session files that other programs wrote.
func realSessions(tb testing.TB) []string {
	dir := os.Getenv("AGENTRUN_TEST_DATA")
	if dir == "" {
		wd, err := os.Getwd()
		if err != nil {
			tb.Fatal(err)
		}
		for d := wd; dir == "" && d != filepath.Dir(d); d = filepath.Dir(d) {
			if candidate := filepath.Join(d, "shared", "data"); isDir(candidate) {
				dir = candidate
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "pi-sessions", "*.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(dir, "pi-sessions", "*", "*.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	if files = append(files, more...); len(files) == 0 {
		tb.Skip("real inputs absent: set AGENTRUN_TEST_DATA to the directory that holds pi-sessions")
	}
	return files
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func FuzzParse(f *testing.F) {
	f.Add(typicalLine())
	for _, s := range []string{``, `null`, `{}`, `{"type":"x"}`, `{"type":"x","id":"\ud800","parentId":null}`, bom + `{"type":"x"}` + "\r", `{"type":"x","crc":"00000000"}`, `{"type":"a","type":"b"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		e, err := Parse(line)
		if !bytes.Equal(before, line) {
			t.Fatal("Parse changed its argument")
		}
		if e.CRC == CRCOK {
			return // trusted: there is nothing to compare with
		}
		if json.Valid(line) {
			typ, id, parent, ts, hasParent, ok := jsEnvelope(line)
			if ok != (err == nil) {
				t.Fatalf("Parse(%q) = %v", line, err)
			}
			clean := !bytes.Contains(line, []byte(`\u`)) && bytes.Equal(bytes.ToValidUTF8(line, nil), line)
			if ok && clean && (string(e.Type) != typ || string(e.ID) != id || string(e.Parent) != parent || string(e.Timestamp) != ts || e.HasParent != hasParent) {
				t.Fatalf("Parse(%q) = %s", line, describe(e))
			}
		}
		if err == nil {
			// What was read can be written and read again.
			sealed := Seal(Begin(nil, string(e.Type), string(e.ID), string(e.Parent), at), 0)
			again, err := Parse(sealed[:len(sealed)-1])
			if err != nil || again.CRC != CRCOK || !bytes.Equal(again.Type, e.Type) || !bytes.Equal(again.ID, e.ID) || !bytes.Equal(again.Parent, e.Parent) {
				t.Fatalf("%s was written as %q and read as %s, %v", describe(e), sealed, describe(again), err)
			}
		}
	})
}

func BenchmarkParseOwnLine(b *testing.B) {
	line := typicalLine()
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if e, err := Parse(line); err != nil || e.CRC != CRCOK {
			b.Fatal(err)
		}
	}
}

// The limit of the benchmark above: its checksum alone.
func BenchmarkVerify(b *testing.B) {
	line := typicalLine()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if Verify(line) != CRCOK {
			b.Fatal("mismatch")
		}
	}
}

func BenchmarkParseForeignLine(b *testing.B) {
	body, _ := Unseal(typicalLine())
	line := append(bytes.Clone(body), '}')
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBeginSeal(b *testing.B) {
	body := typicalLine()
	body = body[bytes.Index(body, []byte(`,"message":`)) : len(body)-sealLen]
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		buf = Begin(buf[:0], "message", "6921f0a1c3d44b7e90aa12fe", "6921f0a1c3d44b7e90aa12fd", at)
		buf = Seal(append(buf, body...), 0)
	}
}
