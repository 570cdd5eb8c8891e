package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// everyFault runs work on a fresh directory once for every operation on the disk
// that it makes, with that operation failing in each of three ways, and looks at
// what is left.
func everyFault(t *testing.T, sync bool, prepare func(t *testing.T, d *Dir), work func(ctx context.Context, d *Dir) error, check func(t *testing.T, d *Dir, failed bool)) {
	t.Helper()
	for _, way := range []struct {
		name string
		set  func(f *faultfs.FS, n int)
	}{
		{"EIO", func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) }},
		{"full", (*faultfs.FS).FullAt},
		{"crash", (*faultfs.FS).CrashAt},
	} {
		for n := 0; ; n++ {
			path := filepath.Join(t.TempDir(), "s")
			prepare(t, Open(path, Options{}))
			ffs := faultfs.New(durable.OS)
			way.set(ffs, n)
			err := work(t.Context(), Open(path, Options{Sync: sync, FS: ffs}))
			fired := ffs.Fired()
			name := fmt.Sprintf("%s at operation %d (sync %t, error %v)", way.name, n, sync, err)
			if !fired && err != nil {
				t.Fatalf("%s: failed without a fault", name)
			}
			ok := t.Run(name, func(t *testing.T) {
				check(t, Open(path, Options{}), err != nil)
				if way.name == "EIO" {
					noTemporaries(t, path, ffs.Ops(), n)
				}
			})
			if !ok || !fired {
				break
			}
		}
	}
}

// noTemporaries checks that a single fault leaves no temporary, unless it was
// the removal of one that failed.
func noTemporaries(t *testing.T, path string, ops []string, n int) {
	t.Helper()
	if n < len(ops) && strings.HasPrefix(ops[n], "remove ") {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".tmp-") {
			t.Errorf("left %s", e.Name())
		}
	}
}

func TestEveryFaultWhileAnArtifactIsWritten(t *testing.T) {
	const content = "one\ntwo\n"
	for _, sync := range []bool{false, true} {
		everyFault(t, sync,
			func(t *testing.T, d *Dir) { write(t, d, "old", "old\n") },
			func(ctx context.Context, d *Dir) error {
				f, err := d.Create(ctx, "bash", Provenance{Run: "r"})
				if err != nil {
					return err
				}
				_, err = io.WriteString(f, content)
				if err == nil {
					err = f.Finish(indexOf(t, content))
				}
				return errors.Join(err, f.Close())
			},
			func(t *testing.T, d *Dir, failed bool) {
				if info := stateOf(t, d, 0); info.State != Complete || info.Bytes != 4 {
					t.Errorf("the old artifact is %+v", info)
				}
				info, err := d.Lookup(t.Context(), 1)
				switch {
				case errors.Is(err, ErrNotFound):
					if !failed {
						t.Error("it is not there")
					}
				case err != nil:
					t.Error(err)
				case info.State == Complete && info.Bytes != int64(len(content)):
					t.Errorf("it counts as complete with %d bytes", info.Bytes)
				case info.State != Complete && !failed:
					t.Errorf("it is %s although nothing failed", info.State)
				}
				if f := write(t, d, "new", "new\n"); f.ID() != 1 && f.ID() != 2 || err == nil && f.ID() == 1 {
					t.Errorf("the next number is %d", f.ID())
				}
			})
	}
}

func TestEveryFaultWhileAnOutputIsWritten(t *testing.T) {
	for _, sync := range []bool{false, true} {
		everyFault(t, sync,
			func(t *testing.T, d *Dir) {
				if _, err := d.WriteAgent(t.Context(), agentID(t, "A"), Output{Text: []byte("old"), JSON: []byte("1")}); err != nil {
					t.Fatal(err)
				}
			},
			func(ctx context.Context, d *Dir) error {
				id, err := d.Reserve(ctx, AgentID{}, "B", Provenance{})
				if err != nil {
					return err
				}
				_, err = d.WriteAgent(ctx, id, Output{Text: []byte("b"), JSON: []byte("2")})
				if err != nil {
					return err
				}
				_, err = d.WriteAgent(ctx, AgentID{"A"}, Output{Text: []byte("new"), JSON: []byte("3")})
				return err
			},
			func(t *testing.T, d *Dir, failed bool) {
				if got, err := outputOf(t, d, "A.v1"); got != "old" || err != nil {
					t.Errorf("the old output is %q, %v", got, err)
				}
				a, err := d.LookupAgent(t.Context(), AgentID{"A"}, 0)
				if err != nil {
					t.Fatal(err)
				}
				if !failed && a.Version != 2 {
					t.Error("the new version is not there")
				}
				text, err := outputOf(t, d, "A")
				data, _, jerr := d.AgentJSON(t.Context(), AgentID{"A"}, 0)
				want := map[int][2]string{1: {"old", "1"}, 2: {"new", "3"}}[a.Version]
				if err != nil || jerr != nil || text != want[0] || string(data) != want[1] {
					t.Errorf("version %d is %q and %q, %v, %v", a.Version, text, data, err, jerr)
				}
				if id, err := d.Reserve(t.Context(), AgentID{}, "N", Provenance{}); err != nil || id.String() != "0-N" && id.String() != "1-N" {
					t.Errorf("the next id is %s, %v", id, err)
				}
			})
	}
}

func TestACancelledContextTakesNothing(t *testing.T) {
	d, path := tempDir(t)
	write(t, d, "bash", "x")
	l, err := durable.OpenLock(nil, filepath.Join(path, ".index", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ok, err := l.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Create(ctx, "bash", Provenance{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Create: %v", err)
	}
	if _, err := d.Reserve(ctx, AgentID{}, "A", Provenance{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Reserve: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if f := write(t, d, "bash", "y"); f.ID() != 1 {
		t.Errorf("the next number is %d", f.ID())
	}
}
