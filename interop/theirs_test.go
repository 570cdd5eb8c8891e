package interop_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// TestSessionsWrittenThereGoOnHere opens what a program wrote, in its own agent
// directory, continues and renames it, and hands it back.
func TestSessionsWrittenThereGoOnHere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			home, cwd := t.TempDir(), t.TempDir()
			q := p.start(t, home)
			made := q.do(
				step{"do": "create", "cwd": cwd},
				step{"do": "append", "message": user("before")},
				step{"do": "append", "message": assistant(text("gone"))},
				step{"do": "append", "message": user("kept")},
				step{"do": "append", "message": assistant(call("call_1", `{"command":"ls"}`))},
			)
			keep := made.Entries[2]
			left := q.end(
				step{"do": "append", "message": result("call_1", text("see"), image(1, 1020), image(2, 1024), image(3, 100_000))},
				step{"do": "append", "message": assistant(text("seen"))},
				step{"do": "compact", "summary": "There was something.", "keep": keep},
				step{"do": "append", "message": user("left?")},
				step{"do": "branch", "id": keep},
				step{"do": "append", "message": assistant(text("right"), image(4, 4096))},
				step{"do": "rename", "title": "made by " + p.name},
			)
			before := records(t, left.Path)
			dir, err := os.Stat(filepath.Join(home, "blobs"))
			if p.readsBlobs && (err != nil || !dir.IsDir()) {
				t.Fatalf("%s wrote no blobs: %v", p.name, err)
			}

			m := manager(t, home)
			list, err := m.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Sessions) != 1 || len(list.Unreadable) != 0 {
				t.Fatalf("list %v", list)
			}
			info := list.Sessions[0]
			same(t, "our list", []string{info.ID, info.Path, info.CWD, info.Title},
				[]string{left.ID, left.Path, cwd, "made by " + p.name})
			for _, arg := range []string{left.ID, left.ID[:13], filepath.Base(left.Path), left.Path} {
				if info, err := m.Find(t.Context(), arg); err != nil || info.Path != left.Path {
					t.Errorf("finding %s: %s, %v", arg, info.Path, err)
				}
			}
			if p.rewrites { // its directory for cwd is ours; pi has a name of its own for it
				if newest, ok, err := m.Newest(t.Context(), cwd); err != nil || !ok || newest.ID != left.ID {
					t.Errorf("newest of the directory: %v, %v, %v", newest, ok, err)
				}
			}

			s := open(t, m, left.Path)
			noDamage(t, s)
			ours, _ := look(t, s, p)
			same(t, "the session as we open it", ours, left)
			if kept := records(t, left.Path); len(kept) != len(before) {
				t.Fatal("opening it changed the file")
			}

			add(t, s, user("from agentrun"))
			add(t, s, assistant(text("here"), image(5, 50_000)))
			if _, err := s.AppendUnder(t.Context(), keep, assistant(text("a third way"))); err != nil {
				t.Fatal(err)
			}
			rename(t, s, "renamed here")
			unchanged(t, s.Path(), before)
			noDamage(t, s)
			_, want := look(t, s, p)
			written := records(t, s.Path())
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			q = p.start(t, home)
			same(t, "the session as "+p.name+" opens it again", q.do(step{"do": "open", "path": left.Path}), want)
			same(t, p.name+" lists", find(t, ask[[]listed](q, step{"do": "list"}), left.ID).Title, "renamed here")
			last := q.end(
				step{"do": "append", "message": user("round two")},
				step{"do": "rename", "title": "once more"},
			)
			unchanged(t, s.Path(), written)
			s = open(t, m, left.Path)
			noDamage(t, s)
			ours, got := look(t, s, p)
			same(t, "the session after the second round", got, last)
			same(t, "its title", ours.Title, "once more")
		})
	}
}

// TestNewSessionsInTheDirectoryOfAnother makes a session of ours beside those
// that a program made: no blob of theirs is touched, and both are found.
func TestNewSessionsBesideThoseOfAnotherProgram(t *testing.T) {
	t.Parallel()
	home, cwd := t.TempDir(), t.TempDir()
	q := omp.start(t, home)
	theirs := q.end(
		step{"do": "create", "cwd": cwd},
		step{"do": "append", "message": user("hello")},
		step{"do": "append", "message": assistant(text("hi"), image(1, 50_000))},
	)
	m := manager(t, home)
	s, err := m.Create(t.Context(), cwd, session.CreateOptions{Title: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add(t, s, user("hello"))
	add(t, s, assistant(text("hi"), image(1, 50_000), image(2, 50_000)))
	if filepath.Dir(s.Path()) != filepath.Dir(theirs.Path) {
		t.Errorf("ours is %s, theirs %s: want one directory", s.Path(), theirs.Path)
	}
	list, err := m.List(t.Context(), cwd)
	if err != nil || len(list.Sessions) != 2 {
		t.Fatalf("list %v, %v; want both sessions", list, err)
	}
	refs := map[string]bool{}
	blobs, err := os.ReadDir(filepath.Join(home, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		if filepath.Ext(b.Name()) == "" && len(b.Name()) == 64 {
			refs[b.Name()] = true
		}
	}
	if len(refs) != 2 {
		t.Errorf("%d blobs, want 2: the image that both sessions have is stored once", len(refs))
	}
	q = omp.start(t, home)
	all := ask[[]listed](q, step{"do": "list", "cwd": cwd})
	same(t, "their list", []string{find(t, all, s.ID()).Title, find(t, all, theirs.ID).First}, []string{"ours", "hello"})
}
