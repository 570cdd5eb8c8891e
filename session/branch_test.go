package session_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// contextIDs are the entries of the context at the leaf.
func contextIDs(t testing.TB, s *session.Session) []string {
	t.Helper()
	var ids []string
	for _, m := range must(s.Context(t.Context())).Messages {
		ids = append(ids, m.EntryID)
	}
	return ids
}

func sameIDs(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func TestABranchIsDurableWithoutAnotherMessage(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	a, b := appendOK(t, s, user("a")), appendOK(t, s, user("b"))
	appendOK(t, s, user("c"))
	leaf := must(s.Branch(t.Context(), b, session.BranchOptions{}))
	if got := must(s.Leaf(t.Context())); got != leaf {
		t.Fatalf("leaf %s, want %s", got, leaf)
	}
	s.Close()

	s = reopen(t, m, s.Path())
	sameIDs(t, "context after opening again", contextIDs(t, s), a, b)
	e := must(s.Entry(t.Context(), leaf))
	if e.Type() != entry.TypeCustom || e.Parent() != b {
		t.Fatalf("recorded by %s", e.Raw())
	}
	d := appendOK(t, s, user("d"))
	sameIDs(t, "context with the next message", contextIDs(t, s), a, b, d)
	noDamage(t, s)
}

func TestABranchBeforeTheFirstEntryHasAnEmptyContext(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("a"))
	leaf := must(s.Branch(t.Context(), "", session.BranchOptions{}))
	sameIDs(t, "context", contextIDs(t, s))
	s.Close()
	s = reopen(t, m, s.Path())
	sameIDs(t, "context", contextIDs(t, s))
	b := appendOK(t, s, user("b"))
	sameIDs(t, "context", contextIDs(t, s), b)
	if e := must(s.Entry(t.Context(), leaf)); e.HasParent() {
		t.Fatalf("it has a parent: %s", e.Raw())
	}
}

func TestABranchWithASummaryIsTheEntryOfOhMyPi(t *testing.T) {
	s := newSession(t, newManager(t, session.Options{}))
	a := appendOK(t, s, user("a"))
	appendOK(t, s, user("b"))
	leaf := must(s.Branch(t.Context(), a, session.BranchOptions{Summary: "b was wrong"}))
	sameIDs(t, "context", contextIDs(t, s), a, leaf)
	b, ok := must(must(s.Entry(t.Context(), leaf)).Body()).(entry.BranchSummary)
	if !ok || b.FromID != a || b.Summary != "b was wrong" {
		t.Fatalf("recorded as %+v", b)
	}
	leaf = must(s.Branch(t.Context(), "", session.BranchOptions{Summary: "all wrong"}))
	if b := must(must(s.Entry(t.Context(), leaf)).Body()).(entry.BranchSummary); b.FromID != "root" {
		t.Fatalf("from %q, want root", b.FromID)
	}
}

func TestABranchFromNowhereIsRefused(t *testing.T) {
	s := newSession(t, newManager(t, session.Options{}))
	appendOK(t, s, user("a"))
	if _, err := s.Branch(t.Context(), "nowhere", session.BranchOptions{}); !errors.Is(err, session.ErrNoEntry) {
		t.Fatalf("error %v", err)
	}
	if got := ids(t, s); len(got) != 1 {
		t.Fatalf("entries %v", got)
	}
}

func TestTheLastLabelOfAnEntryCounts(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	a, b := appendOK(t, s, user("a")), appendOK(t, s, user("b"))
	label := func(id, text string) { must(s.Label(t.Context(), id, text)) }
	label(a, "first")
	label(b, "second")
	must(s.Branch(t.Context(), a, session.BranchOptions{}))
	label(a, "  the \u00a0 first ") // on another branch
	label(b, "")
	s.Close()
	s = reopen(t, m, s.Path())
	if got, want := must(s.Labels(t.Context())), map[string]string{a: "the \u00a0 first"}; !maps.Equal(got, want) {
		t.Fatalf("labels %q, want %q", got, want)
	}
	for what, text := range map[string]string{
		"a line end": "a\nb", "an escape": "\x1b[31m", "bytes that are no text": "\xff", "too much": strings.Repeat("x", 201),
	} {
		if _, err := s.Label(t.Context(), a, text); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	if _, err := s.Label(t.Context(), "nowhere", "x"); !errors.Is(err, session.ErrNoEntry) {
		t.Errorf("error %v", err)
	}
}

func TestAnEntryIsFoundByTheBeginningOfItsID(t *testing.T) {
	m := newManager(t, session.Options{})
	path := writeLog(t, m, "s.jsonl", foreignHeader, foreignMsg("abc", "", "a"), foreignMsg("abd", "abc", "b"), foreignMsg("ab", "abd", "c"), foreignMsg("x1", "ab", "d"), foreignMsg("x1", "x1", "e"))
	s := reopen(t, m, path)
	for _, tt := range []struct{ given, want string }{{"abc", "abc"}, {"ab", "ab"}, {"abd", "abd"}, {"x", "x1"}} {
		if got, err := s.FindEntry(t.Context(), tt.given); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.given, got, err, tt.want)
		}
	}
	var several *session.AmbiguousEntryError
	if _, err := s.FindEntry(t.Context(), "a"); !errors.As(err, &several) || !slices.Equal(several.IDs, []string{"abc", "abd", "ab"}) {
		t.Errorf("error %v", err)
	}
	lines := []string{foreignHeader}
	for i := range 12 {
		lines = append(lines, foreignMsg(fmt.Sprint("m", i), "", "one of many"))
	}
	many := reopen(t, m, writeLog(t, m, "many.jsonl", lines...))
	want := `several entries begin with "m": give more of the id (m0, m1, m2, m3, m4 and 7 more)`
	if _, err := many.FindEntry(t.Context(), "m"); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, none := range []string{"", "y", "abcd"} {
		if _, err := s.FindEntry(t.Context(), none); !errors.Is(err, session.ErrNoEntry) {
			t.Errorf("%q: error %v", none, err)
		}
	}
}

func TestACompactionKeepsWhatItIsTold(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, entry.ModelChange{Model: "p/m"})
	appendOK(t, s, user("a"))
	turn := appendOK(t, s, entry.AssistantMessage{
		Content: entry.Blocks(entry.ToolCallBlock{ID: "c1", Name: "bash"}), StopReason: entry.StopToolUse,
	})
	result := appendOK(t, s, entry.ToolResultMessage{ToolCallID: "c1", ToolName: "bash", Content: entry.Blocks(entry.TextBlock{Text: "out"})})
	last := appendOK(t, s, user("b"))
	for what, o := range map[string]session.CompactOptions{
		"an empty summary":  {Summary: " "},
		"a kept result":     {Summary: "s", FirstKept: result},
		"an unknown entry":  {Summary: "s", FirstKept: "nowhere"},
		"no message at all": {Summary: "s", FirstKept: must(s.Tree(t.Context())).Node(0).ID},
	} {
		if _, err := s.Compact(t.Context(), o); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	c := must(s.Compact(t.Context(), session.CompactOptions{Summary: "it began", FirstKept: turn, TokensBefore: 1234}))
	after := appendOK(t, s, user("c"))
	sameIDs(t, "context", contextIDs(t, s), c, turn, result, last, after)
	if _, err := s.Compact(t.Context(), session.CompactOptions{Summary: "s", FirstKept: c}); err == nil {
		t.Error("a kept compaction was accepted")
	}
	none := must(s.Compact(t.Context(), session.CompactOptions{Summary: "all of it"}))
	sameIDs(t, "context that keeps nothing", contextIDs(t, s), none)
	s.Close()
	s = reopen(t, m, s.Path())
	sameIDs(t, "context after opening again", contextIDs(t, s), none)
	if got := must(s.Context(t.Context())).Settings.DefaultModel(); got != "p/m" {
		t.Errorf("model %q", got)
	}
	must(s.Branch(t.Context(), last, session.BranchOptions{}))
	if got := contextIDs(t, s); len(got) != 4 {
		t.Errorf("context before the compaction: %v", got)
	}
}
