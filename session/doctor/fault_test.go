package doctor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

func TestAfterEveryFaultOfARepairTheNextOneMendsAll(t *testing.T) {
	for name, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 0; oneFault(t, n, set); n++ {
			}
		})
	}
}

// oneFault repairs a home with operation n failing, and reports whether there was one.
func oneFault(t *testing.T, n int, set func(*faultfs.FS, int)) bool {
	t.Helper()
	h := newHome(t)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(h.m.Home())); err != nil {
		t.Fatal(err)
	}
	right := string(must(os.ReadFile(h.artifact)))
	log := string(must(os.ReadFile(h.log)))
	flip(t, h.artifact, 17, 3)
	flip(t, h.blob, 99, 6)
	appendTo(t, h.log, "garbage\n")
	write(t, filepath.Join(h.dir, ".index", "0.idx"), "what?")
	wrong := string(must(os.ReadFile(h.artifact)))

	fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
	set(fsys, n)
	bad := must(session.OpenManager(h.m.Home(), session.Options{FS: fsys}))
	d := must(doctor.New(t.Context(), bad, doctor.Options{Repair: true, From: []string{backup}, FS: fsys}))
	err := errors.Join(d.Home(t.Context()), d.Close())
	if !fsys.Fired() && (err != nil || d.Summary().Repaired != 4 || d.Summary().Findings != 4) {
		t.Fatalf("no fault, and %v, %+v", err, d.Summary())
	}
	if got := string(must(os.ReadFile(h.artifact))); got != right && got != wrong {
		t.Fatalf("operation %d: the artifact is neither the old one nor the new one", n)
	}
	examine(t, h.m, doctor.Options{Repair: true, From: []string{backup}})
	if left, _ := examine(t, h.m, doctor.Options{}); len(left) > 0 {
		t.Fatalf("operation %d: the next repair leaves %+v", n, left)
	}
	if string(must(os.ReadFile(h.artifact))) != right || string(must(os.ReadFile(h.log))) != log {
		t.Fatalf("operation %d: not what it was", n)
	}
	return fsys.Fired()
}
