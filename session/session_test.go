package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func newManager(t testing.TB, o session.Options) *session.Manager {
	t.Helper()
	if o.Report == nil {
		o.Report = func(e session.Event) { t.Logf("event: %s", e) }
	}
	m, err := session.OpenManager(filepath.Join(t.TempDir(), "home"), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newSession(t testing.TB, m *session.Manager) *session.Session {
	t.Helper()
	s, err := m.Create(t.Context(), t.TempDir(), session.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func user(text string) entry.Body {
	text = string(must(json.Marshal(text)))
	return entry.MessageBody{Message: json.RawMessage(`{"role":"user","content":` + text + `,"timestamp":1}`)}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func appendOK(t testing.TB, s *session.Session, b entry.Body) string {
	t.Helper()
	id, err := s.Append(t.Context(), b)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return id
}

func ids(t testing.TB, s *session.Session) []string {
	t.Helper()
	var out []string
	for e, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.ID())
	}
	return out
}

func reopen(t testing.TB, m *session.Manager, path string) *session.Session {
	t.Helper()
	s, err := m.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func noDamage(t testing.TB, s *session.Session) {
	t.Helper()
	if d, err := s.Damage(t.Context()); err != nil || len(d) > 0 {
		t.Fatalf("damage: %v, %v", d, err)
	}
}

func TestASessionHasNoFileBeforeItsFirstEntry(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	if s.Exists() {
		t.Fatal("it exists")
	}
	if _, err := os.Stat(m.Home()); !os.IsNotExist(err) {
		t.Fatalf("the home was made: %v", err)
	}
	id := appendOK(t, s, user("hi"))
	if !s.Exists() {
		t.Fatal("it does not exist after an entry")
	}
	data := must(os.ReadFile(s.Path()))
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) != 2 || len(lines[0]) != 510 || !strings.Contains(lines[1], id) {
		t.Fatalf("%d lines, header of %d bytes:\n%s", len(lines), len(lines[0]), data)
	}
}

func TestEntriesComeBackInOrderUnderTheirParents(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	var want []string
	for i := range 50 {
		want = append(want, appendOK(t, s, user(fmt.Sprint("message ", i))))
	}
	s2 := reopen(t, m, s.Path())
	if got := ids(t, s2); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	noDamage(t, s2)
	c := must(s2.Context(t.Context()))
	if len(c.Messages) != 50 || c.Messages[49].EntryID != want[49] {
		t.Fatalf("context of %d messages", len(c.Messages))
	}
}

func TestAppendsOfManyGoroutinesAndSessionsInterleaveWhole(t *testing.T) {
	for _, d := range []session.Durability{session.Sync, session.Flush} {
		m := newManager(t, session.Options{Durability: d})
		first := newSession(t, m)
		appendOK(t, first, user("first"))
		const opened, each, per = 3, 4, 25
		var wg sync.WaitGroup
		var mu sync.Mutex
		want := map[string]bool{}
		for range opened {
			s := reopen(t, m, first.Path())
			for range each {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for i := range per {
						id, err := s.Append(context.Background(), user(fmt.Sprint("x ", i)))
						if err != nil {
							t.Errorf("append: %v", err)
							return
						}
						mu.Lock()
						want[id] = true
						mu.Unlock()
					}
				}()
			}
		}
		wg.Wait()
		s := reopen(t, m, first.Path())
		noDamage(t, s)
		tree := must(s.Tree(t.Context()))
		if tree.Len() != 1+opened*each*per || len(want) != tree.Len()-1 {
			t.Fatalf("%d entries, %d ids", tree.Len(), len(want))
		}
		for i, n := range tree.All() {
			if n.Parent != i-1 {
				t.Fatalf("entry %d has parent %d: appends must form one line", i, n.Parent)
			}
		}
	}
}

func TestRenameWritesTheHeaderInPlace(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("hi"))
	before := must(os.Stat(s.Path()))
	if err := s.Rename(t.Context(), "A  better\nname", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, must(os.Stat(s.Path()))) {
		t.Fatal("the file was replaced")
	}
	s2 := reopen(t, m, s.Path())
	noDamage(t, s2)
	for _, x := range []*session.Session{s, s2} {
		if got := must(x.Title(t.Context())); got != "A better name" {
			t.Fatalf("title %q", got)
		}
	}
	info := must(m.Find(t.Context(), s.ID()))
	if info.Title != "A better name" {
		t.Fatalf("listed as %q", info.Title)
	}
}

func TestALongTitleIsKeptWhole(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("hi"))
	long := strings.Repeat("ü lang ", 100) + "!"
	if err := s.Rename(t.Context(), long, session.TitleUser); err != nil {
		t.Fatal(err)
	}
	if got := must(reopen(t, m, s.Path()).Title(t.Context())); got != long {
		t.Fatalf("title %q", got)
	}
}

func TestCompressedSessionsOpenAndTakeAppends(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	for i := range 2000 {
		appendOK(t, s, user(fmt.Sprint("message ", i)))
		if i == 10 && testing.Short() {
			break
		}
	}
	want := ids(t, s)
	plain := must(os.ReadFile(s.Path()))
	s.Close()
	if err := m.Compress(t.Context(), s.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Path()); !os.IsNotExist(err) {
		t.Fatalf("the plain file is there: %v", err)
	}
	v := must(m.View(t.Context(), s.Path()))
	defer v.Close()
	if got := ids(t, v); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatal("entries differ")
	}
	info := must(m.Find(t.Context(), s.ID()))
	if !info.Compressed {
		t.Fatalf("listed as %+v", info)
	}
	s2 := reopen(t, m, info.Path)
	id := appendOK(t, s2, user("more"))
	now := must(os.ReadFile(s.Path()))
	if !strings.HasPrefix(string(now), string(plain)) {
		t.Fatal("the restored file does not begin with the old one")
	}
	if got := ids(t, reopen(t, m, s.Path())); got[len(got)-1] != id || len(got) != len(want)+1 {
		t.Fatalf("%d entries", len(got))
	}
	if _, err := os.Stat(s.Path() + ".zst"); !os.IsNotExist(err) {
		t.Fatalf("the compressed file is there: %v", err)
	}
}

func TestAViewRefusesAppends(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("hi"))
	v := must(m.View(t.Context(), s.Path()))
	defer v.Close()
	if _, err := v.Append(t.Context(), user("no")); !errors.Is(err, session.ErrReadOnly) {
		t.Fatalf("append to a view: %v", err)
	}
}

func TestASecondDriverIsToldWhoHoldsTheSession(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("hi"))
	d := must(s.Drive())
	_, err := reopen(t, m, s.Path()).Drive()
	var locked *session.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Since.IsZero() || !errors.Is(err, session.ErrLocked) {
		t.Fatalf("second driver: %v", err)
	}
	appendOK(t, reopen(t, m, s.Path()), user("single appends go on"))
	d.Close()
	must(s.Drive()).Close()
}

func TestWatchYieldsWhatEveryWriterAppendsOnceAndInOrder(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	first := appendOK(t, s, user("before"))
	other := reopen(t, m, s.Path())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const n = 200
	go func() {
		for i := range n {
			w := s
			if i%2 == 1 {
				w = other
			}
			if _, err := w.Append(context.Background(), user(fmt.Sprint(i))); err != nil {
				t.Errorf("append: %v", err)
			}
		}
	}()
	var got []string
	for e, err := range must(m.View(t.Context(), s.Path())).Watch(ctx, first) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.ID()); len(got) == n {
			cancel()
		}
	}
	if want := ids(t, s)[1:]; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("watched %d entries, appended %d, or in another order", len(got), len(want))
	}
}

func TestARewriteByAProgramWithoutLocksLosesNothingOfOurs(t *testing.T) {
	var events []session.Event
	m := newManager(t, session.Options{Report: func(e session.Event) { events = append(events, e) }})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	old := must(os.ReadFile(s.Path()))
	mine := appendOK(t, s, user("two"))
	// It writes what it remembers, without our second entry.
	temp := s.Path() + ".tmp"
	if err := errors.Join(os.WriteFile(temp, old, 0o600), os.Rename(temp, s.Path())); err != nil {
		t.Fatal(err)
	}
	last := appendOK(t, s, user("three"))
	got := ids(t, reopen(t, m, s.Path()))
	if len(got) != 3 || got[1] != mine || got[2] != last {
		t.Fatalf("entries %v, want %s and %s behind the first", got, mine, last)
	}
	noDamage(t, reopen(t, m, s.Path()))
	if len(events) != 1 || events[0].Kind != session.EventRestored || len(events[0].IDs) != 1 {
		t.Fatalf("events %v", events)
	}
}

func TestALogThatIsRewrittenKeepsItsModeAndAMigrationIsTold(t *testing.T) {
	old := `{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}` + "\n" +
		`{"type":"message","timestamp":"2025-11-20T23:33:51.000Z","message":{"role":"user","content":"one"}}` + "\n"
	one := headerLine + say("a", "null") + "\n"
	for _, tt := range []struct {
		name, content string
		do            func(m *session.Manager, path string) (now string)
		told          int
	}{
		{"an append to version 1", old, func(m *session.Manager, path string) string {
			s := must(m.Open(t.Context(), path))
			appendOK(t, s, user("two"))
			appendOK(t, s, user("three"))
			must(0, s.Close())
			return path
		}, 1},
		{"a look at version 1", old, func(m *session.Manager, path string) string {
			s := must(m.Open(t.Context(), path))
			must(s.Resume(t.Context(), session.ResumeOptions{}))
			must(0, s.Close())
			return path
		}, 0},
		{"compressed", one, func(m *session.Manager, path string) string {
			must(0, m.Compress(t.Context(), path))
			return path + ".zst"
		}, 0},
		{"compressed and restored", one, func(m *session.Manager, path string) string {
			must(0, m.Compress(t.Context(), path))
			s := must(m.Open(t.Context(), path))
			appendOK(t, s, user("two"))
			must(0, s.Close())
			return path
		}, 0},
		{"moved with another header", one, func(m *session.Manager, path string) string {
			return must(m.Move(t.Context(), path, t.TempDir(), session.MoveOptions{})).Path
		}, 0},
		{"repaired by doctor", one + "garbage\n", func(m *session.Manager, path string) string {
			must(m.Repair(t.Context(), path))
			return path
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var events []session.Event
			m := newManager(t, session.Options{Report: func(e session.Event) { events = append(events, e) }})
			path := writeLog(t, m, "s.jsonl", tt.content)
			must(0, os.Chmod(path, 0o644))
			if mode := must(os.Stat(tt.do(m, path))).Mode(); mode != 0o644 {
				t.Errorf("mode %v", mode)
			}
			if len(events) != tt.told || tt.told > 0 && (events[0].Kind != session.EventMigrated || !strings.Contains(events[0].String(), "had version 1 of the format, and has version 3 now")) {
				t.Errorf("events %v", events)
			}
		})
	}
}

func TestADeletedFileIsAnErrorThatNamesIt(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	if err := os.Remove(s.Path()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Append(t.Context(), user("two"))
	var pending *session.PendingError
	if !errors.Is(err, session.ErrGone) || !errors.As(err, &pending) || !strings.Contains(err.Error(), s.Path()) {
		t.Fatalf("append to a deleted file: %v", err)
	}
}

func TestTheEndOfARunOnABranchThatWasLeft(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	root := appendOK(t, s, user("root"))
	start := appendOK(t, s, entry.Custom{CustomType: "start"})
	onBranch := must(s.AppendBeside(t.Context(), start, user("end on the branch"), entry.Custom{CustomType: "leaf"}))
	if leaf := must(s.Leaf(t.Context())); leaf != onBranch {
		t.Fatalf("leaf %s, want %s", leaf, onBranch)
	}
	start2 := appendOK(t, s, entry.Custom{CustomType: "start"})
	away := must(s.AppendUnder(t.Context(), root, user("another branch")))
	end := must(s.AppendBeside(t.Context(), start2, user("end"), entry.Custom{CustomType: "leaf"}))
	if e := must(s.Entry(t.Context(), end)); e.Parent() != start2 {
		t.Fatalf("the end is under %s, want %s", e.Parent(), start2)
	}
	leaf := must(s.Entry(t.Context(), must(s.Leaf(t.Context()))))
	if leaf.Parent() != away || leaf.Type() != "custom" {
		t.Fatalf("the leaf is %s, want a custom entry under %s", leaf.Raw(), away)
	}
}

func TestTrashMovesEverythingAndDeletesNothing(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	if err := errors.Join(os.Mkdir(s.ArtifactsDir(), 0o700), os.WriteFile(filepath.Join(s.ArtifactsDir(), "0.bash.log"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	data := must(os.ReadFile(s.Path()))
	trashed := must(m.Trash(t.Context(), s.Path()))
	if _, err := m.Find(t.Context(), s.ID()); !errors.Is(err, session.ErrNotFound) {
		t.Fatalf("find after trash: %v", err)
	}
	if got := must(os.ReadFile(filepath.Join(trashed.Dir, filepath.Base(s.Path())))); string(got) != string(data) {
		t.Fatal("the log in the trash differs")
	}
	if got := must(os.ReadFile(filepath.Join(trashed.Dir, filepath.Base(s.ArtifactsDir()), "0.bash.log"))); string(got) != "x" {
		t.Fatal("the artifact in the trash differs")
	}
}

func TestProcessesThatComeAtOnceMakeOneSession(t *testing.T) {
	m := newManager(t, session.Options{})
	cwd := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, found := 0, map[string]bool{}
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s, first, err := must(session.OpenManager(m.Home(), session.Options{})).Continue(context.Background(), cwd, session.CreateOptions{})
			if err != nil {
				t.Errorf("continue: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Append(context.Background(), user("hi")); err != nil {
				t.Errorf("append: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[s.ID()] = true
			if first {
				made++
			}
		}()
	}
	wg.Wait()
	if made != 1 || len(found) != 1 || len(must(m.List(t.Context(), cwd)).Sessions) != 1 {
		t.Fatalf("%d made, sessions %v", made, found)
	}
}

func TestWhoMakesNoEntryLetsTheOthersGoOn(t *testing.T) {
	m := newManager(t, session.Options{})
	cwd := t.TempDir()
	s, made, err := m.Continue(t.Context(), cwd, session.CreateOptions{})
	if err != nil || !made {
		t.Fatal(made, err)
	}
	s.Close()
	if s, made, err = m.Continue(t.Context(), cwd, session.CreateOptions{}); err != nil || !made {
		t.Fatal(made, err)
	}
	s.Close()
}

func TestATitleGivenAtTheStartIsAnEntryTooForPi(t *testing.T) {
	m := newManager(t, session.Options{})
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "from the start"}))
	defer s.Close()
	appendOK(t, s, user("hi"))
	if log := string(must(os.ReadFile(s.Path()))); !strings.Contains(log, `"type":"session_info"`) || strings.Count(log, "from the start") != 2 {
		t.Fatalf("the log is\n%s", log)
	}
}
