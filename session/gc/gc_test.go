package gc_test

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/gc"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := child(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func ok(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func manager(t *testing.T, home string) *session.Manager {
	t.Helper()
	return must(session.OpenManager(home, session.Options{Durability: session.Flush}))
}

func text(s string) entry.Body {
	return entry.MessageBody{Message: fmt.Appendf(nil, `{"role":"user","content":%q}`, s)}
}

func image(data []byte) entry.Body {
	return entry.MessageBody{Message: fmt.Appendf(nil, `{"role":"user","content":[{"type":"image","mimeType":"image/png","data":"%s"}]}`,
		base64.StdEncoding.EncodeToString(data))}
}

// newSession makes a session with some entries and returns the path of its log.
func newSession(t *testing.T, m *session.Manager, bodies ...entry.Body) string {
	t.Helper()
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	for _, b := range bodies {
		must(s.Append(t.Context(), b))
	}
	ok(t, s.Close())
	return s.Path()
}

// old makes everything below dir look older than any grace period.
func old(t testing.TB, dir string) {
	t.Helper()
	at := time.Now().Add(-48 * time.Hour)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Chtimes(path, at, at)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// plant puts an old blob into a home that nothing names.
func plant(t testing.TB, home, content string) blobref.Ref {
	t.Helper()
	ref := blobref.Of([]byte(content))
	dir := filepath.Join(home, "blobs")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, ref.Hex()), []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
	old(t, filepath.Join(dir, ref.Hex()))
	return ref
}

func write(t *testing.T, path, content string) {
	t.Helper()
	ok(t, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func blobOf(home string, ref blobref.Ref) string { return filepath.Join(home, "blobs", ref.Hex()) }

// TestWhateverNamesABlobKeepsIt plants a blob that one thing names, and one that
// nothing names.
func TestWhateverNamesABlobKeepsIt(t *testing.T) {
	for name, cite := range map[string]func(t *testing.T, m *session.Manager, ref blobref.Ref){
		"an entry": func(t *testing.T, m *session.Manager, ref blobref.Ref) { newSession(t, m, text(ref.String())) },
		"a URL in an entry": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			newSession(t, m, text("blob://sha256/"+ref.Hex()+":1-2"))
		},
		"a quoted entry in an entry": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			newSession(t, m, text(fmt.Sprintf("%q", fmt.Sprintf("%q", ref))))
		},
		"a compressed session": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			ok(t, m.Compress(t.Context(), newSession(t, m, text(ref.String()))))
		},
		"a session in the trash": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			must(m.Trash(t.Context(), newSession(t, m, text(ref.String()))))
		},
		"damaged bytes that were kept": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, newSession(t, m, text("x"))+".damaged", `{"cut off: "`+ref.String())
		},
		"a log without a header": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, filepath.Join(m.Home(), "sessions", "-p", "torn.jsonl"), "\x00\x00"+ref.String())
		},
		"a log of a subagent": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, filepath.Join(strings.TrimSuffix(newSession(t, m, text("x")), ".jsonl"), "Agent", "Deeper.jsonl"), ref.String())
		},
		"an artifact": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, filepath.Join(strings.TrimSuffix(newSession(t, m, text("x")), ".jsonl"), "0.bash.log"), "see blob://sha256/"+ref.Hex())
		},
		"a backup that oh-my-pi left": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, filepath.Join(m.Home(), "sessions", "-p", "s.jsonl.1234.bak"), ref.String())
		},
		"the archive of oh-my-pi": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			path := filepath.Join(m.Home(), "archive", "sessions", "-p", "s.jsonl.gz")
			ok(t, os.MkdirAll(filepath.Dir(path), 0o700))
			f := must(os.Create(path))
			z := gzip.NewWriter(f)
			must(z.Write([]byte(ref.String())))
			ok(t, z.Close(), f.Close())
		},
		"the state of another program": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, filepath.Join(m.Home(), "history.db"), "\x00SQLite\x00"+ref.String()+"\x00")
		},
		"a long string that left its line": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			newSession(t, m, text(strings.Repeat("long ", 150_000)+ref.String()))
		},
		"a blob that a blob names": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			second := plant(t, m.Home(), "manifest: "+ref.String())
			newSession(t, m, text(plant(t, m.Home(), "list: "+second.String()).String()))
		},
		"a directory of sessions that is a link": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			elsewhere := t.TempDir()
			write(t, filepath.Join(elsewhere, "s.jsonl"), ref.String())
			ok(t, os.MkdirAll(filepath.Join(m.Home(), "sessions"), 0o700), os.Symlink(elsewhere, filepath.Join(m.Home(), "sessions", "-linked")))
		},
		"a session elsewhere": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			elsewhere(t, m, text(ref.String()))
		},
		"an artifact of a session elsewhere": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			write(t, filepath.Join(strings.TrimSuffix(elsewhere(t, m, text("x")), ".jsonl"), "0.bash.log"), ref.String())
		},
		"a session elsewhere that was compressed": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			ok(t, m.Compress(t.Context(), elsewhere(t, m, text(ref.String()))))
		},
		"another home that shares the blobs": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			second := manager(t, filepath.Join(t.TempDir(), "second"))
			ok(t, os.MkdirAll(second.Home(), 0o700), os.Symlink(filepath.Join(m.Home(), "blobs"), filepath.Join(second.Home(), "blobs")))
			newSession(t, second, text(ref.String()))
		},
		"a link among the artifacts": func(t *testing.T, m *session.Manager, ref blobref.Ref) {
			dir := strings.TrimSuffix(newSession(t, m, text("x")), ".jsonl")
			target := filepath.Join(t.TempDir(), "notes")
			write(t, target, ref.String())
			ok(t, os.MkdirAll(dir, 0o700), os.Symlink(target, filepath.Join(dir, "notes")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager(t, filepath.Join(t.TempDir(), "home"))
			kept, gone := plant(t, m.Home(), "kept"), plant(t, m.Home(), "gone")
			cite(t, m, kept)
			for _, cache := range []string{"read anew", "from the cache"} {
				old(t, m.Home()) // so that the cache may know it
				r := must(gc.Run(t.Context(), m, gc.Options{}))
				if r.Blobs.Count != 1 || !there(blobOf(m.Home(), gone)) {
					t.Errorf("%s: the dry run says %+v", cache, r)
				}
			}
			r := must(gc.Run(t.Context(), m, gc.Options{Apply: true}))
			if r.Blobs.Count != 1 || there(blobOf(m.Home(), gone)) || !there(blobOf(m.Home(), kept)) {
				t.Errorf("%+v; the kept blob is there: %v", r, there(blobOf(m.Home(), kept)))
			}
		})
	}
}

// elsewhere makes a session outside of the home that uses its blobs.
func elsewhere(t *testing.T, m *session.Manager, bodies ...entry.Body) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.jsonl")
	ok(t, os.Rename(newSession(t, m, text("first")), path))
	s := must(m.Open(t.Context(), path))
	for _, b := range bodies {
		must(s.Append(t.Context(), b))
	}
	ok(t, s.Close())
	return path
}

func TestWhatCannotBeReadKeepsAllBlobs(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, m *session.Manager)
		kept string // part of the sentence
	}{
		"a compressed session that is cut off": {func(t *testing.T, m *session.Manager) {
			path := newSession(t, m, text(strings.Repeat("x", 10000)))
			ok(t, m.Compress(t.Context(), path), os.Truncate(path+".zst", 30))
		}, ".jsonl.zst"},
		"a link that leads nowhere": {func(t *testing.T, m *session.Manager) {
			ok(t, os.MkdirAll(filepath.Join(m.Home(), "sessions"), 0o700), os.Symlink("/nowhere/at/all", filepath.Join(m.Home(), "sessions", "-x")))
		}, "leads nowhere"},
		"a registry with a line that is none": {func(t *testing.T, m *session.Manager) {
			write(t, filepath.Join(m.Home(), "registry"), "{\"session\":\"/x.jsonl\",\"since\":\"2026-01-01T00:00:00Z\"}\ngarbage\n")
		}, "line 2"},
		"a home that shares the blobs and is gone": {func(t *testing.T, m *session.Manager) {
			write(t, filepath.Join(m.Home(), "registry"), "{\"home\":\"/nowhere/home\",\"since\":\"2026-01-01T00:00:00Z\"}\n")
		}, "/nowhere/home"},
		"checkpoints that nobody explains": {func(t *testing.T, m *session.Manager) {
			write(t, filepath.Join(m.Home(), "checkpoints", "c.jsonl"), "{}\n")
		}, "nobody said what they refer to"},
		"a session elsewhere that is gone and was never read": {func(t *testing.T, m *session.Manager) {
			ok(t, os.Remove(elsewhere(t, m, text("x"))))
		}, "what it cites is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager(t, filepath.Join(t.TempDir(), "home"))
			ref := plant(t, m.Home(), "gone")
			c.do(t, m)
			for _, apply := range []bool{false, true} {
				r := must(gc.Run(t.Context(), m, gc.Options{Apply: apply}))
				if r.Blobs.Count != 0 || !there(blobOf(m.Home(), ref)) || !strings.Contains(strings.Join(r.Kept, "\n"), c.kept) {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

func TestWhatCheckpointsReferToStays(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	write(t, filepath.Join(m.Home(), "checkpoints", "c.jsonl"), "{}\n")
	named, gone := plant(t, m.Home(), "named"), plant(t, m.Home(), "gone")
	damaged := errors.New("a checkpoint is damaged")
	cited := func(failure error) func(context.Context, string) iter.Seq2[blobref.Ref, error] {
		return func(_ context.Context, home string) iter.Seq2[blobref.Ref, error] {
			return func(yield func(blobref.Ref, error) bool) {
				if home == m.Home() && yield(named, nil) && failure != nil {
					yield(blobref.Ref{}, failure)
				}
			}
		}
	}
	r := must(gc.Run(t.Context(), m, gc.Options{Apply: true, Cited: cited(damaged)}))
	if r.Blobs.Count != 0 || !there(blobOf(m.Home(), gone)) || !strings.Contains(strings.Join(r.Kept, "\n"), damaged.Error()) {
		t.Errorf("%+v", r)
	}
	r = must(gc.Run(t.Context(), m, gc.Options{Apply: true, Cited: cited(nil)}))
	if r.Blobs.Count != 1 || there(blobOf(m.Home(), gone)) || !there(blobOf(m.Home(), named)) {
		t.Errorf("%+v", r)
	}
}

func TestASessionElsewhereThatVanishesKeepsItsBlobs(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	before, after := plant(t, m.Home(), "before"), []byte(strings.Repeat("an image", 1000))
	path := elsewhere(t, m, text(before.String()))
	must(gc.Run(t.Context(), m, gc.Options{Apply: true})) // reads it
	gone := plant(t, m.Home(), "gone")

	// A blob that is stored after the collector has read the session is noted too.
	s := must(m.Open(t.Context(), path))
	must(s.Append(t.Context(), image(after)))
	ok(t, s.Close())
	old(t, filepath.Join(m.Home(), "blobs"))
	away := filepath.Join(t.TempDir(), "away.jsonl")
	ok(t, os.Rename(path, away))

	r := must(gc.Run(t.Context(), m, gc.Options{Apply: true}))
	if len(r.Vanished) != 1 || r.Vanished[0] != path || r.Blobs.Count != 1 {
		t.Errorf("%+v", r)
	}
	for _, ref := range []blobref.Ref{before, blobref.Of(after)} {
		if !there(blobOf(m.Home(), ref)) {
			t.Errorf("%v is gone", ref)
		}
	}
	if there(blobOf(m.Home(), gone)) {
		t.Error("what nothing names is there")
	}

	// It is back, and then a session of the home.
	ok(t, os.Rename(away, path))
	if r := must(gc.Run(t.Context(), m, gc.Options{Apply: true})); len(r.Vanished) > 0 || r.Blobs.Count > 0 {
		t.Errorf("after it came back: %+v", r)
	}
	if _, err := gc.Run(t.Context(), m, gc.Options{Forget: []string{path}}); err == nil {
		t.Error("a session that is there was forgotten")
	}
	ok(t, os.Rename(path, filepath.Join(m.Home(), "sessions", "s.jsonl")))
	if r := must(gc.Run(t.Context(), m, gc.Options{Apply: true})); len(r.Vanished) > 0 || r.Blobs.Count > 0 {
		t.Errorf("after it came home: %+v", r)
	}
	if all := must(m.Registry()); len(all) > 0 {
		t.Errorf("the registry knows %+v", all)
	}

	ok(t, os.Rename(filepath.Join(m.Home(), "sessions", "s.jsonl"), away))
	if r := must(gc.Run(t.Context(), m, gc.Options{Apply: true})); r.Blobs.Count != 2 {
		t.Errorf("after it was taken away: %+v", r)
	}
}

func TestBlobsOfAPendingEntryStay(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	path := newSession(t, m, text("x"))
	s := must(m.Open(t.Context(), path))
	content := []byte(strings.Repeat("an image", 1000))
	must(s.Append(t.Context(), image(content)))
	// Another program's rewrite drops the entry; nobody has noticed yet.
	ok(t, os.WriteFile(path, []byte(`{"type":"session","version":3,"id":"`+s.ID()+`","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/"}`+"\n"), 0o600))
	old(t, filepath.Join(m.Home(), "blobs")) // the lease with them
	if r := must(gc.Run(t.Context(), m, gc.Options{Apply: true})); r.Blobs.Count != 0 {
		t.Errorf("%+v", r)
	}
	ok(t, s.Close())
	if !there(blobOf(m.Home(), blobref.Of(content))) {
		t.Error("the blob is gone")
	}
}

func TestTheSecondCollectorIsToldWhoIsAtWork(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	newSession(t, m, text("x"))
	asked := false
	o := gc.Options{Apply: true}
	o.Progress = func(string, int, int) {
		if asked {
			return
		}
		asked = true
		_, err := gc.Run(t.Context(), m, gc.Options{Apply: true})
		var locked *gc.LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
			t.Errorf("the second: %v", err)
		}
		if _, err := gc.Run(t.Context(), m, gc.Options{}); err != nil {
			t.Errorf("a dry run: %v", err)
		}
	}
	must(gc.Run(t.Context(), m, o))
	if !asked {
		t.Error("nobody asked")
	}
}

func TestTheCollectorOfOhMyPiIsKeptOut(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	write(t, filepath.Join(m.Home(), "history.db"), "")
	lock := filepath.Join(m.Home(), "gc.lock")
	newSession(t, m, text("x"))
	seen := false
	must(gc.Run(t.Context(), m, gc.Options{Apply: true, Progress: func(string, int, int) { seen = seen || there(lock) }}))
	if !seen || there(lock) {
		t.Errorf("its lock was there meanwhile: %v, afterwards: %v", seen, there(lock))
	}
	write(t, lock, fmt.Sprintf("%d\n2026-11-21T10:00:00.000Z\n", os.Getppid()))
	var locked *gc.LockedError
	if _, err := gc.Run(t.Context(), m, gc.Options{Apply: true}); !errors.As(err, &locked) || locked.PID != os.Getppid() || locked.By != "oh-my-pi" {
		t.Errorf("while it is at work: %v", err)
	}
	write(t, lock, fmt.Sprintf("%d\n2026-11-21T10:00:00.000Z\n", 1<<30))
	if _, err := gc.Run(t.Context(), m, gc.Options{Apply: true}); err != nil || there(lock) {
		t.Errorf("after it was killed: %v", err)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	gone := must(m.Trash(t.Context(), newSession(t, m, text("x"))))
	plant(t, m.Home(), "gone")
	path := newSession(t, m, text("y"))
	write(t, filepath.Join(filepath.Dir(path), ".tmp-x"), "temporary")
	write(t, filepath.Join(filepath.Dir(path), "2020-01-01T00-00-00-000Z_x", "0.bash.log"), "orphan")
	before := listing(t, m.Home())
	later := func() time.Time { return time.Now().Add(1000 * time.Hour) }
	r := must(gc.Run(t.Context(), m, gc.Options{Now: later, Retention: time.Hour}))
	if r.Blobs.Count != 1 || r.Trash.Count != 1 || r.Temporaries.Count != 2 || len(r.Retention.Warned) != 1 {
		t.Errorf("%+v", r)
	}
	if after := listing(t, m.Home()); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if !there(gone.Dir) {
		t.Error("the trash is empty")
	}
}

// listing is all files of a home but caches, with their times.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	ok(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, ".cache") || path == dir {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime())
		}
		return err
	}))
	return b.String()
}

func TestAUsedSessionIsNotWarnedOfAgain(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	used, unused := newSession(t, m, text("x")), newSession(t, m, text("y"))
	day := 24 * time.Hour
	run := func(after time.Duration) *gc.Retention {
		now := time.Now().Add(after)
		return must(gc.Run(t.Context(), m, gc.Options{Apply: true, Retention: 30 * day, Now: func() time.Time { return now }})).Retention
	}
	if r := run(29 * day); r.Count != 0 || len(r.Warned) != 0 {
		t.Errorf("after 29 days: %+v", r)
	}
	if r := run(31 * day); r.Count != 0 || len(r.Warned) != 2 {
		t.Errorf("after 31 days: %+v", r)
	}
	at := time.Now().Add(32 * day)
	ok(t, os.Chtimes(used, at, at))
	if r := run(39 * day); r.Count != 1 || len(r.Warned) != 0 || there(unused) || !there(used) {
		t.Errorf("after 39 days: %+v", r)
	}
	if l := must(m.ListTrash(t.Context())); len(l.Sessions) != 1 || l.Sessions[0].Path != unused {
		t.Errorf("the trash holds %+v", l)
	}
	if r := run(63 * day); r.Count != 0 || len(r.Warned) != 1 {
		t.Errorf("after 63 days: %+v", r)
	}
}

func TestWhatAKilledMoveOrRemovalLeavesGoes(t *testing.T) {
	home := t.TempDir()
	m := manager(t, home)
	newSession(t, m, text("one"))
	left := []string{
		filepath.Join(home, "moves", ".tmp-0011223344556677.json-1"),
		filepath.Join(home, "trash", "20260102T030405.000Z_x", ".tmp-origin.json-1"),
	}
	for _, path := range left {
		write(t, path, "{")
	}
	c := gc.Options{Apply: true, Now: func() time.Time { return time.Now().Add(48 * time.Hour) }}
	report := must(gc.Run(t.Context(), m, c))
	if len(report.Kept) > 0 {
		t.Errorf("kept: %v", report.Kept)
	}
	for _, path := range left {
		if there(path) {
			t.Errorf("%s is there", path)
		}
	}
}
