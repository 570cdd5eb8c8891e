package gc_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/gc"
)

// fullHome has one of everything that can go, and of what has to stay.
type fullHome struct {
	m    *session.Manager
	kept []blobref.Ref
	logs []string
	late func() time.Time // when everything that can go is old
}

func newFullHome(t *testing.T, foreign bool) *fullHome {
	t.Helper()
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	h := &fullHome{m: m, late: func() time.Time { return time.Now().Add(40 * 24 * time.Hour) }}
	if foreign {
		write(t, filepath.Join(m.Home(), "history.db"), "")
	}
	cold := newSession(t, m, image(imageOf(1)))
	ok(t, m.Compress(t.Context(), cold))
	nested := newSession(t, m, image(imageOf(2)), text(strings.Repeat("long ", 120_000)))
	h.logs = []string{cold, nested, elsewhere(t, m, image(imageOf(3)))}
	for i := 1; i <= 3; i++ {
		h.kept = append(h.kept, blobref.Of(imageOf(i)))
	}
	must(m.Trash(t.Context(), newSession(t, m, image(imageOf(4)))))
	dir := filepath.Dir(nested)
	orphan := filepath.Join(dir, "2020-01-01T00-00-00-000Z_gone")
	write(t, filepath.Join(orphan, "0.bash.log"), "output")
	write(t, filepath.Join(orphan, ".index", "0.idx"), "index")
	write(t, filepath.Join(dir, ".tmp-x"), "temporary")
	write(t, filepath.Join(dir, "2020-01-01T00-00-00-000Z_lost.index"), "index")
	for i := range 3 {
		plant(t, m.Home(), fmt.Sprint("garbage ", i))
	}
	old(t, filepath.Join(m.Home(), "blobs"))
	old(t, filepath.Join(m.Home(), "kept-blobs"))
	return h
}

// intact checks what has to be there whatever happened.
func (h *fullHome) intact(t *testing.T, when string) {
	t.Helper()
	for _, ref := range h.kept {
		if _, err := h.m.Blobs().Get(t.Context(), ref); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	acked := map[string]int{}
	for _, path := range h.logs {
		acked[must(h.m.Find(t.Context(), path)).Path] = 1
	}
	check(t, h.m, acked, when)
}

// left is what is in the home, but for what has random names or is no content.
func (h *fullHome) left(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	ok(t, filepath.WalkDir(h.m.Home(), func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(h.m.Home(), path)
		if err == nil && !strings.HasSuffix(rel, ".lock") && !strings.HasSuffix(rel, ".cache") && !strings.Contains(rel, "-7") && d.Type().IsRegular() {
			fmt.Fprintln(&b, rel)
		}
		return err
	}))
	return b.String()
}

func TestEveryFaultOfACollectionKeepsWhatIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("enumerates faults; run without -short")
	}
	for name, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared with another program: %v", name, foreign), func(t *testing.T) {
				t.Parallel()
				want := ""
				for n := -1; ; n++ {
					h := newFullHome(t, foreign)
					fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
					if n >= 0 {
						set(fsys, n)
					}
					bad := must(session.OpenManager(h.m.Home(), session.Options{FS: fsys}))
					r, err := gc.Run(t.Context(), bad, gc.Options{Apply: true, FS: fsys, Now: h.late})
					when := fmt.Sprint("operation ", n)
					if ops := fsys.Ops(); n >= 0 && n < len(ops) {
						when += " (" + ops[n] + ")"
					}
					if !fsys.Fired() && (err != nil || len(r.Kept) > 0) {
						t.Fatalf("without a fault: %v, %+v", err, r)
					}
					h.intact(t, when)
					ok(t, os.RemoveAll(filepath.Join(h.m.Home(), "gc.lock"))) // its process, this one, is not dead
					if r, err := gc.Run(t.Context(), h.m, gc.Options{Apply: true, Now: h.late}); err != nil || len(r.Kept) > 0 {
						t.Fatalf("%s: the next one: %v, %+v", when, err, r)
					}
					h.intact(t, when+", after the next one")
					got := h.left(t)
					if n < 0 {
						want = got
					}
					if got != want {
						t.Fatalf("%s: left is\n%s\nwant\n%s", when, got, want)
					}
					if n >= 0 && !fsys.Fired() {
						t.Logf("%d operations", n)
						return
					}
				}
			})
		}
	}
}
