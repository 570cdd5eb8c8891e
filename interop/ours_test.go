package interop_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// TestSessionsWrittenHereGoOnThere hands each session back and forth: written
// here, continued and renamed there, the same here, opened there again.
func TestSessionsWrittenHereGoOnThere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		for _, w := range writings {
			t.Run(p.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				home := t.TempDir()
				q := p.start(t, home)
				m := manager(t, home)
				s := w.new(t, m, t.TempDir())
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, m, s.Path())
				_, want := look(t, s, p)
				written := records(t, s.Path())
				s.Close()

				same(t, "the session as "+p.name+" opens it", q.do(step{"do": "open", "path": s.Path()}), want)
				left := q.end(
					step{"do": "append", "message": user("from " + p.name)},
					step{"do": "append", "message": assistant(text("indeed"), image(9, 4096))},
					step{"do": "rename", "title": "renamed by " + p.name},
				)
				unchanged(t, s.Path(), written)

				s = open(t, m, s.Path())
				noDamage(t, s)
				ours, got := look(t, s, p)
				if ours.Title != left.Title {
					t.Errorf("title %q, want %q", ours.Title, left.Title)
				}
				if !p.readsBlobs { // pi keeps what it was given: its images stay in the line
					left.Messages[len(left.Messages)-1].Images = got.Messages[len(got.Messages)-1].Images
				}
				same(t, "the session as "+p.name+" left it", got, left)

				written = records(t, s.Path())
				add(t, s, user("from agentrun"))
				add(t, s, assistant(text("again"), image(10, 4096)))
				rename(t, s, "renamed here")
				unchanged(t, s.Path(), written)
				noDamage(t, s)
				_, want = look(t, s, p)
				written = records(t, s.Path())
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}

				q = p.start(t, home)
				again := q.do(step{"do": "open", "path": s.Path()})
				if p.repeats && w.unanswered {
					again.Entries = once(t, again.Entries)
				}
				same(t, "the session as "+p.name+" opens it again", again, want)
				q.end(step{"do": "append", "message": user("the last word")})
				unchanged(t, s.Path(), written)
				s = open(t, m, s.Path())
				noDamage(t, s)
				if _, got = look(t, s, p); len(got.Entries) != len(want.Entries)+1 || got.Title != "renamed here" {
					t.Fatalf("after the last word: %d entries, title %q; want %d and %q",
						len(got.Entries), got.Title, len(want.Entries)+1, "renamed here")
				}
			})
		}
	}
}

// TestProgramsListSessionsWrittenHere looks for our sessions where the programs
// themselves look, for working directories of every kind.
func TestProgramsListSessionsWrittenHere(t *testing.T) {
	t.Parallel()
	for _, where := range []struct{ name, root string }{
		{"in the user's home", scratch.home},
		{"in the directory for temporary files", scratch.temp},
		{"elsewhere", scratch.elsewhere},
	} {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			cwd, err := os.MkdirTemp(where.root, "some project-")
			if err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			procs := map[string]*process{}
			for _, p := range programs {
				procs[p.name] = p.start(t, home)
			}
			m := manager(t, home)
			s := writings[0].new(t, m, cwd)
			for _, title := range []string{"renamed", "Größe \U0001f680 " + strings.Repeat("long ", 20) + "end"} {
				rename(t, s, title)
				want := listed{ID: s.ID(), Path: s.Path(), CWD: cwd, Title: title, First: "What is in here?"}
				for _, p := range programs {
					dir := filepath.Dir(s.Path())
					if p.rewrites {
						dir = "" // where oh-my-pi keeps the sessions of cwd
					}
					ask := func(s step) listed { return find(t, ask[[]listed](procs[p.name], s), want.ID) }
					list := step{"do": "list", "cwd": cwd}
					if dir != "" {
						list["dir"] = dir
					}
					same(t, p.name+" lists for the directory", ask(list), want)
					same(t, p.name+" lists among all", ask(step{"do": "list"}), want)
				}
			}
			for _, p := range programs {
				recent := ask[string](procs[p.name], step{"do": "recent", "cwd": cwd, "dir": filepath.Dir(s.Path())})
				same(t, p.name+" continues", recent, s.ID())
			}
		})
	}
}

// TestTheTitleOfANewSessionIsSeenThere is about a title that was there from the
// beginning, before any rename.
func TestTheTitleOfANewSessionIsSeenThere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			q := p.start(t, home)
			s := writing{title: "as made", write: writings[0].write}.new(t, manager(t, home), t.TempDir())
			if got := q.do(step{"do": "open", "path": s.Path()}).Title; got != "as made" {
				t.Errorf("%s shows the title %q, want %q", p.name, got, "as made")
			}
		})
	}
}

// TestASessionHeldOpenHereFollowsWhatIsDoneThere keeps one Session open while a
// program works on its file.
func TestASessionHeldOpenHereFollowsWhatIsDoneThere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			q := p.start(t, home)
			s := writings[0].new(t, manager(t, home), t.TempDir())
			q.do(step{"do": "open", "path": s.Path()})
			for i, say := range []string{"one", "two", "three"} {
				theirs := q.do(step{"do": "append", "message": user(say)})
				if i == 1 {
					theirs = q.do(step{"do": "rename", "title": "while it is open"})
				}
				_, want := look(t, s, p)
				same(t, "seen here after "+say, want, theirs)
				add(t, s, assistant(text("heard "+say)))
				// They know of it when they open the file again.
				_, want = look(t, s, p)
				same(t, "seen there after "+say, q.do(step{"do": "open", "path": s.Path()}), want)
			}
			noDamage(t, s)
		})
	}
}

// TestEntriesDroppedByARewriteComeBack has oh-my-pi replace a file by what it has
// in memory, which is without what was appended here meanwhile.
func TestEntriesDroppedByARewriteComeBack(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	q := omp.start(t, home)
	s := writings[0].new(t, manager(t, home), t.TempDir())
	q.do(step{"do": "open", "path": s.Path()})
	lost := add(t, s, user("appended while oh-my-pi did not look"))
	q.do(step{"do": "rewrite"})
	for _, line := range records(t, s.Path()) {
		if strings.Contains(line, lost) {
			t.Fatal("oh-my-pi looked after all: this test shows nothing")
		}
	}
	next := add(t, s, assistant(text("noted")))
	e, err := s.Entry(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if e.Parent() != lost {
		t.Errorf("the next entry follows %s, want %s, which was dropped", e.Parent(), lost)
	}
	noDamage(t, s)
	_, want := look(t, s, omp)
	same(t, "the session as oh-my-pi opens it again", q.do(step{"do": "open", "path": s.Path()}), want)
}

// TestBothProgramsShareAFileThroughUs matters because pi erases a file that
// begins with the title slot that oh-my-pi puts there with a rename.
func TestBothProgramsShareAFileThroughUs(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	ompq, piq := omp.start(t, home), pi.start(t, home)
	m := manager(t, home)
	s := writings[0].new(t, m, t.TempDir())
	s.Close()
	ompq.end(step{"do": "open", "path": s.Path()}, step{"do": "rename", "title": "by oh-my-pi"})
	data, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), `{"type":"title"`) {
		t.Fatalf("oh-my-pi put no slot before the header: this test shows nothing\n%.300s", data)
	}
	s = open(t, m, s.Path())
	add(t, s, user("and here"))
	_, want := look(t, s, pi)
	got := piq.do(step{"do": "open", "path": s.Path()})
	same(t, "the session as pi opens it", got, want)
	piq.end(step{"do": "append", "message": assistant(text("pi was here"))}, step{"do": "rename", "title": "by pi"})
	noDamage(t, s)
	if title, err := s.Title(t.Context()); err != nil || title != "by pi" {
		t.Errorf("title %q, %v; want that of pi", title, err)
	}
}

// once returns ids without repetitions, of which there must be some.
func once(t *testing.T, ids []string) []string {
	t.Helper()
	var out []string
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	if len(out) == len(ids) {
		t.Fatal("no entry is there twice: pi did not write the file again")
	}
	return out
}

// TestANumberThatJavaScriptCannotHold is the one way in which a rewrite by
// oh-my-pi changes what we wrote; the line is used, and named.
func TestANumberThatJavaScriptCannotHold(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	q := omp.start(t, home)
	s := writing{write: func(t *testing.T, s *session.Session) {
		add(t, s, user("how many?"))
		add(t, s, assistant(call("call_1", `{"n":12345678901234567890123}`)))
		add(t, s, result("call_1", text("many")))
		add(t, s, assistant(text("ok")))
	}}.new(t, manager(t, home), t.TempDir())
	noDamage(t, s)
	q.end(step{"do": "open", "path": s.Path()}, step{"do": "rewrite"})
	d, err := s.Damage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d) != 1 || d[0].Kind != session.KindChecksum {
		t.Fatalf("damage %v, want one changed line", d)
	}
	if ours, _ := look(t, s, omp); ours.Messages[1].Calls[0] != `call_1 bash {"n":1.2345678901234568e+22}` {
		t.Fatalf("the call is now %s", ours.Messages[1].Calls[0])
	}
}
