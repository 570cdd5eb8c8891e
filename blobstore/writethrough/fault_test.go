package writethrough_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// TestAfterAnyFaultOfTheQueuesDiskWhatWasAcknowledgedArrives lets each operation on the
// queue's disk fail in turn. The process goes on on a disk that works again, or is
// followed by another; either way all that was acknowledged arrives.
func TestAfterAnyFaultOfTheQueuesDiskWhatWasAcknowledgedArrives(t *testing.T) {
	for name, arm := range map[string]func(*faultfs.FS, int){
		"EIO":         func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				hit := false
				bubble(t, func(t *testing.T) {
					fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
					arm(fsys, n)
					hit = diskFaultRound(t, fsys, name == "a crash")
				})
				if !hit || t.Failed() {
					if n == 0 {
						t.Error("no fault was ever hit")
					}
					return
				}
			}
		})
	}
}

func diskFaultRound(t *testing.T, fsys *faultfs.FS, crash bool) (hit bool) {
	local, arrived := memory.New(blobstore.Verified), memory.New(blobstore.Verified)
	dir := filepath.Join(t.TempDir(), "queue")
	acked := make(map[int]bool)
	s, err := writethrough.New(local, arrived, dir, writethrough.Options{FS: fsys, Sync: true})
	if err == nil {
		for i := range 8 {
			acked[i] = s.Set(t.Context(), numberedRef(i), numbered(i)) == nil
		}
		hit = fsys.Fired()
		if !crash {
			fsys.FailAt(-1, nil) // the disk works again
			flush(t, s)
			for i, yes := range acked {
				if yes && !has(t, arrived, i) {
					t.Errorf("Flush ended well, and blob %d has not arrived, after %q", i, fsys.Ops())
				}
			}
		}
		hit = hit || fsys.Fired()
		_ = s.Close() // with a disk that is gone it may fail
	}
	hit = hit || fsys.Fired()
	next := open(t, local, arrived, dir, writethrough.Options{})
	flush(t, next)
	for i, yes := range acked {
		if yes && !has(t, arrived, i) {
			t.Errorf("blob %d was acknowledged and never arrived, after %q", i, fsys.Ops())
		}
	}
	return hit
}
