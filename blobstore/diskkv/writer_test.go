package diskkv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

func openFile(t *testing.T, opts Options) *Store {
	t.Helper()
	s, damage, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.vscdb"), opts)
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.create(); err != nil {
		t.Fatal(err)
	}
	return s
}

// numberOf has something to call a value by.
func numberOf(i int) []byte { return fmt.Appendf(nil, "blob %d", i) }

// queued waits until n jobs are in the queue of the store.
func queued(t *testing.T, w *writer, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		got := len(w.queue)
		w.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs are queued, want %d", got, n)
		}
	}
}

// theWriter returns the writer of a store, and how often it has committed.
func theWriter(t *testing.T, s *Store) (*writer, *int) {
	t.Helper()
	src, err := s.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.mu.RUnlock()
	commits, check := new(int), src.writer.check
	src.writer.check = func() error { *commits++; return check() }
	return src.writer, commits
}

func TestWritesThatMeetAreOneTransaction(t *testing.T) {
	s := openFile(t, Options{})
	w, commits := theWriter(t, s)
	w.turn <- struct{}{} // somebody writes
	const n = 100
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = s.Set(context.Background(), blobref.Of(numberOf(i)), numberOf(i)) })
	}
	queued(t, w, n)
	<-w.turn
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if *commits != 1 {
		t.Errorf("%d writes were %d transactions, want 1", n, *commits)
	}
	for i := range n {
		if _, err := s.Get(t.Context(), blobref.Of(numberOf(i))); err != nil {
			t.Error(err)
		}
	}
}

func TestAWriteThatFailsFailsAlone(t *testing.T) {
	s := openFile(t, Options{})
	w, _ := theWriter(t, s)
	w.turn <- struct{}{}
	bad := errors.New("this one cannot be written")
	var all sync.WaitGroup
	errs := make([]error, 9)
	for i := range errs {
		all.Go(func() {
			errs[i] = s.write(context.Background(), 1, func(c *conn) error {
				if err := s.put(c, blobref.Of(numberOf(i)), numberOf(i)); err != nil {
					return err
				}
				if i == 4 {
					return bad
				}
				return nil
			})
		})
	}
	queued(t, w, len(errs))
	<-w.turn
	all.Wait()
	for i, err := range errs {
		_, getErr := s.Get(t.Context(), blobref.Of(numberOf(i)))
		if i == 4 {
			if !errors.Is(err, bad) || !errors.Is(getErr, blobstore.ErrNotFound) {
				t.Errorf("the bad write = %v; Get = %v", err, getErr)
			}
			continue
		}
		if err != nil || getErr != nil {
			t.Errorf("write %d = %v; Get = %v", i, err, getErr)
		}
	}
}

func TestAWriteWhoseContextEndsWhileItWaitsIsNotMade(t *testing.T) {
	s := openFile(t, Options{})
	w, _ := theWriter(t, s)
	w.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- s.Set(ctx, blobref.Of(numberOf(1)), numberOf(1)) }()
	queued(t, w, 1)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Set = %v", err)
	}
	<-w.turn
	if err := s.Set(t.Context(), blobref.Of(numberOf(2)), numberOf(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), blobref.Of(numberOf(1))); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of what was withdrawn = %v", err)
	}
}

// lockFile begins a transaction of another connection, which holds up all others.
func lockFile(t *testing.T, s *Store) (unlock func()) {
	t.Helper()
	c, err := connect(t.Context(), dsn(s.path, "mode=rw"))
	if err == nil {
		_, err = c.exec(t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestALockedFileIsBusyWhenTheTimeIsUp(t *testing.T) {
	s := openFile(t, Options{BusyTimeout: time.Millisecond})
	unlock := lockFile(t, s)
	defer unlock()
	ref := blobref.Of(numberOf(1))
	if err := s.Set(t.Context(), ref, numberOf(1)); !errors.Is(err, ErrBusy) || !errors.Is(err, blobstore.ErrUnavailable) {
		t.Errorf("Set = %v, want ErrBusy", err)
	}
	if _, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get = %v; readers wait for nobody", err)
	}
	unlock()
	if err := s.Set(t.Context(), ref, numberOf(1)); err != nil {
		t.Error(err)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	s := openFile(t, Options{BusyTimeout: time.Hour})
	unlock := lockFile(t, s)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- s.Set(ctx, blobref.Of(numberOf(1)), numberOf(1)) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Set = %v, want context.Canceled", err)
	}
}

func TestFlushCommitsOnceToTheDisk(t *testing.T) {
	s := openFile(t, Options{})
	w, commits := theWriter(t, s)
	for range 3 { // the second and third have nothing to do
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if *commits != 0 {
		t.Errorf("flushing nothing took %d transactions", *commits)
	}
	if err := s.Set(t.Context(), blobref.Of(numberOf(1)), numberOf(1)); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(s.path + walSuffix)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for range 3 {
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if *commits != 2 || size() <= before {
		t.Errorf("after a write, Flush made %d transactions, and the log grew by %d bytes", *commits-1, size()-before)
	}
	if level, err := w.conn.exec(t.Context(), "PRAGMA synchronous"); err != nil {
		t.Error(level, err)
	}
}

func TestWhatIsThereAlreadyIsSyncedToo(t *testing.T) {
	s := openFile(t, Options{Sync: true})
	ref := blobref.Of(numberOf(1))
	set := func() int64 {
		t.Helper()
		if err := s.Set(t.Context(), ref, numberOf(1)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(s.path + walSuffix)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if first, second := set(), set(); second <= first {
		t.Errorf("the log has %d bytes after the second Set, and had %d: nothing was committed that a sync goes with", second, first)
	}
}

// damageFile overwrites the root of the schema, behind the back of everybody.
func damageFile(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 4), headerSize)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStoreWhoseFileWasMovedAsideGoesOnInTheNewOne(t *testing.T) {
	ctx := t.Context()
	s := openFile(t, Options{})
	before := blobref.Of(numberOf(1))
	if err := s.Set(ctx, before, numberOf(1)); err != nil {
		t.Fatal(err)
	}
	// The last connection brings the log into the file.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _, err := Open(ctx, s.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	damageFile(t, s.path)
	other, damage, err := Open(ctx, s.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if damage == nil || damage.File != s.path || !errors.Is(damage, blobstore.ErrCorrupt) {
		t.Fatalf("the damage is %+v", damage)
	}
	if _, err := os.Stat(damage.Moved); err != nil {
		t.Error(err)
	}
	for i, x := range []*Store{s, other, s} {
		ref := blobref.Of(numberOf(i + 2))
		if err := x.Set(ctx, ref, numberOf(i+2)); err != nil {
			t.Fatal(err)
		}
		for _, y := range []*Store{s, other} {
			if i == 1 && y == s {
				continue // it learns of the new file when it writes
			}
			if _, err := y.Get(ctx, ref); err != nil {
				t.Errorf("write %d was acknowledged and is not in the file: %v", i, err)
			}
		}
	}
}

func TestALogWithoutItsFileIsNotTakenForThatOfANewOne(t *testing.T) {
	s := openFile(t, Options{})
	ref := blobref.Of(numberOf(1))
	if err := s.Set(t.Context(), ref, numberOf(1)); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(s.path + walSuffix)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.vscdb")
	if err := os.WriteFile(path+walSuffix, log, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh, damage, err := Open(t.Context(), path, Options{})
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
	defer fresh.Close()
	if err := fresh.Set(t.Context(), blobref.Of(numberOf(2)), numberOf(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of a blob of another file = %v", err)
	}
	kept, err := filepath.Glob(path + ".damaged-*" + walSuffix)
	if err != nil || len(kept) != 1 {
		t.Errorf("the log was not kept: %v, %v", kept, err)
	}
}
