package catalog

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"
)

const (
	v3   = `{"type":"session","version":3,"id":"s1","timestamp":"2026-05-12T01:02:27.657Z","cwd":"/w","title":"header","parentSession":"p"}`
	slot = `{"type":"title","v":1,"title":"slot","source":"user","updatedAt":"2026-05-12T01:02:27.657Z","pad":"   "}`
)

var stamped = time.Date(2026, 5, 12, 1, 2, 27, 657e6, time.UTC)

func TestReadHead(t *testing.T) {
	full := head{ID: "s1", CWD: "/w", Parent: "p", Title: "header", Created: stamped, Version: 3}
	slotted := full
	slotted.Title = "slot"
	untitled := full
	untitled.Title = ""
	long := full
	long.Title = strings.Repeat("t", 3*headBytes)
	for _, tt := range []struct {
		name, in string
		want     head
		err      error
	}{
		{"a header", v3 + "\n{}\n", full, nil},
		{"a header without newline", v3, full, nil},
		{"a slot overrides the title of the header", slot + "\n" + v3 + "\n", slotted, nil},
		{"an empty slot removes the title", strings.Replace(slot, `"slot"`, `""`, 1) + "\n" + v3 + "\n", untitled, nil},
		{"byte order mark, CRLF and blank lines", "\xef\xbb\xbf\r\n \n" + slot + "\r\n\n" + v3 + "\r\n", slotted, nil},
		{"a header longer than the first read", strings.Replace(v3, `"header"`, `"`+long.Title+`"`, 1) + "\n", long, nil},
		{"white space longer than the first read", strings.Repeat(" \n", headBytes) + v3, full, nil},
		{"no version is version 1", `{"type":"session","id":"a"}`, head{ID: "a", Version: 1}, nil},
		{"a version that is no number is none", `{"type":"session","id":"a","version":"0.1.0"}`, head{ID: "a"}, nil},
		{"a version of the future", `{"type":"session","id":"a","version":9}`, head{ID: "a", Version: 9}, nil},
		{"of two equal keys the last counts", `{"type":"x","id":"b","type":"session","id":"a"}`, head{ID: "a", Version: 1}, nil},
		{"escapes", `{"type":"s\u0065ssion","id":"a","title":"\u00e9\n\ud800"}`, head{ID: "a", Version: 1, Title: "é\n�"}, nil},
		{"fields of another kind are as if missing", `{"type":"session","id":"a","cwd":7,"title":null,"timestamp":0}`, head{ID: "a", Version: 1}, nil},
		{"an empty file", "", head{}, nil},
		{"white space only", " \r\n\n\t", head{}, nil},
		{"a byte order mark only", "\xef\xbb\xbf", head{}, nil},
		{"a slot only", slot + "\n", head{Title: "slot"}, nil},
		{"an entry", `{"type":"message","id":"a","parentId":null}`, head{}, errNoHeader},
		{"a header without id", `{"type":"session","version":3}`, head{}, errNoHeader},
		{"a header whose id is a number", `{"type":"session","id":3}`, head{}, errNoHeader},
		{"an array", `[{"type":"session","id":"a"}]`, head{}, errNoHeader},
		{"a torn header", v3[:60], head{}, errNoHeader},
		{"two records in one line", v3 + v3, head{}, errNoHeader},
		{"zeros", strings.Repeat("\x00", 9000), head{}, errNoHeader},
		{"a slot and an entry", slot + "\n{}\n", head{}, errNoHeader},
		{"a line without end", `{"` + strings.Repeat("x", MaxHeaderBytes), head{}, errLongHeader},
		{"white space without end", strings.Repeat("\n", MaxHeaderBytes+1) + v3, head{}, errLongHeader},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.HalfReader(strings.NewReader(tt.in))} {
				got, _, _, err := readHead(r, make([]byte, 0, headBytes))
				if got != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("got %.200v, %v, want %.200v, %v", got, err, tt.want, tt.err)
				}
			}
		})
	}
	t.Run("an error of the disk is no bad header", func(t *testing.T) {
		_, _, _, err := readHead(iotest.ErrReader(io.ErrClosedPipe), nil)
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLastRename(t *testing.T) {
	const (
		change = `{"type":"title_change","id":"1","title":"omp"}`
		info   = `{"type":"session_info","id":"2","name":"pi"}`
	)
	for _, tt := range []struct {
		name, tail, want string
		ok               bool
	}{
		{"of omp", change + "\n", "omp", true},
		{"of pi", info + "\n", "pi", true},
		{"with the type last", `{"name":"x","type":"session_info"}`, "x", true},
		{"the last one counts", change + "\n{}\n" + info + "\n" + `{"x":"_"}`, "pi", true},
		{"without newline", info + "\r\n" + change, "omp", true},
		{"words of a message are none", `{"text":"{\"type\":\"session_info\",\"name\":\"x\"}","type":"message"}`, "", false},
		{"a value that says so is none", `{"about":"title_change","title":"x","type":"message"}`, "", false},
		{"a line cut at its start is none", change[5:] + "\n", "", false},
		{"a torn line leaves the one before", info + "\n" + change[:len(change)-1], "pi", true},
		{"a title that is no string is none", `{"type":"title_change","title":7}`, "", false},
		{"an empty title is one", change + "\n" + strings.Replace(info, "pi", "", 1), "", true},
		{"nothing", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := lastRename([]byte(tt.tail)); got.title != tt.want || ok != tt.ok {
				t.Errorf("lastRename(%q) = %q, %v, want %q, %v", tt.tail, got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestTheEntryOfARenameCountsUnlessASlotIsNewer(t *testing.T) {
	const tail = `{"type":"title_change","title":"a long title","timestamp":"2026-05-12T02:00:00.000Z"}` + "\n"
	for _, tt := range []struct{ name, title, updated, want string }{
		{"no title before", "", "", "a long title"},
		{"the title of a header", "old", "", "a long title"},
		{"a slot of the same moment", "other", "2026-05-12T02:00:00.000Z", "a long title"},
		{"an older slot", "other", "2026-05-12T01:00:00.000Z", "a long title"},
		{"a newer slot", "other", "2026-05-12T03:00:00.000Z", "other"},
		{"a newer slot that had to cut the title", "a long", "2026-05-12T03:00:00.000Z", "a long title"},
		{"a newer slot that took the title away", "", "2026-05-12T03:00:00.000Z", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hd := head{Title: tt.title}
			if hd.retitle([]byte(tail), tt.updated); hd.Title != tt.want {
				t.Errorf("got %q, want %q", hd.Title, tt.want)
			}
		})
	}
}

func FuzzReadHead(f *testing.F) {
	for _, s := range []string{"", v3 + "\n", slot + "\n" + v3, "\xef\xbb\xbf\n", v3[:40], "\x00\x00", `{"type":"session","id":"\ud800"}`, `{"type":"session_info","name":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		one, _, _, err1 := readHead(bytes.NewReader(in), make([]byte, 0, headBytes))
		two, _, _, err2 := readHead(iotest.OneByteReader(bytes.NewReader(in)), nil)
		if one != two || (err1 == nil) != (err2 == nil) {
			t.Errorf("%v, %v but a byte at a time %v, %v", one, err1, two, err2)
		}
		one.retitle(in, "")
		if !utf8.ValidString(one.Title) {
			t.Errorf("title %q", one.Title)
		}
	})
}
