package diskkv

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func TestEveryFaultWhileTheFileIsMadeLeavesAWholeFileOrNone(t *testing.T) {
	ctx, data := context.Background(), numberOf(1)
	ref := blobref.Of(data)
	for name, fault := range map[string]func(*faultfs.FS, int){
		"a failure":   func(f *faultfs.FS, n int) { f.FailAt(n, errors.New("input/output error")) },
		"a full disk": (*faultfs.FS).FullAt,
		"a crash":     (*faultfs.FS).CrashAt,
	} {
		for n := 1; ; n++ {
			if n > 100 {
				t.Fatalf("%s never came to an end", name)
			}
			path := filepath.Join(t.TempDir(), "dir", "state.vscdb")
			// A log that somebody left is in the way.
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+walSuffix, []byte("left"), 0o600); err != nil {
				t.Fatal(err)
			}
			fsys := faultfs.New(durable.OS)
			fault(fsys, n)
			s, damage, err := Open(ctx, path, Options{Sync: true, FS: fsys})
			if damage != nil {
				t.Fatal(damage)
			}
			stored := false
			if err == nil {
				stored = s.Set(ctx, ref, data) == nil
				_ = s.Close()
			}
			after, damage, err := Open(ctx, path, Options{})
			if err != nil || damage != nil {
				t.Fatalf("%s at operation %d: %v, %v", name, n, err, damage)
			}
			got, err := after.Get(ctx, ref)
			switch {
			case stored && (err != nil || !bytes.Equal(got, data)):
				t.Errorf("%s at operation %d: what was acknowledged is gone: %v", name, n, err)
			case err != nil && !errors.Is(err, blobstore.ErrNotFound):
				t.Errorf("%s at operation %d: %v", name, n, err)
			}
			if err := errors.Join(after.Set(ctx, ref, data), after.Close()); err != nil {
				t.Errorf("%s at operation %d: afterwards: %v", name, n, err)
			}
			if !fsys.Fired() {
				break
			}
		}
	}
}

func TestAFullDiskLosesNothingThatWasAcknowledged(t *testing.T) {
	ctx, s := t.Context(), openFile(t, Options{})
	w, _ := theWriter(t, s)
	limit := func(pages string) {
		t.Helper()
		if err := w.conn.query(ctx, func([]driver.Value) error { return nil }, "PRAGMA max_page_count = "+pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("100")
	var stored [][]byte
	for i := 0; ; i++ {
		data := bytes.Repeat(numberOf(i), 1000)
		err := s.Set(ctx, blobref.Of(data), data)
		if err != nil {
			if _, err := s.Get(ctx, blobref.Of(data)); !errors.Is(err, blobstore.ErrNotFound) {
				t.Errorf("a blob that was not stored is there: %v", err)
			}
			break
		}
		if stored = append(stored, data); i > 1000 {
			t.Fatal("the disk is not full")
		}
	}
	limit("1000000")
	more := bytes.Repeat([]byte("more"), 100_000)
	if err := s.Set(ctx, blobref.Of(more), more); err != nil {
		t.Fatal(err)
	}
	for _, data := range append(stored, more) {
		if got, err := s.Get(ctx, blobref.Of(data)); err != nil || !bytes.Equal(got, data) {
			t.Error(err)
		}
	}
}
