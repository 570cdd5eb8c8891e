package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// outside is the environment before TestMain changes it: Go's caches are there.
var outside = os.Environ()

// livedHome is the home that a life of 200 steps left: package lifetest lives it,
// somebody dies in a fifth of the steps, and compares all with its model.
func livedHome(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "life")
	build := exec.Command("go", "test", "-c", "-o", bin, "github.com/agentrun/agentrun/internal/lifetest")
	build.Env = outside
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the life: %v\n%s", err, out)
	}
	dir := shortDir(t)
	live := exec.Command(bin, "-test.run", "^TestALifeWithDeaths$", "-test.v")
	live.Env = append(os.Environ(), "AGENTRUN_TEST_PLACE="+dir, "AGENTRUN_TEST_ROUNDS=4")
	out, err := live.CombinedOutput()
	t.Logf("%s", out) // with the seed
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "home")
}

// TestEverySessionOfALifeOpensThere has both programs load whatever sessions there are
// at the end of a random life.
func TestEverySessionOfALifeOpensThere(t *testing.T) {
	t.Parallel()
	if os.Getenv(installEnv) == "" {
		t.Skipf("%s is not set: it names a directory where npm has installed the programs (.ci/run does that)", installEnv)
	}
	home := livedHome(t)
	m := manager(t, home)
	l, err := m.List(t.Context(), "")
	if err != nil || len(l.Unreadable) > 0 || len(l.Sessions) == 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	running := map[string]*process{}
	for _, p := range programs {
		running[p.name] = p.start(t, home)
	}
	for _, info := range l.Sessions {
		s := open(t, m, info.Path)
		if info.Compressed { // the others know no compressed logs; an append makes a plain one
			add(t, s, user("and on"))
		}
		before := records(t, s.Path())
		for _, p := range programs {
			opensAsItIs(t, p, running[p.name], s)
		}
		same(t, "the log of "+s.ID(), records(t, s.Path()), before)
	}
	t.Logf("%d sessions were opened", len(l.Sessions))
}

// opensAsItIs compares what a program sees of a session: which one it is, its title,
// its entries and leaf, and its messages where nothing of the context is repaired, which
// is each program's own matter.
func opensAsItIs(t *testing.T, p program, q *process, s *session.Session) {
	t.Helper()
	got := q.do(step{"do": "open", "path": s.Path()})
	c, err := s.Context(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	title, err := s.Title(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.Leaf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for e, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e.ID())
	}
	same(t, "id, path and leaf as "+p.name+" has them", []string{got.ID, got.Path, got.Leaf}, []string{s.ID(), s.Path(), leaf})
	if !slices.Equal(got.Entries, entries) {
		t.Errorf("%s sees of %s the entries\n%v, there are\n%v", p.name, s.Path(), got.Entries, entries)
	}
	if !strings.HasPrefix(title, got.Title) { // the header may have had no room for all of it
		t.Errorf("%s calls %s %q, its title is %q", p.name, s.Path(), got.Title, title)
	}
	if len(c.Repairs) == 0 {
		_, want := look(t, s, p)
		same(t, "the messages of "+s.ID()+" as "+p.name+" has them", got.Messages, want.Messages)
	}
}
