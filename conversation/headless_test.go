package conversation_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session"
)

// headless writes a log and a file beside it.
func headless(t *testing.T, log []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "found.jsonl")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := session.ArtifactsPath(path)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("beside it"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestALogWithoutAHeaderBecomesASessionWithOne(t *testing.T) {
	_, entries, _ := bytes.Cut(manyTurns(4), []byte("\n"))
	for name, log := range map[string][]byte{
		"the header is gone":              entries,
		"the header is cut":               append([]byte(`{"type":"session","versi`+"\n"), entries...),
		"zeros are in its place":          append(append(make([]byte, 100), '\n'), entries...),
		"an empty line is in its place":   append([]byte("\n"), entries...),
		"and the last line has no end":    bytes.TrimSuffix(entries, []byte("\n")),
		"the first entry has no parent":   bytes.Replace(entries, []byte(`"parentId":null`), []byte(`"parentId":"gone"`), 1),
		"a line of it is damaged besides": append([]byte("nonsense\n"), bytes.Replace(entries, []byte(`{"type":"message","id":"u3"`), []byte(`{"ty:"message","id":"u3"`), 1)...),
	} {
		t.Run(name, func(t *testing.T) {
			m, path := home(t), headless(t, log)
			store := memory.New(blobstore.Verified)
			p, err := conversation.ProjectHeadless(t.Context(), m, path, store, nil)
			if err != nil || len(p.Holes) > 0 || p.Turns == 0 {
				t.Fatal(p, err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, log) {
				t.Error("the file was changed", err)
			}
			// As a log it is what it was.
			if back, r := restore(t, load(t, store, p.Root)); !bytes.Equal(back, log) || !r.Exact || r.HeaderMade {
				t.Errorf("the log came back as %q", back)
			}
			other := home(t)
			got, err := conversation.Import(t.Context(), other, load(t, store, p.Root), conversation.ImportOptions{})
			if err != nil || len(got.Holes) > 0 || got.Exact || !got.HeaderMade || got.Files != 1 || got.Known != p.Turns {
				t.Fatal(got, err)
			}
			if here, err := os.Getwd(); err != nil || got.CWD != here {
				t.Errorf("its working directory is %q, want %q", got.CWD, here)
			}
			made, err := os.ReadFile(got.Path)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := bytes.Cut(made, []byte("\n"))
			if !bytes.Contains(head, []byte(`"type":"session"`)) || !bytes.HasPrefix(rest, log) {
				t.Errorf("the session has the header %s, and then %.100q", head, rest)
			}
			s, err := other.Open(t.Context(), got.Path)
			if err != nil {
				t.Fatal(err)
			}
			appendAll(t, s, user("and on"))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAChangedStateOfALogWithoutAHeaderGetsOneToo(t *testing.T) {
	_, entries, _ := bytes.Cut(manyTurns(4), []byte("\n"))
	for name, log := range map[string][]byte{"gone": entries, "damaged": append([]byte("{\"type\":\"sess\n"), entries...)} {
		t.Run(name, func(t *testing.T) {
			store := memory.New(blobstore.Verified)
			p, err := conversation.ProjectHeadless(t.Context(), home(t), headless(t, log), store, nil)
			if err != nil {
				t.Fatal(err)
			}
			changed := change(t, store, p.Root, func(m *agentv1.ConversationStateStructure) { m.Turns = append(m.Turns, m.Turns[1]) })
			other := home(t)
			got, err := conversation.Import(t.Context(), other, changed, conversation.ImportOptions{})
			if err != nil || !got.HeaderMade || got.Known != 5 || got.Converted != 0 {
				t.Fatal(got, err)
			}
			again, err := other.View(t.Context(), got.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			q, err := conversation.NewSessionProjector(other, again, store).Project(t.Context())
			if err != nil || q.Turns != 5 {
				t.Errorf("%d turns, %v", q.Turns, err)
			}
		})
	}
}

func TestAFileThatIsNoLogHasNoState(t *testing.T) {
	for name, log := range map[string]string{"text": "hello\nworld\n", "nothing": "", "another program's": `{"type":"user","uuid":"x","parentUuid":null,"sessionId":"y","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"z"}}` + "\n"} {
		_, err := conversation.ProjectHeadless(t.Context(), home(t), headless(t, []byte(log)), memory.New(blobstore.Verified), nil)
		if !errors.Is(err, session.ErrNotSession) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
