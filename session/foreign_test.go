package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/session"
)

func TestABlobOfACompressedSessionOutlivesTheCollectorOfAForeignHome(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	if err := os.MkdirAll(m.Home(), 0o700); err != nil {
		t.Fatal(err)
	}
	// What tells that oh-my-pi lives here, and collects blobs.
	if err := os.WriteFile(filepath.Join(m.Home(), "history.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	compressed, trashed := newSession(t, m), newSession(t, m)
	appendOK(t, compressed, bigMessage)
	appendOK(t, trashed, bigMessage)
	if err := m.Compress(t.Context(), compressed.Path()); err != nil {
		t.Fatal(err)
	}
	gone, err := m.Trash(t.Context(), trashed.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(m.Home(), "blobs")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{compressed.Path(), filepath.Join(gone.Dir, filepath.Base(trashed.Path()))} {
		s := reopen(t, m, path)
		_, missing, err := s.ContextWith(t.Context(), session.ContextOptions{Restore: true})
		if err != nil || len(missing) > 0 {
			t.Errorf("%s: missing %v, %v", path, missing, err)
		}
	}
}

func TestAFileOfPiThatWasWrittenTwiceIsNoDamage(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	once := foreignHeader + foreignMsg("a", "", "x") + foreignMsg("b", "a", "y")
	path := writeLog(t, m, "s.jsonl", once, once, foreignMsg("c", "b", "z"))
	s := reopen(t, m, path)
	noDamage(t, s)
	if got := ids(t, s); len(got) != 3 {
		t.Error(got)
	}
	if c := must(s.Context(t.Context())); len(c.Messages) != 3 {
		t.Error(c.Messages)
	}
	id := appendOK(t, s, user("next"))
	if c := must(s.Context(t.Context())); len(c.Messages) != 4 || c.Messages[3].EntryID != id {
		t.Error(c.Messages)
	}
	noDamage(t, s)
}

func TestCloseBringsBackWhatARewriteDropped(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "s.jsonl", foreignHeader, foreignMsg("a", "", "x"))
	before := string(must(os.ReadFile(path)))
	s := reopen(t, m, path)
	id := appendOK(t, s, user("ours"))
	if err := foreignRewrite(path, before+foreignMsg("b", "a", "theirs")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, reopen(t, m, path)); len(got) != 3 || got[2] != id {
		t.Errorf("got %v, want %s at the end", got, id)
	}
}

func TestAnArtifactOfALineThatWasHalfThereIsCounted(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	line := `{"type":"message","id":"art","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","message":{"role":"toolResult","content":[],"details":{"artifactId":"7"}}}` + "\n"
	path := writeLog(t, m, "s.jsonl", foreignHeader, foreignMsg("a", "", "x"), line[:120])
	s := reopen(t, m, path)
	if got := must(s.MaxArtifactID(t.Context())); got != -1 {
		t.Fatal(got)
	}
	f := must(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))
	defer f.Close()
	if _, err := f.WriteString(line[120:]); err != nil {
		t.Fatal(err)
	}
	if got := must(s.MaxArtifactID(t.Context())); got != 7 {
		t.Errorf("got %d after the line was complete", got)
	}
}
