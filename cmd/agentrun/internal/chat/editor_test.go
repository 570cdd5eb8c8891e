package chat

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

func TestTheEditor(t *testing.T) {
	for _, test := range []struct {
		name, keys, want string
	}{
		{"inserts at the cursor", "a c left left b", "bac"},
		{"takes a wide character back as a whole", "漢 👩‍👩‍👧 backspace", "漢"},
		{"goes to the ends of a line", "a b ctrl+j c d home x end y", "ab\nxcdy"},
		{"joins lines", "a ctrl+j b left backspace", "ab"},
		{"removes a word", "o n e space t w o ctrl+w", "one "},
		{"removes to the beginning of the line", "a ctrl+j b c ctrl+u", "a\n"},
		{"removes to the end of the line", "a b ctrl+a ctrl+k", ""},
		{"goes up in the column", "a b c ctrl+j d e up x", "abxc\nde"},
		{"goes down in the column", "漢 b ctrl+j d e f up home right down x", "漢b\ndexf"},
		{"recalls the prompt before", "up", "second"},
		{"recalls the one before that", "up up up", "first"},
		{"comes back to what was written", "d up up down down", "d"},
		{"deletes at the cursor", "a b home delete", "b"},
		{"does nothing at the ends", "left backspace right delete a", "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &editor{history: []string{"first", "second"}}
			for k := range strings.FieldsSeq(test.keys) {
				if k == "space" {
					k = " "
				}
				if !e.key(k) {
					e.insert(k)
				}
			}
			if e.text != test.want {
				t.Errorf("the text is %q, not %q", e.text, test.want)
			}
		})
	}
}

func TestTheCursorIsWhereTheTextIsBroken(t *testing.T) {
	e := &editor{}
	e.insert("abcdef\n漢字漢")
	e.at = len("abcdef\n漢字")
	rows, x, y := e.rows(4)
	if want := []string{"abcd", "ef", "漢字", "漢"}; !reflect.DeepEqual(rows, want) || x != 0 || y != 3 {
		t.Errorf("the rows are %q, and the cursor is at %d, %d", rows, x, y)
	}
}

func TestTheHistoryOfAHome(t *testing.T) {
	home := t.TempDir()
	for _, p := range []string{"one", "two\nlines", "two\nlines", " ", strings.Repeat("x", maxPrompt+1), "three"} {
		if err := AddHistory(home, p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadHistory(home)
	if want := []string{"one", "two\nlines", "three"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the history is %q: %v", got, err)
	}
	info, err := os.Stat(filepath.Join(home, HistoryFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", info, err)
	}
	var file strings.Builder
	for i := range maxHistory {
		fmt.Fprintf(&file, "%q\n", fmt.Sprint(i))
	}
	file.WriteString("no prompt\n")
	if err := os.WriteFile(filepath.Join(home, HistoryFile), []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AddHistory(home, "the last"); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadHistory(home); err != nil || len(got) != maxHistory || got[0] != "1" || got[maxHistory-1] != "the last" {
		t.Errorf("there are %d prompts: %v", len(got), err)
	}
}

func TestPathsAsTerminalsPasteThem(t *testing.T) {
	for pasted, want := range map[string]string{
		"/a/b.png":                 "/a/b.png",
		`/a/b\ c.png `:             "/a/b c.png",
		"'/a/b c.png'":             "/a/b c.png",
		`"/a/b c.png"`:             "/a/b c.png",
		"file:///a/b%20c.png\n":    "/a/b c.png",
		"b.png":                    "b.png",
		"word":                     "",
		"two\nlines.png":           "",
		"/a\x00b":                  "",
		strings.Repeat("/a", 4096): "",
		"":                         "",
	} {
		if got, ok := pathIn(pasted); got != want || ok != (want != "") {
			t.Errorf("of %q the path is %q, %v", pasted, got, ok)
		}
	}
}

func FuzzEditor(f *testing.F) {
	f.Add("漢字\nab", "left up backspace right ctrl+w")
	f.Fuzz(func(t *testing.T, text, keys string) {
		e := &editor{history: []string{"before"}}
		e.insert(text)
		for k := range strings.FieldsSeq(keys) {
			if !e.key(k) {
				e.insert(k)
			}
			if e.at < 0 || e.at > len(e.text) || !utf8.ValidString(e.text) {
				t.Fatalf("the cursor is at %d of %q", e.at, e.text)
			}
			rows, x, y := e.rows(5)
			if y >= len(rows) || x > 5 {
				t.Fatalf("the cursor is at %d, %d of %q", x, y, rows)
			}
			for _, r := range rows {
				if runview.Width(r) > 5 {
					t.Fatalf("the row %q takes %d columns", r, runview.Width(r))
				}
			}
		}
	})
}
