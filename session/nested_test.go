package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func agentID(s string) artifacts.AgentID { return must(artifacts.ParseAgentID(s)) }

// nest makes a session with a subagent's session that has one of its own.
func nest(t *testing.T, m *session.Manager) (root, child, grandchild *session.Session) {
	t.Helper()
	root = newSession(t, m)
	appendOK(t, root, user("root"))
	make := func(of *session.Session, id string) *session.Session {
		s := must(m.CreateNested(t.Context(), of, agentID(id), t.TempDir()))
		t.Cleanup(func() { s.Close() })
		appendOK(t, s, user(id))
		return s
	}
	child = make(root, "0-Review")
	return root, child, make(child, "0-Review.1-Look")
}

func TestANestedSessionHasTheArtifactsOfItsRoot(t *testing.T) {
	m := newManager(t, session.Options{})
	root, child, grandchild := nest(t, m)
	for _, s := range []*session.Session{child, grandchild} {
		if got, want := s.ArtifactsDir(), root.ArtifactsDir(); got != want || filepath.Dir(s.Path()) != want {
			t.Errorf("%s has the artifacts %s, want %s and to lie there", s.Path(), got, want)
		}
	}
	places := func(dir string) map[string]string {
		return map[string]string{"0-Review": dir, "0-Review.1-Look": dir}
	}
	check := func(t *testing.T, dir string) {
		t.Helper()
		for id, want := range places(dir) {
			s := must(m.View(t.Context(), filepath.Join(dir, id+".jsonl")))
			if s.ArtifactsDir() != want {
				t.Errorf("the session of %s has the artifacts %s, want %s", id, s.ArtifactsDir(), want)
			}
			s.Close()
		}
	}
	t.Run("after a fork it has those of the fork", func(t *testing.T) {
		forked := must(m.Fork(t.Context(), root.Path(), session.ForkOptions{}))
		check(t, session.ArtifactsPath(forked.Path))
	})
	t.Run("forked by itself it has its own", func(t *testing.T) {
		forked := must(m.Fork(t.Context(), child.Path(), session.ForkOptions{}))
		s := must(m.View(t.Context(), forked.Path))
		defer s.Close()
		if got, want := s.ArtifactsDir(), session.ArtifactsPath(forked.Path); got != want {
			t.Errorf("it has %s, want %s", got, want)
		}
	})
	t.Run("after a move it has those of the moved session", func(t *testing.T) {
		for _, s := range []*session.Session{grandchild, child, root} {
			must(0, s.Close())
		}
		moved := must(m.Move(t.Context(), root.Path(), t.TempDir(), session.MoveOptions{}))
		check(t, session.ArtifactsPath(moved.Path))
	})
}

func TestANestedSessionTakesNoNumberThatItsRootKnows(t *testing.T) {
	m := newManager(t, session.Options{})
	root, child, _ := nest(t, m)
	appendOK(t, root, entry.MessageBody{Message: json.RawMessage(
		`{"role":"toolResult","toolCallId":"c","toolName":"bash","content":[],"isError":false,"details":{"artifact":{"id":7}}}`,
	)})
	own := must(root.MaxArtifactID(t.Context()))
	if own < 0 {
		t.Fatal("the root knows no number")
	}
	if got := must(child.MaxArtifactID(t.Context())); got != own {
		t.Errorf("the highest number is %d to the child and %d to the root", got, own)
	}
}

func TestANestedSessionIsMadeOnceAndOnlyBesideALog(t *testing.T) {
	m := newManager(t, session.Options{})
	root, _, _ := nest(t, m)
	if _, err := m.CreateNested(t.Context(), root, agentID("0-Review"), t.TempDir()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an id that has a log: %v", err)
	}
	if _, err := m.CreateNested(t.Context(), newSession(t, m), agentID("0-A"), t.TempDir()); err == nil {
		t.Error("a session without a file got a nested one")
	}
	if _, err := m.CreateNested(t.Context(), root, artifacts.AgentID{}, t.TempDir()); err == nil {
		t.Error("a session was made without an id")
	}
}

func TestAnArtifactRootLeadsNowhereElse(t *testing.T) {
	m := newManager(t, session.Options{})
	_, child, _ := nest(t, m)
	must(0, child.Close())
	data := must(os.ReadFile(child.Path()))
	for _, way := range []string{"..", "../..", "../../..", "/etc", "../other", "./x", "", ".//.", strings.Repeat("../", 50) + ".."} {
		t.Run(way, func(t *testing.T) {
			must(0, os.WriteFile(child.Path(), bytes.Replace(data, []byte(`"path":"."`), []byte(`"path":"`+way+`"`), 1), 0o600))
			s := must(m.View(t.Context(), child.Path()))
			defer s.Close()
			if got, want := s.ArtifactsDir(), session.ArtifactsPath(child.Path()); got != want {
				t.Errorf("its artifacts are in %s, want %s", got, want)
			}
		})
	}
}
