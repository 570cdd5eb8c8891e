package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
)

// artifactOf puts an artifact with that text beside a session.
func artifactOf(t testing.TB, s *session.Session, text string) int64 {
	t.Helper()
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
	f := must(d.Create(t.Context(), "bash", artifacts.Provenance{}))
	must(f.Write([]byte(text)))
	finishOK(t, f, text)
	return f.ID()
}

func finishOK(t testing.TB, f *artifacts.File, text string) {
	t.Helper()
	ix := must(lineindex.Extend(t.Context(), lineindex.Index{}, strings.NewReader(text)))
	if err := errors.Join(f.Finish(ix), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func artifactText(t testing.TB, s *session.Session, id int64) string {
	t.Helper()
	r, err := artifacts.Open(s.ArtifactsDir(), artifacts.Options{}).Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if state := r.Info().State; state != artifacts.Complete {
		t.Fatalf("artifact %d is %s: %s", id, state, r.Info().Note)
	}
	size := must(r.Size())
	buf := make([]byte, size)
	must(r.ReadAt(buf, 0))
	return string(buf)
}

// holdsNoMove checks that a move has left nothing behind.
func holdsNoMove(t testing.TB, m *session.Manager, from string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(m.Home(), "moves")); !os.IsNotExist(err) {
		t.Errorf("there is a journal left: %v", err)
	}
	stem := strings.TrimSuffix(filepath.Base(from), ".jsonl")
	entries, err := os.ReadDir(filepath.Dir(from))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == stem+".lock", name == stem+".driver", !strings.HasPrefix(name, stem) && !strings.HasPrefix(name, ".tmp-"):
		default:
			t.Errorf("%s was left behind", filepath.Join(filepath.Dir(from), name))
		}
	}
}

func TestAMovedSessionIsWholeAtItsNewPlace(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	for i := range 3 {
		appendOK(t, s, user(fmt.Sprint("before ", i)))
	}
	id := artifactOf(t, s, "all of the output\n")
	if err := os.WriteFile(s.Path()+".damaged", []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want, from := ids(t, s), s.Path()
	inode := must(os.Stat(from))
	cwd := t.TempDir()
	moved, err := m.Move(t.Context(), from, cwd, session.MoveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if moved.From != from || moved.ID != s.ID() || moved.CWD != cwd || moved.Unchanged {
		t.Fatalf("%+v", moved)
	}
	if !os.SameFile(inode, must(os.Stat(moved.Path))) {
		t.Error("the log was copied although its header has the room")
	}
	holdsNoMove(t, m, from)
	again := reopen(t, m, moved.Path)
	if got := ids(t, again); !slices.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
	noDamage(t, again)
	if again.CWD() != cwd {
		t.Errorf("cwd is %s", again.CWD())
	}
	if got := artifactText(t, again, id); got != "all of the output\n" {
		t.Errorf("the artifact holds %q", got)
	}
	if got := must(os.ReadFile(moved.Path + ".damaged")); string(got) != "garbage\n" {
		t.Errorf("the damaged bytes are %q", got)
	}
	line, _, _ := bytes.Cut(must(os.ReadFile(moved.Path)), []byte("\n"))
	if len(line) != 510 || !bytes.Contains(line, []byte(`"previousSessionFiles":["`+from+`"]`)) {
		t.Errorf("the header is %s", line)
	}
	// Found by id, by its old path, and as the newest of the new directory only.
	if info := must(m.Find(t.Context(), s.ID())); info.Path != moved.Path {
		t.Errorf("by id it is %s", info.Path)
	}
	if info := must(m.Find(t.Context(), from)); info.Path != moved.Path {
		t.Errorf("by its old path it is %s", info.Path)
	}
	if old := reopen(t, m, from); old.Path() != moved.Path {
		t.Errorf("opened by its old path it is %s", old.Path())
	}
	if _, ok, err := m.Newest(t.Context(), cwd); !ok || err != nil {
		t.Errorf("it is not in the new directory: %v", err)
	}
	// Who had it open goes on, and so do the numbers.
	appendOK(t, s, user("after"))
	if s.Path() != moved.Path || s.CWD() != cwd {
		t.Errorf("the open session is at %s, of %s", s.Path(), s.CWD())
	}
	if next := artifactOf(t, s, "more"); next != id+1 {
		t.Errorf("the next artifact is %d", next)
	}
	if got := ids(t, again); len(got) != len(want)+1 {
		t.Errorf("%d entries after another append", len(got))
	}
}
