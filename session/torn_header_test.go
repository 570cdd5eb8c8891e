package session_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// headerBytes is the header line of a log, without its newline.
func headerBytes(t *testing.T, path string) []byte {
	t.Helper()
	line, _, _ := bytes.Cut(must(os.ReadFile(path)), []byte("\n"))
	return line
}

// TestARenameThatDiesInTheHeaderHarmsNothing tears the header at every byte that is
// being written over: its beginning is new, and its end is old.
func TestARenameThatDiesInTheHeaderHarmsNothing(t *testing.T) {
	for _, titles := range [][2]string{
		{"", "the first one"}, {"short", "a longer one with \"quotes\" and \\ ü"}, {"a long one with \"quotes\" \\", "x"},
	} {
		m := newManager(t, session.Options{})
		parent := newSession(t, m)
		appendOK(t, parent, user("hi"))
		if titles[0] != "" {
			if err := parent.Rename(t.Context(), titles[0], session.TitleUser); err != nil {
				t.Fatal(err)
			}
		}
		fork := must(m.Fork(t.Context(), parent.Path(), session.ForkOptions{})) // so that it has a parent
		from := t.TempDir()
		path := must(m.Move(t.Context(), fork.Path, from, session.MoveOptions{})).Path // and was elsewhere
		old := headerBytes(t, path)
		s := reopen(t, m, path)
		if err := s.Rename(t.Context(), titles[1], session.TitleUser); err != nil {
			t.Fatal(err)
		}
		s.Close()
		now, log, want := headerBytes(t, path), must(os.ReadFile(path)), ids(t, s2(t, m, path))
		if len(old) != len(now) {
			t.Fatalf("the header had %d bytes and has %d", len(old), len(now))
		}
		for k := 1; k < len(now); k++ {
			if k > 1 && old[k-1] == now[k-1] {
				continue
			}
			torn := slices.Concat(now[:k], old[k:], log[len(now):])
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			wholeAfterTear(t, m, path, from, fork, titles[1], want)
			if k%16 != 0 {
				continue
			}
			if len(must(m.Check(t.Context(), path)).Damage) > 0 {
				must(m.Repair(t.Context(), path))
				if again := must(m.Check(t.Context(), path)).Damage; len(again) > 0 {
					t.Fatalf("%d bytes: after the repair: %+v", k, again)
				}
				wholeAfterTear(t, m, path, from, fork, titles[1], want)
			}
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			s := reopen(t, m, path)
			id := appendOK(t, s, user("and on"))
			s.Close()
			wholeAfterTear(t, m, path, from, fork, titles[1], append(slices.Clone(want), id))
			if !bytes.HasPrefix(headerBytes(t, path), now[:bytes.Index(now, []byte(`,"title"`))]) {
				t.Fatalf("%d bytes: the header is %s, was %s", k, headerBytes(t, path), now)
			}
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			back := must(m.Move(t.Context(), path, t.TempDir(), session.MoveOptions{})).Path
			if got := must(s2(t, m, back).Title(t.Context())); got != titles[1] {
				t.Fatalf("%d bytes: moved, its title is %q", k, got)
			}
			if err := os.Remove(back); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// s2 is another look at a session.
func s2(t *testing.T, m *session.Manager, path string) *session.Session {
	t.Helper()
	s := must(m.View(t.Context(), path))
	t.Cleanup(func() { s.Close() })
	return s
}

// wholeAfterTear finds the session listed and opened as it was.
func wholeAfterTear(t *testing.T, m *session.Manager, path, cwd string, fork session.Forked, title string, want []string) {
	t.Helper()
	l := must(m.List(t.Context(), cwd))
	if len(l.Unreadable) > 0 || len(l.Sessions) != 1 || l.Sessions[0].ID != fork.ID || l.Sessions[0].Title != title || l.Sessions[0].Parent != fork.Parent {
		t.Fatalf("listed: %+v; the header is\n%s", l, headerBytes(t, path))
	}
	s := must(m.View(t.Context(), path))
	defer s.Close()
	if got := must(s.Title(t.Context())); got != title || s.ID() != fork.ID || s.CWD() != cwd || s.Parent() != fork.Parent {
		t.Fatalf("it is %s of %s, %q, from %s", s.ID(), s.CWD(), got, s.Parent())
	}
	if got := ids(t, s); !slices.Equal(got, want) {
		t.Fatalf("entries %v, want %v", got, want)
	}
	noDamage(t, s)
}

// TestATitleThatOnlyTheHeaderHasIsMovedWhole moves and forks sessions whose header wants
// more room then than there is: no entry could give the title back.
func TestATitleThatOnlyTheHeaderHasIsMovedWhole(t *testing.T) {
	// Short names: the room is to be gone because of the title.
	root := must(os.MkdirTemp("", "t"))
	t.Cleanup(func() { os.RemoveAll(root) })
	m := must(session.OpenManager(filepath.Join(root, "h"), session.Options{Durability: session.Flush}))
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	if err := errors.Join(os.Mkdir(a, 0o700), os.Mkdir(b, 0o700)); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 40; n++ {
		s := must(m.Create(t.Context(), a, session.CreateOptions{}))
		first := appendOK(t, s, user("hi"))
		title := strings.Repeat("a title", n) + "!"
		if err := s.Rename(t.Context(), title, session.TitleUser); err != nil {
			t.Fatal(err)
		}
		s.Close()
		// What it is called was said behind that entry.
		fork := must(m.Fork(t.Context(), s.Path(), session.ForkOptions{At: first}))
		was := must(s2(t, m, fork.Path).Title(t.Context()))
		moved := must(m.Move(t.Context(), fork.Path, b, session.MoveOptions{}))
		if got := must(s2(t, m, moved.Path).Title(t.Context())); got != was || was == "" {
			t.Errorf("its title was %q, and is %q", was, got)
		}
		again := must(m.Fork(t.Context(), moved.Path, session.ForkOptions{PathOnly: true}))
		if got := must(s2(t, m, again.Path).Title(t.Context())); got != was {
			t.Errorf("its title was %q, and that of the fork is %q", was, got)
		}
	}
}
