package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

const headerLine = `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p"}` + "\n"

// say renders a message entry as another program would, without a checksum.
func say(id, parent string) string {
	if parent != "null" {
		parent = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"type":"message","id":%q,"parentId":%s,"timestamp":"2026-11-20T20:17:08.000Z","message":{"role":"user","content":"text of %s","timestamp":1}}`, id, parent, id)
}

func TestEveryKindOfDamageCostsOnlyTheDamagedBytes(t *testing.T) {
	a, b, c := say("a", "null"), say("b", "a"), say("c", "b")
	for _, tt := range []struct {
		name    string
		content string
		want    []string // ids, in order
		kinds   []session.Kind
		context int
	}{
		{"an undamaged file", headerLine + a + "\n" + b + "\n", []string{"a", "b"}, nil, 2},
		{"a last line without its newline", headerLine + a + "\n" + b, []string{"a", "b"}, nil, 2},
		{"a torn last line", headerLine + a + "\n" + b + "\n" + c[:60], []string{"a", "b"}, []session.Kind{session.KindTorn}, 2},
		{"a torn line in the middle", headerLine + a + "\n" + b[:70] + "\n" + c + "\n", []string{"a", "c"}, []session.Kind{session.KindTorn, session.KindOrphan}, 2},
		{"a torn record with a whole one behind it", headerLine + a + "\n" + b[:70] + b + "\n" + c + "\n", []string{"a", "b", "c"}, []session.Kind{session.KindTorn}, 3},
		{"a run of NULs at the end", headerLine + a + "\n" + b + "\n" + strings.Repeat("\x00", 5000), []string{"a", "b"}, []session.Kind{session.KindNUL}, 2},
		{"a run of NULs before a record", headerLine + a + "\n" + strings.Repeat("\x00", 500) + b + "\n", []string{"a", "b"}, []session.Kind{session.KindNUL}, 2},
		{"two records on one line", headerLine + a + b + "\n" + c + "\n", []string{"a", "b", "c"}, []session.Kind{session.KindJoined}, 3},
		{"a line of garbage", headerLine + a + "\nwhat is this?\n" + b + "\n", []string{"a", "b"}, []session.Kind{session.KindGarbage}, 2},
		{"a null line", headerLine + a + "\nnull\n" + b + "\n", []string{"a", "b"}, []session.Kind{session.KindScalar}, 2},
		{"a number, a string and a list", headerLine + a + "\n42\n\"x\"\n[]\n" + b + "\n", []string{"a", "b"}, []session.Kind{session.KindScalar, session.KindScalar, session.KindScalar}, 2},
		{"a repeated id", headerLine + a + "\n" + b + "\n" + say("b", "a") + "\n" + c + "\n", []string{"a", "b", "b", "c"}, []session.Kind{session.KindDuplicate}, 3},
		{"a parent that was never written", headerLine + a + "\n" + say("b", "lost") + "\n", []string{"a", "b"}, []session.Kind{session.KindOrphan}, 2},
		{"an entry that is its own parent", headerLine + a + "\n" + say("b", "b") + "\n", []string{"a", "b"}, []session.Kind{session.KindCycle}, 2},
		{"a circle of two", headerLine + say("a", "b") + "\n" + say("b", "a") + "\n", []string{"a", "b"}, []session.Kind{session.KindCycle}, 2},
		{"CRLF and a byte order mark", "\ufeff" + strings.ReplaceAll(headerLine+a+"\n"+b+"\n", "\n", "\r\n"), []string{"a", "b"}, nil, 2},
		{"an unknown type", headerLine + a + "\n" + `{"type":"from_the_future","id":"f","parentId":"a","timestamp":"2026-11-20T20:17:08.000Z","x":[1,2]}` + "\n" + say("b", "f") + "\n", []string{"a", "f", "b"}, nil, 2},
		{"a file written again from its first line, as pi does", headerLine + a + "\n" + b + "\n" + headerLine + a + "\n" + b + "\n" + c + "\n", []string{"a", "b", "c"}, nil, 3},
		{"the session as the parent of the first entry", headerLine + say("a", "s1") + "\n", []string{"a"}, nil, 1},
		{"blank lines", headerLine + "\n\n" + a + "\n \n" + b + "\n\n", []string{"a", "b"}, nil, 2},
		{"an object without an id", headerLine + a + "\n{\"type\":\"message\"}\n" + b + "\n", []string{"a", "b"}, []session.Kind{session.KindGarbage}, 2},
		{"a wrong checksum", headerLine + strings.TrimSuffix(a, "}") + `,"crc":"00000000"}` + "\n" + b + "\n", []string{"a", "b"}, []session.Kind{session.KindChecksum}, 2},
		{"a crc that is not the last member", headerLine + `{"crc":"00000000",` + a[1:] + "\n" + b + "\n", []string{"a", "b"}, nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newManager(t, session.Options{})
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := reopen(t, m, path)
			if got := ids(t, s); !slices.Equal(got, tt.want) {
				t.Errorf("entries %v, want %v", got, tt.want)
			}
			var kinds []session.Kind
			for _, d := range must(s.Damage(t.Context())) {
				kinds = append(kinds, d.Kind)
				if d.Line < 1 || d.Bytes < 1 || d.Offset < int64(len(headerLine)) || d.Offset+d.Bytes > int64(len(tt.content)) {
					t.Errorf("damage outside the file: %+v", d)
				}
			}
			if !slices.Equal(kinds, tt.kinds) {
				t.Errorf("damage %v, want %v", kinds, tt.kinds)
			}
			if c := must(s.Context(t.Context())); len(c.Messages) != tt.context {
				t.Errorf("context of %d messages, want %d", len(c.Messages), tt.context)
			}
			if got := string(must(os.ReadFile(path))); got != tt.content {
				t.Error("reading changed the file")
			}
			// An append loses nothing, whatever stands at the end.
			id := appendOK(t, s, user("more"))
			if got := ids(t, reopen(t, m, path)); !slices.Equal(got, append(slices.Clone(tt.want), id)) {
				t.Errorf("entries after an append %v, want %v and %s", got, tt.want, id)
			}
			if got := string(must(os.ReadFile(path))); !strings.HasPrefix(got, tt.content) {
				t.Error("an append changed what was there")
			}
		})
	}
}

func TestFilesThatAreNoSessionAreRefusedAndStayAsTheyAre(t *testing.T) {
	m := newManager(t, session.Options{})
	for name, content := range map[string]string{
		"text":                     "hello\n",
		"an entry first":           say("a", "null") + "\n" + headerLine,
		"a header without an id":   `{"type":"session","version":3}` + "\n",
		"JSON of another kind":     "[]\n",
		"a torn header":            headerLine[:40],
		"a header that is no JSON": `{"type":"session",` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := m.Open(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("opened, or an error without the name: %v", err)
			}
			if got := string(must(os.ReadFile(path))); got != content {
				t.Fatal("the file changed")
			}
		})
	}
}

func TestEmptyFilesAreSessionsWithoutEntriesUntilTheFirstAppend(t *testing.T) {
	m := newManager(t, session.Options{})
	slot := `{"type":"title","v":1,"title":"from omp","source":"user","updatedAt":"2026-11-20T20:17:07.977Z","pad":"` + strings.Repeat(" ", 100) + `"}` + "\n"
	for name, content := range map[string]string{"no bytes": "", "white space": " \n\n\t\n", "a title slot": slot} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := reopen(t, m, path)
			if s.ID() != "" || len(ids(t, s)) != 0 || len(must(s.Context(t.Context())).Messages) != 0 {
				t.Fatalf("id %q", s.ID())
			}
			noDamage(t, s)
			if got := string(must(os.ReadFile(path))); got != content {
				t.Fatal("reading changed the file")
			}
			id := appendOK(t, s, user("first"))
			s2 := reopen(t, m, path)
			if got := ids(t, s2); !slices.Equal(got, []string{id}) || s2.ID() == "" {
				t.Fatalf("entries %v, id %q", got, s2.ID())
			}
			if want := strings.Contains(content, "omp"); want != (must(s2.Title(t.Context())) == "from omp") {
				t.Fatal("the title of the slot was lost")
			}
		})
	}
}

func TestANewerVersionIsReadAndNeverAppendedTo(t *testing.T) {
	m := newManager(t, session.Options{})
	path := filepath.Join(t.TempDir(), "s.jsonl")
	content := strings.Replace(headerLine, `"version":3`, `"version":4`, 1) + say("a", "null") + "\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	if got := ids(t, s); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("entries %v", got)
	}
	if _, err := s.Append(t.Context(), user("no")); err == nil || !strings.Contains(err.Error(), "version 4") {
		t.Fatalf("append: %v", err)
	}
	if got := string(must(os.ReadFile(path))); got != content {
		t.Fatal("the file changed")
	}
}

func TestARewriteKeepsDamagedBytesAside(t *testing.T) {
	m := newManager(t, session.Options{})
	path := filepath.Join(t.TempDir(), "s.jsonl")
	torn := say("b", "a")[:70]
	if err := os.WriteFile(path, []byte(headerLine+say("a", "null")+"\n"+torn+"\nnonsense\n"+say("c", "a")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	// This header has no pad, so a title means a rewrite.
	if err := s.Rename(t.Context(), "new", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	s2 := reopen(t, m, path)
	noDamage(t, s2)
	if got := ids(t, s2); len(got) != 4 || got[0] != "a" || got[1] != "c" {
		t.Fatalf("entries %v", got)
	}
	if got := string(must(os.ReadFile(path + ".damaged"))); got != torn+"\nnonsense\n" {
		t.Fatalf("kept aside: %q", got)
	}
	if got := must(s2.Title(t.Context())); got != "new" {
		t.Fatalf("title %q", got)
	}
}

func TestATitleSlotBeforeAHeaderOfOursIsFoldedBack(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	data := string(must(os.ReadFile(s.Path())))
	slot := `{"type":"title","v":1,"title":"from omp","source":"user","updatedAt":"2026-11-20T20:17:07.977Z","pad":"`
	slot += strings.Repeat(" ", 256-len(slot)-3) + `"}` + "\n"
	temp := s.Path() + ".tmp"
	if err := os.WriteFile(temp, []byte(slot+data), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, s.Path()); err != nil {
		t.Fatal(err)
	}
	if got := must(s.Title(t.Context())); got != "from omp" {
		t.Fatalf("title %q", got)
	}
	appendOK(t, s, user("two"))
	now := string(must(os.ReadFile(s.Path())))
	if !strings.HasPrefix(now, `{"type":"session"`) || !strings.Contains(now[:511], `"title":"from omp"`) {
		t.Fatalf("the file begins with %.120q", now)
	}
	noDamage(t, s)
}

func TestTheSlotOfAFileThatOhMyPiMadeStaysAndIsKeptCurrent(t *testing.T) {
	m := newManager(t, session.Options{})
	slot := `{"type":"title","v":1,"title":"old","source":"auto","updatedAt":"2026-11-20T20:17:07.977Z","pad":"`
	slot += strings.Repeat(" ", 256-len(slot)-3) + `"}` + "\n"
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, []byte(slot+headerLine+say("a", "null")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	appendOK(t, s, user("more"))
	if err := s.Rename(t.Context(), "a new name", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	now := string(must(os.ReadFile(path)))
	if !strings.HasPrefix(now, `{"type":"title","v":1,"title":"a new name","source":"user"`) || !strings.HasPrefix(now[256:], headerLine) {
		t.Fatalf("the file begins with %.300q", now)
	}
	if got := must(reopen(t, m, path).Title(t.Context())); got != "a new name" {
		t.Fatalf("title %q", got)
	}
}

func TestVersion1IsMigratedWithTheSameIdsOnEveryLoad(t *testing.T) {
	m := newManager(t, session.Options{})
	path := filepath.Join(t.TempDir(), "s.jsonl")
	content := `{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}
{"type":"message","timestamp":"2025-11-20T23:33:51.000Z","message":{"role":"user","content":"one"}}
broken {
{"type":"message","timestamp":"2025-11-20T23:33:52.000Z","message":{"role":"user","content":"two"}}
`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	first := ids(t, s)
	if got := ids(t, reopen(t, m, path)); len(first) != 2 || !slices.Equal(got, first) {
		t.Fatalf("ids %v, then %v", first, got)
	}
	d := must(s.Damage(t.Context()))
	if len(d) != 1 || d[0].Line != 3 || content[d[0].Offset:d[0].Offset+d[0].Bytes] != "broken {" {
		t.Fatalf("damage %+v", d)
	}
	if got := string(must(os.ReadFile(path))); got != content || s.Version() != 1 {
		t.Fatal("reading changed the file")
	}
	id := appendOK(t, s, user("three"))
	s2 := reopen(t, m, path)
	if got := ids(t, s2); !slices.Equal(got, append(first, id)) || s2.Version() != 3 {
		t.Fatalf("after an append %v, version %d", got, s2.Version())
	}
	if got := string(must(os.ReadFile(path + ".damaged"))); got != "broken {\n" {
		t.Fatalf("kept aside: %q", got)
	}
}

func TestAHundredMegabyteLineAndTenMillionTinyOnesOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 120 MB; run without -short")
	}
	m := newManager(t, session.Options{Durability: session.Flush})
	path := filepath.Join(t.TempDir(), "s.jsonl")
	big := strings.Replace(say("big", "a"), "text of big", strings.Repeat("x", 100<<20), 1)
	content := headerLine + say("a", "null") + "\n" + big + "\n" + strings.Repeat("x\n", 10_000_000) + say("b", "big") + "\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	tree := must(s.Tree(t.Context()))
	if tree.Len() != 3 {
		t.Fatalf("%d entries", tree.Len())
	}
	var lines int
	for _, d := range tree.Damage() {
		lines += max(d.Lines, 1)
	}
	if lines != 10_000_000 {
		t.Fatalf("damage of %d lines in %d items", lines, len(tree.Damage()))
	}
	if c := must(s.Context(t.Context())); len(c.Messages) != 3 {
		t.Fatalf("context of %d messages", len(c.Messages))
	}
}

func TestBodiesOfEveryTypeComeBack(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	off := "off"
	bodies := []entry.Body{
		user("hi"),
		entry.ModelChange{Model: "p/m"},
		entry.ThinkingLevelChange{ThinkingLevel: &off},
		entry.Custom{CustomType: "x"},
		entry.Label{TargetID: "x"},
		entry.ResetBoundary{},
		entry.Raw{Type: "from_the_future", Fields: []byte(`{"a":{"b":[1,2,{"c":null}]}}`)},
	}
	for _, b := range bodies {
		appendOK(t, s, b)
	}
	i := 0
	for e := range reopen(t, m, s.Path()).Entries(t.Context()) {
		if e.Type() != bodies[i].EntryType() {
			t.Errorf("entry %d is a %s, want %s", i, e.Type(), bodies[i].EntryType())
		}
		i++
	}
	if i != len(bodies) {
		t.Fatalf("%d entries", i)
	}
}
