package interop_test

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
)

// forkOf forks a session and opens the fork.
func forkOf(t *testing.T, m *session.Manager, path string, o session.ForkOptions) *session.Session {
	t.Helper()
	forked, err := m.Fork(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, m, forked.Path)
}

// shortDir is a directory with a short name: a header has to hold the title and the path
// of another session beside its own things.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch.temp, "f")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// middleOf is an entry in the middle of a session whose context needs no repair: what
// programs make of calls without results is their own.
func middleOf(t *testing.T, s *session.Session) string {
	t.Helper()
	tree, err := s.Tree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := tree.Len() / 2; i >= 0; i-- {
		id := tree.Node(i).ID
		c, _, err := s.ContextWith(t.Context(), session.ContextOptions{Leaf: id})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Repairs) == 0 {
			return id
		}
	}
	t.Fatal("every context needs repairs")
	return ""
}

// TestForksOfOursGoOnThere opens forks of every kind of session where the original
// could be opened, and goes on there.
func TestForksOfOursGoOnThere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		for _, w := range writings {
			t.Run(p.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				home, cwd := shortDir(t), shortDir(t)
				q := p.start(t, home)
				m := manager(t, home)
				s := w.new(t, m, cwd)
				middle := middleOf(t, s)
				for kind, o := range map[string]session.ForkOptions{
					"whole": {}, "at an entry": {At: middle}, "one path": {PathOnly: true}, "one path to an entry": {At: middle, PathOnly: true},
				} {
					fork := forkOf(t, m, s.Path(), o)
					if o.At != "" && !o.PathOnly {
						if leaf, err := fork.Leaf(t.Context()); err != nil || leaf != middle {
							t.Errorf("%s: the leaf is %s, %v", kind, leaf, err)
						}
					}
					_, want := look(t, fork, p)
					got := q.do(step{"do": "open", "path": fork.Path()})
					if got.Title != "" && strings.HasPrefix(want.Title, got.Title) {
						got.Title = want.Title // the header had no room for the end of it
					}
					same(t, kind+" as "+p.name+" opens it", got, want)
					before := records(t, fork.Path())
					q.do(step{"do": "append", "message": user("from " + p.name)}, step{"do": "append", "message": assistant(text("indeed"))})
					unchanged(t, fork.Path(), before)
					noDamage(t, fork)
				}
			})
		}
	}
}

// TestForksOfTheirsGoOnThere forks what a program wrote, and hands the fork back.
func TestForksOfTheirsGoOnThere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			home, cwd := t.TempDir(), t.TempDir()
			q := p.start(t, home)
			left := q.do(
				step{"do": "create", "cwd": cwd},
				step{"do": "append", "message": user("one")},
				step{"do": "append", "message": assistant(text("two"), image(1, 4096))},
				step{"do": "rename", "title": "made by " + p.name},
				step{"do": "append", "message": user("three")},
			)
			// The program has it open, and goes on with it.
			m := manager(t, home)
			fork := forkOf(t, m, left.Path, session.ForkOptions{})
			if fork.Parent() != left.ID {
				t.Errorf("its parent is %s, want %s", fork.Parent(), left.ID)
			}
			q.end(step{"do": "append", "message": user("four")})
			got := p.start(t, home).end(step{"do": "open", "path": fork.Path()})
			same(t, "id and path", []string{got.ID, got.Path}, []string{fork.ID(), fork.Path()})
			got.ID, got.Path = left.ID, left.Path
			same(t, "the fork as "+p.name+" opens it", got, left)
			noDamage(t, fork)
		})
	}
}

// TestArtifactsOfAForkAreThoseOfTheOriginalThere has oh-my-pi keep outputs in both, and
// go on with their numbers.
func TestArtifactsOfAForkAreThoseOfTheOriginalThere(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	q := omp.start(t, home)
	m := manager(t, home)
	s := writings[0].new(t, m, t.TempDir())
	spill := func(dir, text string) string {
		return ask[string](q, step{"do": "spill", "dir": dir, "text": text})
	}
	ours := func(s *session.Session, text string) string {
		t.Helper()
		f, err := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID}).Create(t.Context(), "bash", artifacts.Provenance{})
		if err != nil {
			t.Fatal(err)
		}
		ix, err := lineindex.Build(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
		if err := f.Finish(ix); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(f.ID(), 10)
	}
	same(t, "our first", ours(s, "zero"), "0")
	same(t, "their first", spill(s.ArtifactsDir(), "one"), "1")
	fork := forkOf(t, m, s.Path(), session.ForkOptions{})
	same(t, "theirs in the fork", spill(fork.ArtifactsDir(), "two of the fork"), "2")
	same(t, "theirs in the original", spill(s.ArtifactsDir(), "two"), "2")
	same(t, "ours in the fork", ours(fork, "three of the fork"), "3")
	for dir, want := range map[string][]string{
		s.ArtifactsDir():    {"zero", "one", "two"},
		fork.ArtifactsDir(): {"zero", "one", "two of the fork", "three of the fork"},
	} {
		for id, text := range want {
			data, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(id)+".bash.log"))
			if err != nil || string(data) != text {
				t.Errorf("artifact %d of %s holds %q, %v; want %q", id, dir, data, err, text)
			}
		}
	}
}
