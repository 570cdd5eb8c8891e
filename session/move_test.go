package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

func TestWhatIsRefusedLeavesTheSessionWhereItIs(t *testing.T) {
	m := newManager(t, session.Options{})
	made := func() *session.Session {
		s := newSession(t, m)
		appendOK(t, s, user("one"))
		return s
	}
	cwd := t.TempDir()
	for name, c := range map[string]struct {
		prepare func(t *testing.T) (path, dir string, o session.MoveOptions)
		want    string
	}{
		"a directory that is not there": {func(t *testing.T) (string, string, session.MoveOptions) {
			return made().Path(), filepath.Join(cwd, "none"), session.MoveOptions{}
		}, "no such file or directory"},
		"a file": {func(t *testing.T) (string, string, session.MoveOptions) {
			s := made()
			return s.Path(), s.Path(), session.MoveOptions{}
		}, "is not a directory"},
		"a session that somebody drives": {func(t *testing.T) (string, string, session.MoveOptions) {
			s := made()
			d := must(s.Drive())
			t.Cleanup(func() { d.Close() })
			return s.Path(), cwd, session.MoveOptions{}
		}, fmt.Sprintf("driven by process %d", os.Getpid())},
		"a log of that name at the new place": {func(t *testing.T) (string, string, session.MoveOptions) {
			s := made()
			to := placeOf(t, m, s.Path(), cwd)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, []byte("other\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			return s.Path(), cwd, session.MoveOptions{}
		}, "there is a log already"},
		"artifacts of one number on both sides": {func(t *testing.T) (string, string, session.MoveOptions) {
			s := made()
			artifactOf(t, s, "zero")
			to := strings.TrimSuffix(placeOf(t, m, s.Path(), cwd), ".jsonl")
			if err := errors.Join(os.MkdirAll(to, 0o700), os.WriteFile(filepath.Join(to, "0.read.log"), []byte("other"), 0o600)); err != nil {
				t.Fatal(err)
			}
			return s.Path(), cwd, session.MoveOptions{}
		}, "0.read.log have the same id"},
		"a place that is a link": {func(t *testing.T) (string, string, session.MoveOptions) {
			s, linked := made(), t.TempDir()
			if err := os.Symlink(t.TempDir(), filepath.Dir(placeOf(t, m, s.Path(), linked))); err != nil {
				t.Fatal(err)
			}
			return s.Path(), linked, session.MoveOptions{}
		}, "is a symbolic link"},
		"a version that is newer": {func(t *testing.T) (string, string, session.MoveOptions) {
			return fileOf(`{"type":"session","version":4,"id":"s4","cwd":"/p"}`+"\n")(t, m), cwd, session.MoveOptions{}
		}, "version 4"},
		"a session of another home": {func(t *testing.T) (string, string, session.MoveOptions) {
			other := newManager(t, session.Options{})
			s := newSession(t, other)
			appendOK(t, s, bigMessage)
			return s.Path(), cwd, session.MoveOptions{}
		}, "--home "},
		"an artifact directory that is a link": {func(t *testing.T) (string, string, session.MoveOptions) {
			s := made()
			if err := os.Symlink(t.TempDir(), s.ArtifactsDir()); err != nil {
				t.Fatal(err)
			}
			return s.Path(), cwd, session.MoveOptions{}
		}, "is not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path, dir, o := c.prepare(t)
			before := must(os.ReadFile(path))
			_, err := m.Move(t.Context(), path, dir, o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if after := must(os.ReadFile(path)); !bytes.Equal(after, before) {
				t.Errorf("the log has changed:\n%s", after)
			}
			if _, err := os.Lstat(filepath.Join(m.Home(), "moves")); !os.IsNotExist(err) {
				t.Errorf("there is a journal left: %v", err)
			}
		})
	}
}

func TestADriverMovesItsOwnSessionAndStaysItsDriver(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	other := reopen(t, m, s.Path())
	d := must(s.Drive())
	moved := must(m.Move(t.Context(), s.Path(), t.TempDir(), session.MoveOptions{Driver: d}))
	again := reopen(t, m, moved.Path)
	for _, o := range []*session.Session{again, other} {
		if _, err := o.Drive(); !errors.Is(err, session.ErrLocked) {
			t.Errorf("somebody else drives it too: %v", err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// Who opened it at its old place drives it at the new one.
	d2 := must(other.Drive())
	defer d2.Close()
	if _, err := again.Drive(); !errors.Is(err, session.ErrLocked) {
		t.Errorf("two drivers: %v", err)
	}
}

func TestAMoveToTheSameDirectoryChangesNothing(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	before := must(os.ReadFile(s.Path()))
	moved := must(m.Move(t.Context(), s.Path(), s.CWD(), session.MoveOptions{}))
	if !moved.Unchanged || moved.Path != s.Path() || moved.From != s.Path() {
		t.Errorf("%+v", moved)
	}
	if !bytes.Equal(before, must(os.ReadFile(s.Path()))) {
		t.Error("the log has changed")
	}
}

func TestTwoDirectoriesOfOneNameShareAPlace(t *testing.T) {
	m := newManager(t, session.Options{})
	base := t.TempDir()
	one, two := filepath.Join(base, "a-b"), filepath.Join(base, "a", "b")
	if err := errors.Join(os.MkdirAll(one, 0o700), os.MkdirAll(two, 0o700)); err != nil {
		t.Fatal(err)
	}
	s := must(m.Create(t.Context(), one, session.CreateOptions{}))
	defer s.Close()
	appendOK(t, s, user("one"))
	moved := must(m.Move(t.Context(), s.Path(), two, session.MoveOptions{}))
	if moved.Path != s.Path() || moved.Unchanged {
		t.Errorf("%+v", moved)
	}
	if got := reopen(t, m, s.Path()); got.CWD() != two {
		t.Errorf("cwd is %s", got.CWD())
	}
	if l := must(m.List(t.Context(), one)); len(l.Sessions) != 0 {
		t.Errorf("the old directory lists %+v", l.Sessions)
	}
	appendOK(t, s, user("two"))
}

func TestASessionIsMovedThereAndBackManyTimes(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("first"))
	first := s.Path()
	dirs := []string{t.TempDir(), t.TempDir(), s.CWD()}
	n := 1
	for i := range 9 {
		must(m.Move(t.Context(), s.Path(), dirs[i%3], session.MoveOptions{}))
		appendOK(t, s, user(fmt.Sprint("after move ", i)))
		n++
	}
	if s.Path() != first {
		t.Errorf("it is at %s, not at %s", s.Path(), first)
	}
	again := reopen(t, m, first)
	if got := ids(t, again); len(got) != n {
		t.Errorf("%d entries, want %d", len(got), n)
	}
	noDamage(t, again)
	line, _, _ := bytes.Cut(must(os.ReadFile(first)), []byte("\n"))
	var header struct{ PreviousSessionFiles []string }
	if err := json.Unmarshal(line, &header); err != nil {
		t.Fatal(err)
	}
	if got := header.PreviousSessionFiles; len(got) != 2 || slices.Contains(got, first) {
		t.Errorf("it says that it was at %q", got)
	}
	holdsNoMove(t, m, placeOf(t, m, first, dirs[0]))
}

func TestAnArtifactThatIsBeingWrittenFollowsItsSession(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
	f := must(d.Create(t.Context(), "bash", artifacts.Provenance{Run: "r"}))
	must(f.Write([]byte("before\n")))
	from := s.Path()
	moved := must(m.Move(t.Context(), from, t.TempDir(), session.MoveOptions{}))
	must(f.Write([]byte("after\n")))
	finishOK(t, f, "before\nafter\n")
	holdsNoMove(t, m, from)
	again := reopen(t, m, moved.Path)
	if got := artifactText(t, again, f.ID()); got != "before\nafter\n" {
		t.Errorf("it holds %q", got)
	}
	if d.Path() != again.ArtifactsDir() || filepath.Dir(f.Path()) != again.ArtifactsDir() {
		t.Errorf("the directory is taken to be %s", d.Path())
	}
	// One that was opened before it existed, at the old place.
	next := must(artifacts.Open(strings.TrimSuffix(from, ".jsonl"), artifacts.Options{Where: s}).Create(t.Context(), "bash", artifacts.Provenance{}))
	defer next.Close()
	if next.ID() != f.ID()+1 {
		t.Errorf("the next number is %d", next.ID())
	}
	must(next.Write([]byte("x")))
	holdsNoMove(t, m, from)
}

func TestAMoveToAnotherFileSystemCopies(t *testing.T) {
	const shm = "/dev/shm"
	tmp := t.TempDir()
	if a, b := device(t, shm), device(t, tmp); a == 0 || a == b {
		t.Skipf("%s is no other file system than %s", shm, tmp)
	}
	away, err := os.MkdirTemp(shm, "agentrun-test-")
	if err != nil {
		t.Skipf("nothing can be written to %s: %v", shm, err)
	}
	t.Cleanup(func() { os.RemoveAll(away) })
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	id := artifactOf(t, s, strings.Repeat("line\n", 100_000))
	nested := filepath.Join(s.ArtifactsDir(), "0-Sub", "0-Sub.1-Deep.md")
	if err := errors.Join(os.MkdirAll(filepath.Dir(nested), 0o700), os.WriteFile(nested, []byte("deep"), 0o600),
		os.WriteFile(s.Path()+".damaged", []byte("torn"), 0o600)); err != nil {
		t.Fatal(err)
	}
	// It is taken to the other disk, and comes back from there.
	if err := errors.Join(s.Close(), os.CopyFS(away, os.DirFS(filepath.Dir(s.Path())))); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(away, filepath.Base(s.Path()))
	if err := errors.Join(os.Remove(s.Path()), os.RemoveAll(s.ArtifactsDir())); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, m, from)
	cwd := t.TempDir()
	to := placeOf(t, m, from, cwd)
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
	busy := must(d.Create(t.Context(), "bash", artifacts.Provenance{}))
	must(busy.Write([]byte("begun")))
	_, err = m.Move(t.Context(), from, cwd, session.MoveOptions{})
	if be, ok := errors.AsType[*artifacts.BusyError](err); !ok || be.ID != busy.ID() {
		t.Fatalf("an artifact is being written, and the move says %v", err)
	}
	finishOK(t, busy, "begun")
	moved := must(m.Move(t.Context(), from, cwd, session.MoveOptions{}))
	if moved.Path != to || device(t, to) != device(t, tmp) {
		t.Fatalf("it is at %s", moved.Path)
	}
	holdsNoMove(t, m, from)
	for _, e := range must(os.ReadDir(filepath.Dir(to))) {
		if strings.HasPrefix(e.Name(), ".tmp-") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	again := reopen(t, m, moved.Path)
	if got := ids(t, again); len(got) != 1 || again.CWD() != cwd {
		t.Errorf("entries %v of %s", got, again.CWD())
	}
	if got := artifactText(t, again, id); len(got) != 500_000 {
		t.Errorf("the artifact has %d bytes", len(got))
	}
	for name, want := range map[string]string{
		filepath.Join(again.ArtifactsDir(), "0-Sub", "0-Sub.1-Deep.md"): "deep", to + ".damaged": "torn",
	} {
		if got := must(os.ReadFile(name)); string(got) != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	appendOK(t, s, user("two"))
	if next := artifactOf(t, s, "next"); next != busy.ID()+1 {
		t.Errorf("the next number is %d", next)
	}
	if got := ids(t, again); len(got) != 2 {
		t.Errorf("entries %v", got)
	}
	noDamage(t, again)
}

func TestASessionFromElsewhereIsNoneOfTheRegistryAnyMore(t *testing.T) {
	m := newManager(t, session.Options{})
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, []byte(headerLine+say("a", "null")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	appendOK(t, s, user("two"))
	if all := must(m.Registry()); !slices.ContainsFunc(all, func(r session.Registered) bool { return r.Path == s.Path() }) {
		t.Fatalf("the registry has %+v", all)
	}
	moved := must(m.Move(t.Context(), path, t.TempDir(), session.MoveOptions{}))
	if all := must(m.Registry()); slices.ContainsFunc(all, func(r session.Registered) bool { return !r.Home }) {
		t.Errorf("the registry has %+v", all)
	}
	appendOK(t, s, user("three"))
	if got := ids(t, reopen(t, m, moved.Path)); len(got) != 3 {
		t.Errorf("entries %v", got)
	}
}

func device(t *testing.T, name string) uint64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Dev
}
