package picker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sample is a list of four sessions, two of them of the working directory.
func sample() *Model {
	m := &Model{Home: "/home/ann", Now: now, Plain: true}
	m.Resize(80, 24)
	m.SetItems([]Item{
		{ID: "id-far", Path: "far", Title: "Release notes", CWD: "/srv/docs", Modified: now.Add(-time.Second), Size: 5},
		{ID: "id-one", Path: "one", Title: "Fix the login", CWD: "/home/ann/app", Modified: now.Add(-3 * time.Minute), Size: 2048, Here: true},
		{ID: "id-two", Path: "two", Words: "why is it slow", CWD: "/home/ann/app", Modified: now.Add(-5 * time.Hour), Size: 1 << 30, Here: true},
		{ID: "id-old", Path: "old", CWD: "/home/ann", Modified: now.Add(-400 * 24 * time.Hour)},
	})
	return m
}

// press types keys: names in angle brackets, everything else one key a character.
func press(m *Model, keys string) (last Effect) {
	for keys != "" {
		var k Key
		if name, rest, ok := strings.Cut(keys, ">"); ok && keys[0] == '<' {
			k, keys = Key(name[1:]), rest
		} else {
			r := []rune(keys)[0]
			k, keys = Key(r), keys[len(string(r)):]
		}
		last = m.Press(k)
	}
	return last
}

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		verb       Verb
		on         string // path of the effect, else of the item under the cursor
		title      string
		shown      string // paths
	}{
		{name: "the list begins with the newest of this directory", on: "one", shown: "one two"},
		{name: "down", keys: "<down>", on: "two", shown: "one two"},
		{name: "j and k", keys: "jk", on: "one", shown: "one two"},
		{name: "down at the end stays there", keys: "<down><down><down>", on: "two", shown: "one two"},
		{name: "up at the beginning stays there", keys: "<up>", on: "one", shown: "one two"},
		{name: "a widens, with those of this directory first", keys: "a", on: "one", shown: "one two far old"},
		{name: "a twice is as before", keys: "aa", on: "one", shown: "one two"},
		{name: "end and home", keys: "a<end>", on: "old", shown: "one two far old"},
		{name: "narrowing keeps the place of the cursor as it can", keys: "a<end>a", on: "two", shown: "one two"},
		{name: "a filter of titles does not mind case", keys: "/LOGIN", on: "one", shown: "one"},
		{name: "a filter of first words", keys: "/slow", on: "two", shown: "two"},
		{name: "a filter of ids", keys: "/id-tw", on: "two", shown: "two"},
		{name: "a filter of directories", keys: "a/srv", on: "far", shown: "far"},
		{name: "each word of a filter has to be there", keys: "/slow it", on: "two", shown: "two"},
		{name: "letters of a filter are no keys", keys: "/q", shown: ""},
		{name: "a filter that is kept lets keys be keys", keys: "/slow<enter>q", verb: Quit, on: "two", shown: "two"},
		{name: "arrows move while a filter is typed", keys: "/app<down>", on: "two", shown: "one two"},
		{name: "esc clears a filter that is typed", keys: "/slow<esc>", on: "two", shown: "one two"},
		{name: "esc clears a filter that was kept, and does not leave", keys: "/slow<enter><esc>", on: "two", shown: "one two"},
		{name: "backspace takes a whole character", keys: "/e\u0301<backspace>", on: "one", shown: "one two"},
		{name: "ctrl-u takes all", keys: "/xyz<ctrl-u>", on: "one", shown: "one two"},
		{name: "enter chooses", keys: "<down><enter>", verb: Choose, on: "two", shown: "one two"},
		{name: "enter on nothing does nothing", keys: "/zzz<enter><enter>", shown: ""},
		{name: "q leaves", keys: "q", verb: Quit, on: "one", shown: "one two"},
		{name: "esc leaves", keys: "<esc>", verb: Quit, on: "one", shown: "one two"},
		{name: "ctrl-c interrupts wherever it is pressed", keys: "r<ctrl-c>", verb: Interrupt, on: "one", shown: "one two"},
		{name: "d alone removes nothing", keys: "d", on: "one", shown: "one two"},
		{name: "d and y removes", keys: "dy", verb: Trash, on: "one", shown: "one two"},
		{name: "d and enter removes nothing", keys: "d<enter>", on: "one", shown: "one two"},
		{name: "d and q neither removes nor leaves", keys: "dq", on: "one", shown: "one two"},
		{name: "r renames what stands there", keys: "r!<enter>", verb: Rename, on: "one", title: "Fix the login!", shown: "one two"},
		{name: "r with another title", keys: "r<ctrl-u>登录  页面<enter>", verb: Rename, on: "one", title: "登录 页面", shown: "one two"},
		{name: "r and esc renames nothing", keys: "rx<esc>", on: "one", shown: "one two"},
		{name: "an empty title renames nothing", keys: "r<ctrl-u> <enter>", on: "one", shown: "one two"},
		{name: "f forks", keys: "f", verb: Fork, on: "one", shown: "one two"},
		{name: "any key leaves the help, and is no other key", keys: "?q", on: "one", shown: "one two"},
		{name: "an unknown key does nothing", keys: "<unknown>", on: "one", shown: "one two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := sample()
			e := press(m, tt.keys)
			if e.Verb != tt.verb || e.Title != tt.title {
				t.Errorf("effect %+v", e)
			}
			if e.Verb >= Choose && e.Item.Path != tt.on {
				t.Errorf("about %q, want %q", e.Item.Path, tt.on)
			}
			if item, _ := m.Selected(); item.Path != tt.on {
				t.Errorf("the cursor is on %q, want %q", item.Path, tt.on)
			}
			var shown []string
			for _, i := range m.shown {
				shown = append(shown, i.Path)
			}
			if got := strings.Join(shown, " "); got != tt.shown {
				t.Errorf("shown: %s, want %s", got, tt.shown)
			}
		})
	}
}

func TestOneThingIsDoneAtATime(t *testing.T) {
	m := sample()
	m.SetBusy(true)
	for _, keys := range []string{"f", "dy", "rx<enter>", "<enter>"} {
		if e := press(m, keys); e.Verb != Nothing {
			t.Errorf("%s while something is being done: %+v", keys, e)
		}
	}
}

func TestTheCursorStaysOnItsSession(t *testing.T) {
	m := sample()
	press(m, "<down>")
	m.SetItems([]Item{{Path: "new", Here: true}, {Path: "two", Here: true}, {Path: "one", Here: true}})
	if item, _ := m.Selected(); item.Path != "two" {
		t.Errorf("another session came, and the cursor is on %q", item.Path)
	}
	m.SetItems([]Item{{Path: "new", Here: true}, {Path: "one", Here: true}})
	if item, _ := m.Selected(); item.Path != "one" {
		t.Errorf("the session under the cursor went, and it is on %q", item.Path)
	}
}

func TestTheCursorGoesToWhatIsNotListedYetWhenItIs(t *testing.T) {
	m := sample()
	press(m, "<down>")
	m.SelectNext("new")
	if item, _ := m.Selected(); item.Path != "two" {
		t.Errorf("before it is listed the cursor is on %q", item.Path)
	}
	m.SetItems([]Item{{Path: "one", Here: true}, {Path: "two", Here: true}})
	if item, _ := m.Selected(); item.Path != "two" {
		t.Errorf("with a list that has it not, the cursor is on %q", item.Path)
	}
	m.SetItems([]Item{{Path: "one", Here: true}, {Path: "two", Here: true}, {Path: "new", Here: true}})
	if item, _ := m.Selected(); item.Path != "new" {
		t.Errorf("the cursor is on %q", item.Path)
	}
}

func TestScreen(t *testing.T) {
	m := sample()
	m.SetPreview("one", []Message{{"user", "an earlier one"}, {"assistant", "the last one"}})
	m.Resize(60, 13)
	want := `Sessions of this directory  1/2
> Fix the login                                3m     2.0 KB
  why is it slow                               5h     1.0 GB




-- id-one  ~/app -------------------------------------------
user: an earlier one
assistant: the last one


enter go on  / filter  a all  r rename  ? help  q quit`
	got := m.Lines()
	if len(got) != 13 {
		t.Errorf("%d lines", len(got))
	}
	for i, line := range got {
		got[i] = strings.TrimRight(line, " ")
	}
	if strings.Join(got, "\n") != want {
		t.Errorf("the screen is\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

func TestTheBottomLineNamesAsManyKeysAsFit(t *testing.T) {
	for width, want := range map[int]string{
		200: "enter go on  / filter  a all  r rename  f fork  d trash  t tree  e export  c compress  ? help  q quit",
		101: "enter go on  / filter  a all  r rename  f fork  d trash  t tree  e export  c compress  ? help  q quit",
		100: "enter go on  / filter  a all  r rename  f fork  d trash  t tree  e export  ? help  q quit",
		80:  "enter go on  / filter  a all  r rename  f fork  d trash  t tree  ? help  q quit",
		27:  "enter go on  ? help  q quit",
		26:  "? help  q quit",
		14:  "? help  q quit",
	} {
		m := sample()
		m.Resize(width, 20)
		lines := m.Lines()
		if got := lines[len(lines)-1]; got != want {
			t.Errorf("at %d columns the bottom line is %q, want %q", width, got, want)
		}
	}
}

func TestEmptyListSaysWhy(t *testing.T) {
	m := &Model{Plain: true}
	m.Resize(80, 24)
	see := func(want string) {
		t.Helper()
		if text := strings.Join(m.Lines(), "\n"); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	see("reading the sessions")
	m.SetItems(nil)
	see("there are no sessions: agentrun exec starts one")
	m.SetItems([]Item{{Path: "far", Title: "far"}})
	see("a shows those of every directory")
	press(m, "a/zzz")
	see("no session has these words")
}

// hostile is what a title may hold.
const hostile = "a\x1b[2J\x1b]0;t\x07\r\n\u202egnp.exe\u2066\x9b31m 修复👨‍👩‍👧e\u0301 \xff\u200b" + "長い長い長い長い長い長い長い長い長い長い長い長い長い長い長い"

func TestNoLineIsWiderThanTheScreenOrTellsTheTerminalAnything(t *testing.T) {
	if testing.Short() {
		t.Skip("draws thousands of screens; run without -short")
	}
	for _, keys := range []string{"", "a", "a/長<enter>", "/" + "長い長い長い長い長い長い長い長い長い長い長い", "d", "r長", "?", "rx<esc>"} {
		for width := 1; width <= 130; width++ {
			for _, height := range []int{1, 2, 3, 9, 14, 40} {
				m := &Model{Now: now, Plain: true, Home: "/h"}
				m.Resize(width, height)
				m.SetItems([]Item{
					{ID: hostile, Path: "1", Title: hostile, CWD: "/h/" + hostile, Modified: now, Here: true},
					{ID: "2", Path: "2", Words: hostile, CWD: hostile, Here: true},
				})
				m.SetPreview("1", []Message{{hostile, strings.Repeat(hostile, 20)}, {"user", ""}})
				press(m, keys)
				lines := m.Lines()
				if len(lines) > height {
					t.Fatalf("%q at %dx%d: %d lines", keys, width, height, len(lines))
				}
				for _, line := range lines {
					if n := cells.String(line); n > width {
						t.Fatalf("%q at %dx%d: %d columns: %q", keys, width, height, n, line)
					}
					if line != ansi.Strip(line) || strings.ContainsAny(line, "\r\n\t\x07\u202e\u2066\u009b") {
						t.Fatalf("%q at %dx%d: control characters: %q", keys, width, height, line)
					}
				}
			}
		}
	}
}

func TestTheCursorIsAlwaysOnTheScreen(t *testing.T) {
	m := &Model{Now: now, Plain: true}
	var items []Item
	for n := range 100 {
		items = append(items, Item{Path: fmt.Sprint(n), Title: fmt.Sprintf("session %d.", n), Here: true})
	}
	m.SetItems(items)
	m.Resize(80, 24)
	for _, keys := range []string{"<down>", "<page down>", "<end>", "<page up>", "<home>", "<page down><page down>", "/9<enter>", "<end>", "<esc>"} {
		press(m, keys)
		for _, height := range []int{24, 3, 50, 11} {
			m.Resize(80, height)
			item, _ := m.Selected()
			if text := strings.Join(m.Lines(), "\n"); !strings.Contains(text, "> "+item.Title) {
				t.Errorf("after %s, in %d lines, %s is not marked in\n%s", keys, height, item.Title, text)
			}
		}
	}
}

func TestDecodeKeys(t *testing.T) {
	for _, tt := range []struct{ name, sent, want string }{
		{"letters", "aé長", "a é 長"},
		{"arrows", "\x1b[A\x1b[B\x1bOA\x1bOB", "up down up down"},
		{"pages and ends", "\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH", "page up page down home end home end home"},
		{"controls", "\r\n\t\x7f\x08\x03\x15\x0e\x10", "enter enter tab backspace backspace ctrl-c ctrl-u down up"},
		{"esc alone", "\x1b", "esc"},
		{"esc twice", "\x1b\x1b", "esc esc"},
		{"a key with alt does nothing", "\x1bqx", "unknown x"},
		{"an unknown sequence does nothing", "\x1b[15~\x1b[1;5Ax", "unknown unknown x"},
		{"a sequence that is cut off", "\x1b[1;", "unknown"},
		{"a control inside a sequence ends it", "\x1b[1\x03", "unknown ctrl-c"},
		{"bytes that are no text", "\xff\xfea\xe9", "unknown unknown a unknown"},
		{"C1 controls", "\u009b", "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for buf := []byte(tt.sent); len(buf) > 0; {
				k, n := decode(buf, true)
				if n == 0 {
					t.Fatalf("nothing is taken of %q", buf)
				}
				got, buf = append(got, string(k)), buf[n:]
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%q, want %s", got, tt.want)
			}
		})
	}
	for _, part := range []string{"\x1b", "\x1b[", "\x1b[5", "\xe9", "\xe9\x95"} {
		if _, n := decode([]byte(part), false); n != 0 {
			t.Errorf("%q is taken before it is whole", part)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"a", "\x1b[A", "\x1b[1;5A", "\xff", "\x1b\x1b[", "長"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, buf []byte) {
		for _, last := range []bool{false, true} {
			for rest := buf; len(rest) > 0; {
				k, n := decode(rest, last)
				if n < 0 || n > len(rest) || n == 0 && (last || len(rest) > maxSequence) {
					t.Fatalf("%d bytes of %q", n, rest)
				}
				if k.text() && cells.String(string(k)) > 2 || strings.ContainsAny(string(k), "\x1b\r\n") {
					t.Fatalf("key %q", k)
				}
				if n == 0 {
					break
				}
				rest = rest[n:]
			}
		}
	})
}
