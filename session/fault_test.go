package session_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// bigMessage has a string that goes to the blob store.
var bigMessage = user(strings.Repeat("long ", 120_000))

// faultCase is something that writes to a session, with what was there before.
type faultCase struct {
	name string
	// prepare makes the session file with a file system that works.
	prepare func(t *testing.T, m *session.Manager) (path string)
	// do works on a file system that fails, and returns the ids that were
	// acknowledged.
	do func(t *testing.T, m *session.Manager, path string) (acknowledged []string, err error)
}

func appendTwo(t *testing.T, s *session.Session) (acknowledged []string, err error) {
	for _, b := range []entry.Body{user("x"), bigMessage, user("y")} {
		id, e := s.Append(t.Context(), b)
		var pending *session.PendingError
		switch {
		case e == nil:
			acknowledged = append(acknowledged, id)
		case errors.As(e, &pending) && !slices.Contains(pending.IDs, id):
			t.Fatalf("entry %s failed and is not among the pending %v", id, pending.IDs)
		}
		err = errors.Join(err, e)
	}
	return acknowledged, err
}

func opened(t *testing.T, m *session.Manager, path string, do func(*session.Session) ([]string, error)) ([]string, error) {
	s, err := m.Open(t.Context(), path)
	if err != nil {
		return nil, err
	}
	ids, err := do(s)
	return ids, errors.Join(err, s.Close())
}

// acknowledged is what one append acknowledged.
func acknowledged(id string, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	return []string{id}, nil
}

func fileOf(content string) func(t *testing.T, m *session.Manager) string {
	return func(t *testing.T, m *session.Manager) string {
		dir := filepath.Join(m.Home(), "sessions", "-p")
		path := filepath.Join(dir, "s.jsonl")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

func ours(t *testing.T, m *session.Manager) string {
	s := newSession(t, m)
	for i := range 3 {
		appendOK(t, s, user(fmt.Sprint("before ", i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Path()
}

var faultCases = []faultCase{
	{"making a session", nil, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
		ids, err := appendTwo(t, s)
		return ids, errors.Join(err, s.Close())
	}},
	{"appending", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) { return appendTwo(t, s) })
	}},
	{"appending to a torn file", fileOf(headerLine + say("a", "null") + "\n" + say("b", "a")[:50]), func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) { return appendTwo(t, s) })
	}},
	{"appending to an empty file", fileOf("\n"), func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) { return appendTwo(t, s) })
	}},
	{"appending to version 1", fileOf(`{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}
{"type":"message","timestamp":"2025-11-20T23:33:51.000Z","message":{"role":"user","content":"one"}}
broken {
`), func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) { return appendTwo(t, s) })
	}},
	{"renaming in place", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) {
			return nil, s.Rename(t.Context(), "new", session.TitleUser)
		})
	}},
	{"renaming with a rewrite", fileOf(headerLine + say("a", "null") + "\ngarbage\n" + say("b", "a") + "\n"), func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) {
			return nil, s.Rename(t.Context(), "new", session.TitleUser)
		})
	}},
	{"compressing", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return nil, m.Compress(t.Context(), path)
	}},
	{"appending to a compressed session", func(t *testing.T, m *session.Manager) string {
		path := ours(t, m)
		if err := m.Compress(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		return path
	}, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) { return appendTwo(t, s) })
	}},
	{"compressing what repeats", fileOf(repeating), func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return nil, m.Compress(t.Context(), path)
	}},
	{"appending to a session that was folded", func(t *testing.T, m *session.Manager) string {
		return folded(t, m, repeating)
	}, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) { return appendTwo(t, s) })
	}},
	{"branching", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) {
			id, err := s.Branch(t.Context(), must(s.Tree(t.Context())).Node(0).ID, session.BranchOptions{})
			return acknowledged(id, err)
		})
	}},
	{"labelling", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) {
			id, err := s.Label(t.Context(), must(s.Tree(t.Context())).Node(0).ID, "a label")
			return acknowledged(id, err)
		})
	}},
	{"compacting", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		return opened(t, m, path, func(s *session.Session) ([]string, error) {
			id, err := s.Compact(t.Context(), session.CompactOptions{Summary: "s"})
			return acknowledged(id, err)
		})
	}},
	{"moving to the trash", ours, func(t *testing.T, m *session.Manager, path string) ([]string, error) {
		_, err := m.Trash(t.Context(), path)
		return nil, err
	}},
}

// enumerated skips all but the simplest cases under the race detector, which makes an
// enumeration take minutes and finds nothing in it: one goroutine does one thing.
func enumerated(t *testing.T, name string) {
	if raceDetector && name != "appending" && name != "making a session" && name != "in place" {
		t.Skip("minutes under the race detector: .ci/run kill runs it without")
	}
}

func TestEveryFaultLeavesTheOldStateOrTheNewOne(t *testing.T) {
	faults := map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	}
	for _, c := range faultCases {
		for name, set := range faults {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				enumerated(t, c.name)
				for n := 0; ; n++ {
					if !oneFault(t, c, n, set) {
						t.Logf("%d operations", n)
						return
					}
				}
			})
		}
	}
}

// oneFault runs a case with operation n failing, and reports whether there was an
// operation n.
func oneFault(t *testing.T, c faultCase, n int, set func(*faultfs.FS, int)) bool {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	good := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	path := ""
	var before []string
	if c.prepare != nil {
		path = c.prepare(t, good)
		s := must(good.View(t.Context(), path))
		before = ids(t, s)
		s.Close()
	}
	fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
	set(fsys, n)
	bad := must(session.OpenManager(home, session.Options{FS: fsys}))
	acknowledged, err := c.do(t, bad, path)
	fired := fsys.Fired()
	op := "none"
	if ops := fsys.Ops(); fired && n < len(ops) {
		op = ops[n]
	}
	if !fired && err != nil {
		t.Fatalf("no fault, and %v", err)
	}

	// A new process with a disk that works.
	again := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	listing := must(again.List(t.Context(), ""))
	if len(listing.Unreadable) > 0 {
		t.Fatalf("operation %d (%s): unreadable: %+v", n, op, listing.Unreadable)
	}
	if len(listing.Sessions) == 0 {
		if len(acknowledged) > 0 || c.prepare != nil && c.name != "moving to the trash" {
			t.Fatalf("operation %d (%s): the session is gone", n, op)
		}
		return fired
	}
	s := must(again.Open(t.Context(), listing.Sessions[0].Path))
	defer s.Close()
	got := ids(t, s)
	if len(got) < len(before) || !slices.Equal(got[:len(before)], before) {
		t.Fatalf("operation %d (%s): entries %v, before %v", n, op, got, before)
	}
	for _, id := range acknowledged {
		if !slices.Contains(got, id) {
			t.Fatalf("operation %d (%s): acknowledged entry %s is missing", n, op, id)
		}
	}
	seen := map[string]bool{}
	for e, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.ID()] {
			t.Fatalf("operation %d (%s): id %s twice", n, op, e.ID())
		}
		seen[e.ID()] = true
		if _, missing, err := s.Restore(t.Context(), e); err != nil || len(missing) > 0 {
			t.Fatalf("operation %d (%s): entry %s lacks %v, %v", n, op, e.ID(), missing, err)
		}
	}
	if _, err := s.Append(t.Context(), user("afterwards")); err != nil {
		t.Fatalf("operation %d (%s): append afterwards: %v", n, op, err)
	}
	return fired
}
