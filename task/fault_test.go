package task_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

// stride is how many operations of a disk are left out between two that fail: none with AGENTRUN_TEST_ROUNDS, else as many
// as keep the test short.
func stride() int {
	if os.Getenv("AGENTRUN_TEST_ROUNDS") != "" {
		return 1
	}
	return 11
}

func TestARunOnADiskThatFailsSaysSoAndGoesOnOnAHealthyOne(t *testing.T) {
	want := again(t, filepath.Join(t.TempDir(), "home"), false).state(t)
	for _, disk := range []struct {
		name string
		set  func(*faultfs.FS, int)
		says string
	}{
		{"a disk that fails once", func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) }, "input/output error"},
		{"a disk that is full from then on", (*faultfs.FS).FullAt, "no space left on device"},
	} {
		t.Run(disk.name, func(t *testing.T) {
			failed := 0
			n := 0
			for ; ; n += stride() {
				fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
				disk.set(fsys, n)
				home := filepath.Join(t.TempDir(), "home")
				r, out, err := liveSynced(t.Context(), home, fsys, session.Sync, false)
				if r != nil {
					_ = r.session.Close() // says of the disk what was said
				}
				if !fsys.Fired() {
					if err != nil {
						t.Errorf("no operation failed, and %v", err)
					}
					break
				}
				op := fsys.Ops()[n]
				if err != nil {
					failed++
				}
				switch {
				case err != nil && out.Run != "" && out.Status != agent.FailedRun:
					t.Errorf("operation %d (%s) fails, and the run is %s: %v", n, op, out.Status, err)
				case err != nil && !strings.Contains(err.Error(), disk.says):
					t.Errorf("operation %d (%s) fails, and what is said is %v", n, op, err)
				case err == nil && out.Status != agent.Completed:
					t.Errorf("operation %d (%s) fails, and the outcome is %+v", n, op, out)
				}
				for _, found := range examine(t, home) {
					t.Errorf("operation %d (%s) failed: the doctor finds %s: %s: %s", n, op, found.Kind, filepath.Base(found.File), found.What)
				}
				if got := again(t, home, false).state(t); !slices.Equal(got, want) {
					t.Fatalf("operation %d (%s) failed with %v, %+v, and the end is\n  %s\nand not\n  %s", n, op, err, out, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
				}
				for _, found := range examine(t, home) {
					t.Errorf("operation %d (%s) failed: behind the end the doctor finds %s: %s: %s", n, op, found.Kind, filepath.Base(found.File), found.What)
				}
			}
			t.Logf("%d operations, every %d. failed, of which %d ended the run", n, stride(), failed)
			if failed == 0 {
				t.Error("no operation that failed ended the run: does the file system fail?")
			}
		})
	}
}

func TestAReportFromTheBackgroundIsHandedOverOnceWhicheverDiskFails(t *testing.T) {
	t.Setenv(killTree, lateTree)
	for n := stride() / 2; ; n += stride() {
		fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
		fsys.FullAt(n)
		home := filepath.Join(t.TempDir(), "home")
		r, _, err := liveSynced(t.Context(), home, fsys, session.Sync, false)
		if r != nil {
			_ = r.session.Close() // says of the disk what was said
		}
		if !fsys.Fired() {
			if err != nil {
				t.Errorf("no operation failed, and %v", err)
			}
			break
		}
		r = again(t, home, false)
		if got := r.reports(t); len(got) != 1 || !strings.Contains(got[0], "A is done.") {
			t.Errorf("operation %d failed with %v: handed over was %q", n, err, got)
		}
		if got := must(r.dir.LookupAgent(t.Context(), must(artifacts.ParseAgentID("0-A")), 0)); got.Version != 1 {
			t.Errorf("operation %d failed with %v: the report has %d versions", n, err, got.Version)
		}
		for _, found := range examine(t, home) {
			t.Errorf("operation %d failed: the doctor finds %s: %s: %s", n, found.Kind, filepath.Base(found.File), found.What)
		}
	}
}

// examine is what a doctor finds in a home.
func examine(t *testing.T, home string) (all []doctor.Finding) {
	t.Helper()
	m, err := session.OpenManager(home, session.Options{})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	d := must(doctor.New(t.Context(), must(m, err), doctor.Options{Report: func(f doctor.Finding) { all = append(all, f) }}))
	if err := cmp.Or(d.Home(t.Context()), d.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}
