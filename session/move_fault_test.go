package session_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// mounted makes a directory look like the mount of another file system: nothing is
// renamed into or out of it.
type mounted struct {
	durable.FS
	dir string
}

func (m mounted) check(a, b string) error {
	in := func(p string) bool { return strings.HasPrefix(p, m.dir+"/") }
	if in(a) != in(b) {
		return &os.LinkError{Op: "rename", Old: a, New: b, Err: unix.EXDEV}
	}
	return nil
}

func (m mounted) Rename(a, b string) error {
	if err := m.check(a, b); err != nil {
		return err
	}
	return m.FS.Rename(a, b)
}

func (m mounted) RenameNoReplace(a, b string) error {
	if err := m.check(a, b); err != nil {
		return err
	}
	return m.FS.RenameNoReplace(a, b)
}

// moveCase is a session before a move.
type moveCase struct {
	name    string
	mounted bool // the new directory is on another file system
	prepare func(t *testing.T, m *session.Manager, s *session.Session, to string)
	// foreign is a log of another program, instead of one of ours.
	foreign string
	// large makes a log of ours large enough for an index.
	large bool
}

var moveCases = []moveCase{
	{name: "in place"},
	{name: "a header without room", foreign: headerLine + say("a", "null") + "\ngarbage\n" + say("b", "a") + "\n"},
	{name: "an old version", foreign: `{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}
{"type":"message","timestamp":"2025-11-20T23:33:51.000Z","message":{"role":"user","content":"one"}}
`},
	{name: "compressed", prepare: compress},
	{name: "folded", foreign: repeating, prepare: compress},
	{name: "to another file system, folded", mounted: true, foreign: repeating, prepare: compress},
	{name: "merging artifacts", prepare: otherArtifacts},
	{name: "to another file system", mounted: true},
	{name: "to another file system, merging artifacts", mounted: true, prepare: otherArtifacts},
	{name: "to another file system, compressed", mounted: true, prepare: compress},
	{name: "with an index", large: true, prepare: indexed},
	{name: "with an index, a header without room", foreign: largeForeign(), prepare: indexed},
	{name: "with an index, to another file system", mounted: true, large: true, prepare: indexed},
}

func compress(t *testing.T, m *session.Manager, s *session.Session, _ string) {
	if err := m.Compress(t.Context(), s.Path()); err != nil {
		t.Fatal(err)
	}
}

// largeForeign is a log of another program that is large enough for an index.
func largeForeign() string {
	var b strings.Builder
	b.WriteString(headerLine)
	parent := "null"
	for i := range 12 {
		id := string(rune('a' + i))
		b.WriteString(strings.Replace(say(id, parent), "text of", strings.Repeat("long ", 20<<10), 1) + "\n")
		parent = id
	}
	return b.String()
}

// indexed has the index of a large log written.
func indexed(t *testing.T, m *session.Manager, s *session.Session, _ string) {
	o := reopen(t, m, s.Path())
	must(o.MaxArtifactID(t.Context()))
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(strings.TrimSuffix(s.Path(), ".jsonl") + ".index"); err != nil {
		t.Fatal(err)
	}
}

// otherArtifacts puts an artifact directory with other numbers at the new place.
func otherArtifacts(t *testing.T, _ *session.Manager, _ *session.Session, to string) {
	dir := strings.TrimSuffix(to, ".jsonl")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, ".index"), 0o700),
		os.WriteFile(filepath.Join(dir, "7.read.log"), []byte("seven"), 0o600),
		os.WriteFile(filepath.Join(dir, ".index", "next"), []byte(`{"artifact":9,"agent":2}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// quickDir is a directory in memory, where there is one: which files are synced is
// counted above the disk.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agentrun-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// ageTemporaries makes what a crash has left of journals look older.
func ageTemporaries(t *testing.T, home string) {
	t.Helper()
	for _, temp := range must(filepath.Glob(filepath.Join(home, "moves", ".tmp-*"))) {
		if err := os.Chtimes(temp, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
}

// placeOf is where the log called like path is for the working directory cwd.
func placeOf(t *testing.T, m *session.Manager, path, cwd string) string {
	t.Helper()
	s := must(m.Create(t.Context(), cwd, session.CreateOptions{}))
	defer s.Close()
	return filepath.Join(filepath.Dir(s.Path()), filepath.Base(path))
}

func TestEveryFaultOfAMoveLeavesTheSessionAtOnePlace(t *testing.T) {
	faults := map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	}
	for _, c := range moveCases {
		for name, set := range faults {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				enumerated(t, c.name)
				n := 0
				for ; oneMoveFault(t, c, n, set); n++ {
				}
				t.Logf("%d operations", n)
			})
		}
	}
}

// oneMoveFault moves a session with operation n failing, and reports whether there was
// an operation n.
func oneMoveFault(t *testing.T, c moveCase, n int, set func(*faultfs.FS, int)) bool {
	t.Helper()
	dir := quickDir(t)
	home, oldCWD, newCWD := filepath.Join(dir, "home"), filepath.Join(dir, "old"), filepath.Join(dir, "new")
	if err := errors.Join(os.Mkdir(oldCWD, 0o700), os.Mkdir(newCWD, 0o700)); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	good := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	s := must(good.Create(t.Context(), oldCWD, session.CreateOptions{}))
	from := s.Path()
	if c.foreign != "" {
		s.Close()
		if err := errors.Join(os.MkdirAll(filepath.Dir(from), 0o700), os.WriteFile(from, []byte(c.foreign), 0o600)); err != nil {
			t.Fatal(err)
		}
		s = must(good.Open(t.Context(), from))
	} else {
		for _, text := range []string{"one", "two"} {
			appendOK(t, s, user(text))
		}
		for range 12 {
			if c.large {
				appendOK(t, s, user(strings.Repeat("long ", 20<<10)))
			}
		}
	}
	artifact := artifactOf(t, s, "kept\n")
	if err := os.WriteFile(from+".damaged", []byte("torn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := ids(t, s)
	to := placeOf(t, good, from, newCWD)
	if c.prepare != nil {
		c.prepare(t, good, s, to)
	}
	s.Close()

	var base durable.FS = faultfs.Unsynced{FS: durable.OS}
	if c.mounted {
		base = mounted{base, filepath.Dir(to)}
	}
	fsys := faultfs.New(base)
	set(fsys, n)
	bad := must(session.OpenManager(home, session.Options{FS: fsys}))
	_, err := bad.Move(t.Context(), from, newCWD, session.MoveOptions{})
	fired := fsys.Fired()
	op := "none"
	if ops := fsys.Ops(); fired && n < len(ops) {
		op = strings.ReplaceAll(ops[n], home, "~")
	}
	if !fired && err != nil {
		t.Fatalf("no fault, and %v", err)
	}

	// A new process with a disk that works, a while later.
	ageTemporaries(t, home)
	var events []session.Event
	again := must(session.OpenManager(home, session.Options{
		Durability: session.Flush, FS: base,
		Report: func(e session.Event) { events = append(events, e) },
	}))
	fail := func(format string, args ...any) {
		t.Helper()
		t.Logf("operation %d (%s), the move returned: %v; events %v", n, op, err, events)
		t.Fatalf(format, args...)
	}
	listing := must(again.List(t.Context(), ""))
	if len(listing.Unreadable) > 0 || len(listing.Sessions) != 1 {
		fail("listing: %+v", listing)
	}
	if len(events) > 0 {
		fail("the move could not be settled")
	}
	at := listing.Sessions[0]
	place := strings.TrimSuffix(at.Path, ".zst")
	wantCWD := oldCWD
	if c.foreign != "" {
		wantCWD = "/p"
	}
	switch place {
	case to:
		wantCWD = newCWD
	case from:
		if err == nil {
			fail("the move was acknowledged and did not happen")
		}
	default:
		fail("it is at %s", place)
	}
	if at.CWD != wantCWD && !(c.foreign != "" && place == from) {
		fail("it is at %s and says that its directory is %s", place, at.CWD)
	}
	for _, path := range []string{from, to, at.ID} {
		found, err := again.Find(t.Context(), path)
		if err != nil && path != to || err == nil && found.Path != at.Path {
			fail("%s finds %s: %v", path, found.Path, err)
		}
	}
	o := must(again.Open(t.Context(), from))
	defer o.Close()
	if got := ids(t, o); !slices.Equal(got, before) && !strings.Contains(c.name, "version") || len(got) != len(before) {
		fail("entries %v, before %v", got, before)
	}
	if _, err := os.Stat(o.ArtifactsDir()); err != nil {
		fail("the artifacts: %v", err)
	}
	if got := artifactText(t, o, artifact); got != "kept\n" {
		fail("the artifact holds %q", got)
	}
	if got, err := os.ReadFile(place + ".damaged"); err != nil || !bytes.Contains(got, []byte("torn\n")) {
		fail("the damaged bytes are %q, %v", got, err)
	}
	if strings.Contains(c.name, "merging") {
		if got, err := os.ReadFile(filepath.Join(strings.TrimSuffix(to, ".jsonl"), "7.read.log")); err != nil || string(got) != "seven" {
			fail("the artifact that was there holds %q, %v", got, err)
		}
	}
	if place == to {
		holdsNoMove(t, again, from)
	} else if c.prepare == nil || !strings.Contains(c.name, "merging") {
		holdsNoMove(t, again, to)
	}
	if t.Failed() {
		fail("leftovers")
	}
	appendOK(t, o, user("afterwards"))
	if next := artifactOf(t, o, "next"); next != artifact+1 && next != 9 {
		fail("the next artifact is %d", next)
	}
	return fired
}
