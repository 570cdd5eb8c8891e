package interop_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// view is a session as a program sees it: js/steps.mjs makes the same.
type view struct {
	ID, Path, Title, Leaf string
	Entries               []string
	Messages              []message
}

// message is one of the context.
type message struct {
	Role, Text string
	Calls      []string // id, name and arguments
	Result     string   // the call that is answered
	Images     []string
}

// listed is a session in a program's list.
type listed struct{ ID, Path, CWD, Title, First string }

// digest tells a long string by its length and hash.
func digest(s string) string {
	if n := len(utf16.Encode([]rune(s))); n > 200 {
		return fmt.Sprintf("%d units, sha256 %x", n, sha256.Sum256([]byte(s)))
	}
	return s
}

// look returns what we see of a session, and what program p must see of it. The
// two differ where p knows no blobs, where it takes titles from other places, and
// where a string was too long for a line, which no other program puts back.
func look(t *testing.T, s *session.Session, p program) (ours, theirs view) {
	t.Helper()
	ctx := t.Context()
	c, err := s.Context(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Repairs) > 0 {
		t.Errorf("the context was repaired: %v", c.Repairs)
	}
	var stored []entry.Entry
	for _, m := range c.Messages {
		stored = append(stored, m.Entry())
	}
	whole := slices.Clone(stored)
	missing, err := s.RestoreAll(ctx, whole)
	if err != nil || len(missing) > 0 {
		t.Fatalf("blobs: %v, missing %v", err, missing)
	}
	ours = view{ID: s.ID(), Path: s.Path(), Entries: []string{}, Messages: []message{}}
	if ours.Title, err = s.Title(ctx); err != nil {
		t.Fatal(err)
	}
	if ours.Leaf, err = s.Leaf(ctx); err != nil {
		t.Fatal(err)
	}
	names := ""
	for e, err := range s.Entries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ours.Entries = append(ours.Entries, e.ID())
		if e.Type() == entry.TypeSessionInfo {
			names = gjson.GetBytes(e.Raw(), "name").Str
		}
	}
	theirs = ours
	if p.titlesAreEntries {
		theirs.Title = names
	}
	theirs.Messages = []message{}
	for i := range stored {
		all, line := seen(t, whole[i]), seen(t, stored[i])
		ours.Messages = append(ours.Messages, all)
		if p.readsBlobs {
			line.Images = all.Images
		}
		theirs.Messages = append(theirs.Messages, line)
	}
	return ours, theirs
}

func seen(t *testing.T, e entry.Entry) message {
	t.Helper()
	m, err := e.Message()
	if err != nil {
		t.Fatal(err)
	}
	v := message{Role: m.MessageRole(), Calls: []string{}, Images: []string{}}
	text := entry.Text(m)
	switch m := m.(type) {
	case entry.AssistantMessage:
		for _, c := range m.Content.ToolCalls() {
			arguments, err := ecmajson.AppendNormal(nil, c.Arguments)
			if err != nil {
				t.Fatal(err)
			}
			v.Calls = append(v.Calls, digest(fmt.Sprintf("%s %s %s", c.ID, c.Name, arguments)))
		}
	case entry.ToolResultMessage:
		v.Result = m.ToolCallID
	case entry.BashExecutionMessage:
		text = m.Command + "\n" + m.Output
	}
	v.Text = digest(text)
	for _, i := range e.Images() {
		v.Images = append(v.Images, digest(i.Data))
	}
	return v
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// records returns the lines of a session file that are entries, to the byte.
func records(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range bytes.Lines(data) {
		switch gjson.GetBytes(line, "type").Str {
		case "session", "title":
		default:
			lines = append(lines, string(line))
		}
	}
	return lines
}

// unchanged fails unless the file still begins with those entries.
func unchanged(t *testing.T, path string, before []string) {
	t.Helper()
	after := records(t, path)
	same(t, "entries that were there", after[:min(len(after), len(before))], before)
}

func noDamage(t *testing.T, s *session.Session) {
	t.Helper()
	if d, err := s.Damage(t.Context()); err != nil || len(d) > 0 {
		t.Fatalf("damage %v, %v", d, err)
	}
}

// manager opens an agent directory as a home.
func manager(t *testing.T, home string) *session.Manager {
	t.Helper()
	m, err := session.OpenManager(home, session.Options{
		Durability: session.Flush,
		Report:     func(e session.Event) { t.Logf("event: %s", e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t *testing.T, m *session.Manager, path string) *session.Session {
	t.Helper()
	s, err := m.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t *testing.T, s *session.Session, b entry.Body) string {
	t.Helper()
	id, err := s.Append(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func rename(t *testing.T, s *session.Session, title string) {
	t.Helper()
	if err := s.Rename(t.Context(), title, session.TitleUser); err != nil {
		t.Fatal(err)
	}
}

// find returns the session with that id from a program's list.
func find(t *testing.T, list []listed, id string) listed {
	t.Helper()
	for _, l := range list {
		if l.ID == id {
			return l
		}
	}
	t.Fatalf("session %s is not in the list %v", id, list)
	return listed{}
}
