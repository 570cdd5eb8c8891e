package session_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// tree lists the files below dir with what is in them, locks aside.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".driver") || name == "list.cache" {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// trashed makes a session with artifacts and damage, and removes it.
func trashed(t *testing.T, m *session.Manager) (path string, before map[string]string, gone session.Trashed) {
	t.Helper()
	path = ours(t, m)
	dir := strings.TrimSuffix(path, ".jsonl")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "deep"), 0o700),
		os.WriteFile(filepath.Join(dir, "0.bash.log"), []byte("output"), 0o600),
		os.WriteFile(filepath.Join(dir, "deep", "x.md"), []byte("deeper"), 0o600),
		os.WriteFile(path+".damaged", []byte("bytes"), 0o600)); err != nil {
		t.Fatal(err)
	}
	before = tree(t, m.Home())
	return path, before, must(m.Trash(t.Context(), path))
}

func equalTrees(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %s holds %.40q, want %.40q", what, name, got[name], text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there", what, name)
		}
	}
}

func TestARestoredSessionIsAsItWas(t *testing.T) {
	m := newManager(t, session.Options{})
	path, before, gone := trashed(t, m)
	l := must(m.ListTrash(t.Context()))
	if len(l.Sessions) != 1 || l.Sessions[0].ID != gone.ID || l.Sessions[0].Dir != gone.Dir || len(l.Unreadable)+len(l.Remains) > 0 {
		t.Errorf("the trash holds %+v", l)
	}
	found := must(m.FindTrash(t.Context(), gone.ID[:12]))
	if got, err := m.RestoreTrashed(t.Context(), found); err != nil || got != path {
		t.Errorf("restored to %s, %v", got, err)
	}
	equalTrees(t, "restored", tree(t, m.Home()), before)
	if _, err := m.RestoreTrashed(t.Context(), found); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("restoring it again: %v", err)
	}
	if _, err := m.FindTrash(t.Context(), ""); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("finding nothing: %v", err)
	}
}

func TestAnOriginIsNoPathBeforeItIsChecked(t *testing.T) {
	for name, origin := range map[string]string{
		"a relative path":         `{"id":"a","path":"x/s.jsonl"}`,
		"a path with dots":        `{"id":"a","path":"/x/../s.jsonl"}`,
		"a path of another file":  `{"id":"a","path":"/etc/passwd"}`,
		"no JSON":                 `path`,
		"a path that is a number": `{"id":"a","path":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, session.Options{})
			dir := filepath.Join(m.Home(), "trash", "x")
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "s.jsonl"), []byte("{}"), 0o600),
				os.WriteFile(filepath.Join(dir, "origin.json"), []byte(origin), 0o600)); err != nil {
				t.Fatal(err)
			}
			l, err := m.ListTrash(t.Context())
			if err != nil || len(l.Sessions) > 0 || len(l.Unreadable) != 1 {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

func TestEveryFaultOfARestorationLeavesTheSessionInOnePlace(t *testing.T) {
	for name, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				m := newManager(t, session.Options{Durability: session.Flush})
				_, before, gone := trashed(t, m)
				fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
				set(fsys, n)
				bad := must(session.OpenManager(m.Home(), session.Options{FS: fsys}))
				_, err := bad.RestoreTrashed(t.Context(), gone)
				if !fsys.Fired() && err != nil {
					t.Fatal(err)
				}
				// Either it is back, or the next one finishes.
				here := len(must(m.List(t.Context(), "")).Sessions)
				there := must(m.ListTrash(t.Context()))
				if here+len(there.Sessions) != 1 || len(there.Unreadable) > 0 {
					t.Fatalf("operation %d: it is %d times listed and %+v in the trash", n, here, there)
				}
				if here == 0 {
					if _, err := m.RestoreTrashed(t.Context(), gone); err != nil {
						t.Fatalf("operation %d: the next one: %v", n, err)
					}
				}
				for _, dir := range must(m.ListTrash(t.Context())).Remains {
					if err := m.DeleteTrashed(t.Context(), dir); err != nil {
						t.Fatal(err)
					}
				}
				equalTrees(t, name, tree(t, m.Home()), before)
				if !fsys.Fired() {
					t.Logf("%d operations", n)
					return
				}
			}
		})
	}
}

func TestASessionRemovedHalfwayIsRestoredWhole(t *testing.T) {
	for n := 0; ; n++ {
		m := newManager(t, session.Options{Durability: session.Flush})
		path := ours(t, m)
		dir := strings.TrimSuffix(path, ".jsonl")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "0.bash.log"), []byte("output"), 0o600)); err != nil {
			t.Fatal(err)
		}
		before := tree(t, m.Home())
		if err := os.WriteFile(path+".zst", []byte("what a killed compression left"), 0o600); err != nil {
			t.Fatal(err)
		}
		fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
		fsys.CrashAt(n)
		bad := must(session.OpenManager(m.Home(), session.Options{FS: fsys}))
		_, _ = bad.Trash(t.Context(), path)
		l := must(m.ListTrash(t.Context()))
		if listed := must(m.List(t.Context(), "")); len(l.Sessions)+len(listed.Sessions)+len(listed.Unreadable) != 1 {
			t.Fatalf("operation %d: the trash has %+v, the list %+v", n, l.Sessions, listed)
		}
		for _, gone := range l.Sessions {
			must(m.RestoreTrashed(t.Context(), gone))
		}
		got := tree(t, m.Home())
		for name, text := range before {
			if got[name] != text {
				t.Errorf("operation %d: %s holds %.40q, want %.40q", n, name, got[name], text)
			}
		}
		if !fsys.Fired() {
			return
		}
	}
}

func TestTheBlobsOfARestoredSessionAreWhereOtherProgramsLook(t *testing.T) {
	m := newManager(t, session.Options{})
	if err := errors.Join(os.MkdirAll(m.Home(), 0o700), os.WriteFile(filepath.Join(m.Home(), "history.db"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := newSession(t, m)
	appendOK(t, s, user("the session of a subagent has the image"))
	s.Close()
	nested := newSession(t, m)
	appendOK(t, nested, bigMessage)
	nested.Close()
	dir := strings.TrimSuffix(s.Path(), ".jsonl")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Rename(nested.Path(), filepath.Join(dir, "Agent.jsonl"))); err != nil {
		t.Fatal(err)
	}
	gone := must(m.Trash(t.Context(), s.Path()))
	blobs := must(filepath.Glob(filepath.Join(m.Home(), "blobs", "????????????????????????????????????????????????????????????????")))
	if len(blobs) != 1 || os.Remove(blobs[0]) != nil { // as oh-my-pi would
		t.Fatalf("blobs: %v", blobs)
	}
	must(m.RestoreTrashed(t.Context(), gone))
	if _, err := os.Stat(blobs[0]); err != nil {
		t.Error(err)
	}
}

func TestASessionThatWasRepairedInTheTrashComesBack(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path, _, gone := trashed(t, m)
	log := filepath.Join(gone.Dir, filepath.Base(path))
	f := must(os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0))
	if _, err := f.WriteString("garbage\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	must(m.Repair(t.Context(), log))
	back := must(m.RestoreTrashed(t.Context(), must(m.FindTrash(t.Context(), gone.ID))))
	noDamage(t, reopen(t, m, back))
	if l := must(m.ListTrash(t.Context())); back != path || len(l.Sessions)+len(l.Remains)+len(l.Unreadable) > 0 {
		t.Errorf("it is at %s, and the trash holds %+v", back, l)
	}
}

func TestAnIndexIsNotInTheWayOfARestoredSession(t *testing.T) {
	m := newManager(t, session.Options{})
	path := ours(t, m)
	index := strings.TrimSuffix(path, ".jsonl") + ".index"
	if err := os.WriteFile(index, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := must(m.Trash(t.Context(), path))
	// Who had the session open writes one when it closes it.
	if err := os.WriteFile(index, []byte("after"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := m.RestoreTrashed(t.Context(), gone); err != nil || got != path {
		t.Fatalf("restored to %s, %v", got, err)
	}
	if l := must(m.ListTrash(t.Context())); len(l.Sessions)+len(l.Unreadable)+len(l.Remains) > 0 {
		t.Errorf("the trash holds %+v", l)
	}
	noDamage(t, reopen(t, m, path))
}

func TestDamagedBytesOfARestoredSessionJoinThoseAtItsPlace(t *testing.T) {
	m := newManager(t, session.Options{})
	path, _, gone := trashed(t, m) // its damaged bytes go along
	if err := os.WriteFile(path+".damaged", []byte("there,"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := m.RestoreTrashed(t.Context(), gone); err != nil || got != path {
		t.Fatalf("restored to %s, %v", got, err)
	}
	if got := string(must(os.ReadFile(path + ".damaged"))); got != "there,bytes" {
		t.Errorf("the damaged bytes are %q", got)
	}
	if l := must(m.ListTrash(t.Context())); len(l.Sessions)+len(l.Unreadable)+len(l.Remains) > 0 {
		t.Errorf("the trash holds %+v", l)
	}
}
