package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// describeParts prints parts as kind[from:to].
func describeParts(parts []Part) string {
	var out []string
	for _, p := range parts {
		kind := string(p.Kind)
		if kind == "" {
			kind = "record"
		}
		out = append(out, fmt.Sprintf("%s[%d:%d]", kind, p.Off, p.Off+p.Len))
	}
	return strings.Join(out, " ")
}

func TestSplit(t *testing.T) {
	a := entryLine("a", "", `,"message":{"role":"user","content":"hi"}`)
	b := entryLine("b", "a", `,"message":{"role":"assistant","content":[{"type":"toolCall","id":"t","arguments":{"x":1}}]}`)
	foreign := `{"type":"custom","data":{"x":1},"id":"f","parentId":"b","timestamp":"2026-11-20T20:17:07.977Z"}`
	v1 := `{"type":"message","timestamp":"2024-01-15T10:30:01.000Z","message":{"role":"user"}}`
	header := `{"type":"session","version":3,"id":"s","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/"}`
	nul := strings.Repeat("\x00", 9)
	type piece struct {
		kind Kind
		text string
	}
	good := func(s string) piece { return piece{"", s} }
	bad := func(k Kind, s string) piece { return piece{k, s} }
	tests := []struct {
		name   string
		pieces []piece // in order; a joined piece is empty and counted as the n records after it
	}{
		{"two records run together", []piece{{KindJoined, "2"}, good(a), good(b)}},
		{"three records run together, one of another program", []piece{{KindJoined, "3"}, good(a), good(foreign), good(b)}},
		{"a header run into an entry", []piece{{KindJoined, "2"}, good(header), good(a)}},
		{"two records of version 1", []piece{{KindJoined, "2"}, good(v1), good(v1)}},
		{"torn in a string, then a record", []piece{bad(KindTorn, b[:40]), good(a)}},
		{"torn in a key, then a record", []piece{bad(KindTorn, b[:4]), good(a)}},
		{"torn before a value, then a record", []piece{bad(KindTorn, b[:strings.Index(b, `{"role"`)]), good(a)}},
		{"torn before a value, then a record and a carriage return", []piece{bad(KindTorn, `{"a":`), good(a), bad("space", "\r")}},
		{"torn in an array, then a record of another program", []piece{bad(KindTorn, b[:strings.Index(b, `[{"type"`)+1]), good(foreign)}},
		{"torn after a block that looks complete", []piece{bad(KindTorn, b[:strings.Index(b, `]}`)]), good(a)}},
		{"torn between braces, then two records", []piece{bad(KindTorn, `{`), {KindJoined, "2"}, good(a), good(b)}},
		{"torn after a backslash", []piece{bad(KindTorn, `{"type":"\`), good(a)}},
		{"a record, then a torn one", []piece{good(a), bad(KindTorn, b[:40])}},
		{"torn in a number", []piece{bad(KindTorn, `{"n":-1.`), good(a)}},
		{"a torn record alone", []piece{bad(KindTorn, a[:len(a)-1])}},
		{"the end of a record, then a record", []piece{bad(KindGarbage, `ser","content":"hi"}}`), good(a)}},
		{"spliced: a record in the middle of another", []piece{bad(KindTorn, b[:40]), good(a), bad(KindGarbage, b[40:])}},
		{"spliced where a value was expected", []piece{bad(KindTorn, `{"type":"x","message":`), good(foreign), bad(KindGarbage, `{"role":"user"}}`)}},
		{"torn before a value, then a sealed record, then what reads on", []piece{bad(KindTorn, `{"type":`), good(a), bad(KindGarbage, `,\"id\":`)}},
		{"zero bytes before a record", []piece{bad(KindNUL, nul), good(a)}},
		{"zero bytes after a record", []piece{good(a), bad(KindNUL, nul)}},
		{"zero bytes between records", []piece{good(a), bad(KindNUL, nul), good(b)}},
		{"zero bytes in a record", []piece{bad(KindTorn, a[:20]), bad(KindNUL, nul), bad(KindGarbage, a[20:])}},
		{"zero bytes in a torn record that ends where a record begins", []piece{bad(KindTorn, a[:20]), bad(KindNUL, nul), good(b)}},
		{"only zero bytes", []piece{bad(KindNUL, nul)}},
		{"no JSON at all", []piece{bad(KindGarbage, "panic: out of memory")}},
		{"a scalar before a record", []piece{bad(KindScalar, "null"), good(a)}},
		{"an object that is no record, after a record", []piece{good(a), bad(KindGarbage, `{"x":1}`)}},
		{"a nested record of a record whose end is garbage", []piece{bad(KindGarbage, `{"type":"x","data":[`+v1+`,{"a":!}]}`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var line string
			var want []Part
			for i, p := range tt.pieces {
				switch p.kind {
				case KindJoined:
					n := 0
					for _, q := range tt.pieces[i+1 : i+1+int(p.text[0]-'0')] {
						n += len(q.text)
					}
					want = append(want, Part{len(line), n, KindJoined})
					continue
				case "space":
				default:
					want = append(want, Part{len(line), len(p.text), p.kind})
				}
				line += p.text
			}
			got := Split([]byte(line))
			if g, w := describeParts(got), describeParts(want); g != w {
				t.Errorf("%q\ngot  %s\nwant %s", line, g, w)
			}
		})
	}
}

func TestSplitOfWhatHasNoDamageIsOnePart(t *testing.T) {
	line := typicalLine()
	if got := Split(line); len(got) != 1 || got[0] != (Part{0, len(line), ""}) {
		t.Errorf("Split = %v", got)
	}
	if got := Split([]byte(" \r")); len(got) != 0 {
		t.Errorf("Split of white space = %v", got)
	}
}

// Each of these has so many beginnings of objects that starting again at every
// one of them would read it thousands of times.
func TestSplitIsLinearOnHostileLines(t *testing.T) {
	const size = 64 << 10
	a := entryLine("a", "", "")
	for name, unit := range map[string]string{
		"starts of objects":                  `{"`,
		"nested objects":                     `{"a":`,
		"nested arrays in an object":         `{"a":[`,
		"complete small objects":             `{"a":1}`,
		"complete objects in arrays":         `[{"a":{}},`,
		"an object in an array that fails":   `{"a":[{"b":{}}!`,
		"open strings":                       `{"a":"{`,
		"zero bytes":                         "{\"\x00",
		"escapes":                            `{"\u00`,
		"records torn early":                 `{"type":"message","id":` + a[:30],
		"joined records":                     a,
		"joined records and zero bytes":      a + a + "\x00",
		"records where a value was expected": `{"a":` + a,
		"sealed objects in each other":       `{"a":` + a + `,"crc":"00000000"}`,
	} {
		t.Run(name, func(t *testing.T) {
			line := []byte(strings.Repeat(unit, size/len(unit)))
			checkParts(t, line, Split(line))
			line = append(line, "\x00"+a...)
			s := splitter{line: line}
			parts := s.split()
			checkParts(t, line, parts)
			if s.read > 3*len(line) {
				t.Errorf("%d bytes were read of a line of %d", s.read, len(line))
			}
			if last := parts[len(parts)-1]; last != (Part{len(line) - len(a), len(a), ""}) {
				t.Errorf("the record at the end is not found: last part %v", last)
			}
		})
	}
}

func TestSplitBoundsTheListOfDamage(t *testing.T) {
	line := []byte(strings.Repeat("x\x00", 10*maxParts))
	if got := Split(line); len(got) > maxParts {
		t.Errorf("%d parts", len(got))
	} else {
		checkParts(t, line, got)
	}
}

// checkParts holds what is promised of every answer of Split.
func checkParts(t interface{ Fatalf(string, ...any) }, line []byte, parts []Part) {
	at, joinedEnd := 0, 0
	for i, p := range parts {
		if p.Len <= 0 || p.Off < at || p.Off+p.Len > len(line) {
			t.Fatalf("part %d of %d is %v, the one before ends at %d, the line at %d", i, len(parts), p, at, len(line))
		}
		if len(Trim(line[at:p.Off])) > 0 {
			t.Fatalf("%.100q is in no part", line[at:p.Off])
		}
		text := line[p.Off : p.Off+p.Len]
		switch p.Kind {
		case KindJoined:
			joinedEnd = p.Off + p.Len
			at = p.Off
			continue
		case "":
			if _, err := Parse(text); err != nil {
				t.Fatalf("the record %.100q does not parse: %v", text, err)
			}
		case KindNUL:
			if len(bytes.Trim(text, "\x00")) > 0 {
				t.Fatalf("%.100q are zero bytes", text)
			}
		case KindTorn:
			if json.Valid(text) || Trim(text)[0] != '{' {
				t.Fatalf("%.100q is torn", text)
			}
		case KindGarbage, KindScalar:
		default:
			t.Fatalf("unexpected kind %q", p.Kind)
		}
		if p.Kind != "" && p.Off < joinedEnd {
			t.Fatalf("damage %v among joined records", p)
		}
		at = p.Off + p.Len
	}
	if len(Trim(line[at:])) > 0 {
		t.Fatalf("%.100q is in no part", line[at:])
	}
}

// genRecord draws a record of this or another program, with content that looks
// like records.
func genRecord(t *rapid.T, id string) string {
	text := rapid.SampledFrom([]string{
		`hi`, `{"type":"message","id":"x"}`, "\\ { [ \" } ]", "naïve 😀", `\`, ``,
	}).Draw(t, "text")
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	fields := rapid.SampledFrom([]string{
		`,"message":{"role":"user","content":%s}`,
		`,"message":{"role":"assistant","content":[{"type":"text","text":%s},{"type":"toolCall","id":"t","arguments":{"a":[{},[]]}}]}`,
		`,"data":{"n":[1,-2.5e-7,true,false,null,{}],"s":%s}`,
		`,"list":[],"title":%s`,
	}).Draw(t, "fields")
	fields = fmt.Sprintf(fields, quoted)
	switch rapid.IntRange(0, 2).Draw(t, "writer") {
	case 0:
		return entryLine(id, "p", fields)
	case 1:
		return `{"type":"message","id":"` + id + `","parentId":null,"timestamp":"2026-02-24T10:00:01Z"` + fields + `}`
	default:
		return `{"type":"custom"` + fields + `,"id":"` + id + `","parentId":"p","timestamp":"2026-02-24T10:00:01.000Z"}`
	}
}

// Records are damaged in every way; those that stay whole are found again.
func TestEveryUndamagedRecordIsFoundAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line string
		want := map[string]string{}
		n := rapid.IntRange(1, 5).Draw(t, "n")
		for i := range n {
			id := fmt.Sprintf("whole%d", i)
			whole := genRecord(t, id)
			victim := genRecord(t, "victim")
			cut := rapid.IntRange(0, len(victim)).Draw(t, "cut")
			switch rapid.SampledFrom([]string{"join", "torn before", "spliced", "nul before", "nul in victim", "tail before"}).Draw(t, "damage") {
			case "join":
				line += whole
			case "torn before":
				line += victim[:cut] + whole
			case "spliced":
				line += victim[:cut] + whole + victim[cut:]
			case "nul before":
				line += "\x00\x00\x00" + whole
			case "nul in victim":
				line += victim[:cut] + "\x00\x00" + victim[cut:] + whole
			case "tail before":
				line += victim[cut:] + whole
			}
			want[id] = whole
		}
		parts := Split([]byte(line))
		checkParts(t, []byte(line), parts)
		found := map[string]bool{}
		for _, p := range parts {
			if p.Kind == "" {
				e, err := Parse([]byte(line[p.Off : p.Off+p.Len]))
				if err != nil {
					t.Fatalf("%v", err)
				}
				found[string(e.ID)] = true
			}
		}
		for id, whole := range want {
			if !found[id] && !isInsideJSON(line, whole) && !isAmbiguous(line, whole) {
				t.Fatalf("%s is lost in\n%s\n%s", id, line, describeParts(parts))
			}
		}
	})
}

// isAmbiguous reports whether part, which has no crc, stands where a value is
// expected and is followed by what may follow one.
func isAmbiguous(line, part string) bool {
	at := strings.Index(line, part)
	end := at + len(part)
	return Verify([]byte(part)) == CRCNone && at > 0 && strings.IndexByte(":[,", line[at-1]) >= 0 &&
		end < len(line) && strings.IndexByte(",]}", line[end]) >= 0
}

// isInsideJSON reports whether part is a part of a larger JSON object: torn and
// spliced records may happen to fit together, and then no damage can be seen.
func isInsideJSON(line, part string) bool {
	at := strings.Index(line, part)
	for from := range at {
		var object json.RawMessage
		if line[from] == '{' && json.NewDecoder(strings.NewReader(line[from:])).Decode(&object) == nil && from+len(object) > at {
			return true
		}
	}
	return false
}

// Every cut of a record that another follows, not a sample of them.
func TestARecordAfterEveryCutIsFound(t *testing.T) {
	torn := entryLine("torn", "p", `,"message":{"role":"assistant","content":[{"type":"text","text":"a \" \\ \u00e9 é"},{"type":"toolCall","id":"t","arguments":{"n":-1.5e+7,"a":[[],{},true,null]}}],"usage":{"input":1}}`)
	for _, whole := range []string{
		entryLine("whole", "p", `,"message":{"role":"user","content":[{"type":"text","text":"x"}]}`),
		`{"type":"custom","data":{"x":[1]},"id":"whole","parentId":"p","timestamp":"2026-11-20T20:17:07.977Z"}`,
		`{"type":"message","timestamp":"2024-01-15T10:30:01.000Z","message":{"role":"user"}}`,
	} {
		for cut := 1; cut <= len(torn); cut++ {
			for _, end := range []string{"", "\r", "\x00"} {
				line := torn[:cut] + whole + end
				parts := Split([]byte(line))
				checkParts(t, []byte(line), parts)
				at := -1
				for i, p := range parts {
					if p == (Part{cut, len(whole), ""}) {
						at = i
					}
				}
				if at < 0 {
					t.Fatalf("cut at %d: %s\n%s", cut, line, describeParts(parts))
				}
				if kind := parts[0].Kind; cut < len(torn) && kind != KindTorn {
					t.Errorf("cut at %d: what is before is %q, not torn", cut, kind)
				}
			}
		}
	}
}

func FuzzSplit(f *testing.F) {
	a := entryLine("a", "", `,"message":{"role":"user"}`)
	for _, s := range []string{``, a, a + a, a[:30] + a, a[:30] + a + a[30:], "\x00\x00" + a, a[:50], `{"{"{"`, `{"a":[` + a, "null" + a, bom + a + "\r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		parts := Split(line)
		if !bytes.Equal(before, line) {
			t.Fatal("Split changed its argument")
		}
		checkParts(t, line, parts)
		// What is found does not depend on what stands before a zero byte.
		again := Split(append(append(bytes.Clone(line), 0), a...))
		if last := again[len(again)-1]; last.Kind != "" || last.Len != len(a) {
			t.Fatalf("the record after a zero byte is not found: %v", again)
		}
	})
}

func BenchmarkSplitTornAndWhole(b *testing.B) {
	line := append(bytes.Clone(typicalLine()[:400]), typicalLine()...)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if got := Split(line); len(got) != 2 {
			b.Fatal(got)
		}
	}
}

func BenchmarkSplitHostileLine(b *testing.B) {
	line := []byte(strings.Repeat(`{"{"`, 1<<20))
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if got := Split(line); len(got) != 1 {
			b.Fatal(len(got))
		}
	}
}
