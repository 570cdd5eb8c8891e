package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// checkClone checks that a clone is one: every artifact is as in the original, or named
// as failed and refused with a reason, and no number is given twice.
func checkClone(t *testing.T, d, fork *Dir, done Cloned) {
	t.Helper()
	failed := map[int64]bool{}
	names := map[string]bool{}
	for _, f := range done.Failed {
		failed[f.ID], names[f.Name] = true, true
		if f.ID >= 0 && f.Err == nil {
			t.Errorf("no reason for %+v", f)
		}
	}
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	top := int64(-1)
	for _, want := range list {
		top = max(top, want.ID)
		got, err := fork.Lookup(t.Context(), want.ID)
		switch {
		case failed[want.ID]:
			var notFound *NotFoundError
			if !errors.As(err, &notFound) || notFound.Reason == "" {
				t.Errorf("artifact %d failed to come along, and is %+v, %v", want.ID, got, err)
			}
		case want.State == Missing:
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("artifact %d is missing, and is %+v, %v", want.ID, got, err)
			}
		case err != nil:
			t.Errorf("artifact %d: %v", want.ID, err)
		case got.State != want.State || got.Run != want.Run || got.CRC32C != want.CRC32C || get(t, got.Path) != get(t, want.Path):
			t.Errorf("artifact %d is %+v, want %+v", want.ID, got, want)
		}
	}
	for _, name := range []string{"Anna.md", "Anna.v2.json", "Anna.jsonl", "draft.txt", "Anna/Anna.Bob.md", "local/notes.md"} {
		want, err := os.ReadFile(d.join(name))
		if err != nil || names[name] || names[filepath.Dir(name)] {
			continue // it was never there, or it failed
		}
		if got := get(t, fork.join(name)); got != string(want) {
			t.Errorf("%s is %q", name, got)
		}
	}
	if f := write(t, fork, "bash", "new"); f.ID() <= top {
		t.Errorf("the next number is %d, and %d was used", f.ID(), top)
	}
}

func TestEveryFaultWhileADirectoryIsCloned(t *testing.T) {
	if testing.Short() {
		t.Skip("enumerates faults; run without -short")
	}
	sources := map[string]*Dir{"a bit of everything": furnished(t), "many": many(t, packFrom)}
	ways := map[string]func(f *faultfs.FS, n int){
		"EIO":   func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"full":  (*faultfs.FS).FullAt,
		"crash": (*faultfs.FS).CrashAt,
	}
	systems := map[string]durable.FS{"links": linking, "reflinks": reflinking{durable.OS}, "copies": linkless{linking}}
	for what, d := range sources {
		for way, set := range ways {
			for system, fsys := range systems {
				if what == "many" && system == "copies" {
					continue // the same steps, many times
				}
				t.Run(what+"/"+system+"/"+way, func(t *testing.T) {
					stride := 1
					if what == "many" {
						stride = 37
					}
					for n := 0; ; n += stride {
						for _, p := range packsIn(t, d) {
							os.Remove(p)
						}
						to := filepath.Join(t.TempDir(), "fork")
						ffs := faultfs.New(faultfs.Unsynced{FS: fsys})
						set(ffs, n)
						done, err := Clone(t.Context(), d.Path(), to, CloneOptions{Sync: true, FS: ffs})
						if !ffs.Fired() && err != nil {
							t.Fatal(err)
						}
						name := fmt.Sprintf("operation %d", n)
						if ops := ffs.Ops(); n < len(ops) {
							name += " " + strings.ReplaceAll(ops[n], to, "TO")
						}
						ok := t.Run(name, func(t *testing.T) {
							if err == nil {
								checkClone(t, d, Open(to, Options{}), done)
								noTemporaries(t, to, ffs.Ops(), n)
								return
							}
							_, left := os.Lstat(to)
							if way == "EIO" && !errors.Is(left, fs.ErrNotExist) && !strings.Contains(name, "remove") {
								t.Errorf("%v, and something is left: %v", err, left)
							}
						})
						if !ok || !ffs.Fired() {
							t.Logf("%d operations", len(ffs.Ops()))
							return
						}
					}
				})
			}
		}
	}
}
