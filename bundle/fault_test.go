package bundle

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// small is a session with one of each: log, artifact, nested file, blob, damage.
func small(t testing.TB, m *session.Manager) *session.Session {
	t.Helper()
	s := must(m.Create(t.Context(), "/", session.CreateOptions{}))
	t.Cleanup(func() { s.Close() })
	must(s.Append(t.Context(), say("hello")))
	must(s.Append(t.Context(), show(big("image"))))
	write(t, filepath.Join(s.ArtifactsDir(), "0.bash.log"), "one\n")
	write(t, filepath.Join(s.ArtifactsDir(), "0-A", "notes"), "two\n")
	write(t, s.Path()+".damaged", "damaged\n")
	return s
}

// checkHome wants the session whole or not there, and says which.
func checkHome(t *testing.T, about string, m *session.Manager, want []string, files map[string]string) (there bool) {
	t.Helper()
	list := must(m.List(t.Context(), ""))
	if len(list.Unreadable) > 0 || len(list.Sessions) > 1 {
		t.Fatalf("%s: %+v", about, list)
	}
	if len(list.Sessions) == 0 {
		return false
	}
	path := list.Sessions[0].Path
	if diff := cmp.Diff(want, entries(t, m, path)); diff != "" {
		t.Fatalf("%s: %s", about, diff)
	}
	got := tree(t, strings.TrimSuffix(path, ".jsonl"))
	delete(got, ".tmp-import") // a mark that stayed says nothing beside a log
	if diff := cmp.Diff(files, got); diff != "" {
		t.Fatalf("%s: %s", about, diff)
	}
	if tree(t, filepath.Dir(path))[filepath.Base(path)+".damaged"] != "damaged\n" {
		t.Fatalf("%s: the damaged bytes are not there", about)
	}
	return true
}

func TestEveryFaultOfAnImportLeavesTheSessionWholeOrNotAtAll(t *testing.T) {
	if testing.Short() {
		t.Skip("enumerates faults; run without -short")
	}
	from := newManager(t)
	s := small(t, from)
	r, _ := export(t, from, s, ExportOptions{})
	everyFault(t, must(readAll(r)), ImportOptions{}, s.ID(), entries(t, from, s.Path()), tree(t, s.ArtifactsDir()))
}

func TestEveryFaultOfAnImportWithAMapLeavesTheSessionWholeOrNotAtAll(t *testing.T) {
	if testing.Short() {
		t.Skip("enumerates faults; run without -short")
	}
	if raceDetector {
		t.Skip("more than a minute under the race detector: .ci/run kill runs it without")
	}
	from, to := newManager(t), newManager(t)
	s := small(t, from)
	must(s.Append(t.Context(), files("/home/ann/a")))
	nested := filepath.Join(s.ArtifactsDir(), "0-Task.jsonl")
	write(t, nested, `{"type":"session","version":3,"id":"child","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/home/ann"}`+"\n")
	repeats(t, from, nested, 4)
	r, _ := export(t, from, s, ExportOptions{})
	data, o := must(readAll(r)), ImportOptions{Map: []session.PathMap{{Old: "/home/ann", New: "/Users/bob"}}}
	got := must(Import(t.Context(), to, bytes.NewReader(data), o))
	everyFault(t, data, o, s.ID(), entries(t, to, got.Path), tree(t, strings.TrimSuffix(got.Path, ".jsonl")))
}

// everyFault imports a bundle with a fault at each operation in turn. What is there then
// is nothing, or a session with these entries and files.
func everyFault(t *testing.T, data []byte, o ImportOptions, id string, want []string, files map[string]string) {
	t.Helper()
	for name, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 0; ; n++ {
				home := filepath.Join(t.TempDir(), "home")
				fsys := faultfs.New(durable.OS)
				set(fsys, n)
				bad := must(session.OpenManager(home, session.Options{FS: fsys}))
				_, err := Import(t.Context(), bad, bytes.NewReader(data), o)
				fired, about := fsys.Fired(), "no fault"
				if ops := fsys.Ops(); fired && n < len(ops) {
					about = ops[n]
				}
				if !fired && err != nil {
					t.Fatalf("no fault, and %v", err)
				}
				good := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
				there := checkHome(t, about, good, want, files)
				if err == nil && !there {
					t.Fatalf("%s: it was acknowledged and is not there", about)
				}
				if name != "crash" && err != nil && there && !strings.Contains(err.Error(), "cleaning up") {
					t.Fatalf("%s: it was refused (%v) and is there", about, err)
				}
				if !there {
					// Once more, with a disk that works: under its own id, and nothing of the
					// first attempt is in the way or left.
					got, err := Import(t.Context(), good, bytes.NewReader(data), o)
					if err != nil || got.ID != id {
						t.Fatalf("%s: afterwards: %+v, %v", about, got, err)
					}
					if !checkHome(t, about, good, want, files) {
						t.Fatalf("%s: afterwards it is not there", about)
					}
					for file := range tree(t, filepath.Join(home, "sessions")) {
						if strings.Contains(file, ".tmp-") {
							t.Fatalf("%s: %s is left", about, file)
						}
					}
				}
				if !fired {
					t.Logf("%d operations", n)
					return
				}
			}
		})
	}
}

// failing is a writer that takes so many bytes.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return f.left, unix.ENOSPC
	}
	f.left -= len(p)
	return len(p), nil
}

func TestAnExportThatCannotBeWrittenSaysSo(t *testing.T) {
	m := newManager(t)
	s := rich(t, m)
	for _, o := range []ExportOptions{{}, {Passphrase: "p", WorkFactor: 10}} {
		r, _ := export(t, m, s, o)
		for at := int64(0); at < r.Size(); at += r.Size()/7 + 1 {
			if _, err := Export(t.Context(), &failing{int(at)}, m, s, o); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("after %d bytes: %v", at, err)
			}
		}
	}
}

func TestExportChangesNothing(t *testing.T) {
	m := newManager(t)
	s := rich(t, m)
	before := tree(t, m.Home())
	fsys := faultfs.New(durable.OS)
	bad := must(session.OpenManager(m.Home(), session.Options{FS: fsys}))
	view := must(bad.View(t.Context(), s.Path()))
	defer view.Close()
	must(Export(t.Context(), io.Discard, bad, view, ExportOptions{FS: fsys}))
	if ops := fsys.Ops(); len(ops) > 0 {
		t.Errorf("it did %v", ops)
	}
	if diff := cmp.Diff(before, tree(t, m.Home())); diff != "" {
		t.Error(diff)
	}
}
