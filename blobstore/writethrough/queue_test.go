package writethrough_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

func numbered(i int) []byte { return fmt.Appendf(nil, "blob %d", i) }

func numberedRef(i int) blobref.Ref { return blobref.Of(numbered(i)) }

func set(t *testing.T, s blobstore.Store, i int) {
	t.Helper()
	if err := s.Set(t.Context(), numberedRef(i), numbered(i)); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, s blobstore.Store) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

// has reports whether a store has blob i.
func has(t *testing.T, s blobstore.Store, i int) bool {
	t.Helper()
	got, err := s.Get(t.Context(), numberedRef(i))
	if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatal(err)
	}
	if err == nil && !bytes.Equal(got, numbered(i)) {
		t.Fatalf("blob %d is %q", i, got)
	}
	return err == nil
}

// sets counts how often each blob was sent since the last Plan.
func sets(remote *faultstore.Store) map[blobref.Ref]int {
	count := make(map[blobref.Ref]int)
	for _, c := range remote.Calls() {
		if c.Op == faultstore.Set {
			count[c.Ref]++
		}
	}
	return count
}

func newRemote() (*memory.Store, *faultstore.Store) {
	m := memory.New(blobstore.Verified)
	return m, faultstore.New(m)
}

var offline = faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected})

// bubble runs a test in a bubble in which time passes at once.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func TestWhatWasStoredInDaysOfflineArrivesOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		remote.Plan(offline)
		local, dir := memory.New(blobstore.Verified), t.TempDir()
		s := open(t, local, remote, dir, writethrough.Options{})
		const blobs = 200
		for i := range blobs {
			set(t, s, i)
			if i%50 == 0 {
				time.Sleep(12 * time.Hour)
			}
		}
		if attempts := len(remote.Calls()); attempts > 20_000 {
			t.Errorf("%d attempts in two days without a network", attempts)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, local, remote, dir, writethrough.Options{})
		time.Sleep(24 * time.Hour)
		remote.Plan(nil)
		flush(t, s)
		for i := range blobs {
			if !has(t, arrived, i) {
				t.Errorf("blob %d has not arrived", i)
			}
		}
		for ref, n := range sets(remote) {
			if n != 1 {
				t.Errorf("%v was sent %d times", ref, n)
			}
		}
		if s.Queued() != 0 {
			t.Errorf("%d are still queued", s.Queued())
		}
	})
}

func TestABlobWhoseAcknowledgementWasLostIsAskedForAndNotSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		remote.Plan(faultstore.First(5, faultstore.Fault{After: faultstore.ErrInjected}, faultstore.Set))
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{})
		for i := range 20 {
			set(t, s, i)
		}
		flush(t, s)
		for i := range 20 {
			if n := sets(remote)[numberedRef(i)]; n != 1 || !has(t, arrived, i) {
				t.Errorf("blob %d was sent %d times", i, n)
			}
		}
	})
}

func TestARemoteThatAcknowledgesLateIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, remote := newRemote()
		remote.Plan(faultstore.Always(faultstore.Fault{Delay: time.Hour}, faultstore.Set))
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{Workers: 3})
		began := time.Now()
		for i := range 6 {
			set(t, s, i)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("storing waited for the remote: %v", took)
		}
		flush(t, s)
		if took := time.Since(began); took < 2*time.Hour || took > 3*time.Hour {
			t.Errorf("6 blobs, 3 at once, took %v, want two hours", took)
		}
		for ref, n := range sets(remote) {
			if n != 1 {
				t.Errorf("%v was sent %d times", ref, n)
			}
		}
	})
}

func TestAtItsLimitSetWaitsAndThenSaysThatTheQueueIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		hold := make(chan struct{})
		remote.Plan(faultstore.Always(faultstore.Fault{Hold: hold}, faultstore.Set))
		local := memory.New(blobstore.Verified)
		s := open(t, local, remote, t.TempDir(), writethrough.Options{MaxQueued: 5})
		for i := range 5 {
			set(t, s, i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := s.Set(ctx, numberedRef(5), numbered(5))
		if !errors.Is(err, blobstore.ErrQueueFull) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("Set = %v after %v, want ErrQueueFull after a minute", err, time.Since(began))
		}
		if !has(t, local, 5) {
			t.Error("the local copy is gone")
		}
		// One that has no limit of its own waits for room.
		done := make(chan error)
		go func() { done <- s.Set(t.Context(), numberedRef(6), numbered(6)) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Set did not wait: %v", err)
		default:
		}
		close(hold)
		if err := <-done; err != nil {
			t.Errorf("Set that waited = %v", err)
		}
		flush(t, s)
		for i := range 7 {
			if !has(t, arrived, i) {
				t.Errorf("blob %d has not arrived", i)
			}
		}
	})
}

func TestAFlushThatCannotEndSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, remote := newRemote()
		remote.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}, faultstore.Set))
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{})
		set(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.Flush(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "injected fault") || !strings.Contains(err.Error(), "1 blobs") {
			t.Errorf("Flush = %v", err)
		}
	})
}

func TestFlushReportsWhatTheRemoteDoesNotFlush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, remote := newRemote()
		remote.Plan(faultstore.First(1, faultstore.Fault{Before: faultstore.ErrInjected}, faultstore.Flush))
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{})
		set(t, s, 1)
		if err := s.Flush(t.Context()); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("Flush = %v", err)
		}
		flush(t, s)
	})
}

func TestABlobThatTheRemoteRefusesIsReportedByEveryFlushAndHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		refused := numberedRef(1)
		remote.Plan(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Set && c.Ref == refused {
				return faultstore.Fault{Before: blobstore.ErrTooLarge}
			}
			return faultstore.Fault{}
		})
		local, dir := memory.New(blobstore.Verified), t.TempDir()
		s := open(t, local, remote, dir, writethrough.Options{})
		wantRefused := func() {
			t.Helper()
			err := s.Flush(t.Context())
			var undelivered *writethrough.UndeliveredError
			if !errors.As(err, &undelivered) || len(undelivered.Refs) != 1 || undelivered.Refs[0] != refused || !errors.Is(err, blobstore.ErrTooLarge) {
				t.Errorf("Flush = %v", err)
			}
		}
		for i := range 3 {
			set(t, s, i)
		}
		wantRefused()
		wantRefused()
		if !has(t, arrived, 0) || !has(t, arrived, 2) {
			t.Error("others have not arrived")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, local, remote, dir, writethrough.Options{})
		wantRefused()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		remote.Plan(nil)
		s = open(t, local, remote, dir, writethrough.Options{})
		time.Sleep(time.Minute) // nobody flushes
		if !has(t, arrived, 1) || s.Queued() != 0 {
			t.Error("the next process did not try again")
		}
	})
}

func TestBlobsThatCannotGoTakeNoRoomFromOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, remote := newRemote()
		remote.Plan(faultstore.Always(faultstore.Fault{Before: blobstore.ErrTooLarge}, faultstore.Set))
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{MaxQueued: 2})
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := s.Set(ctx, numberedRef(i), numbered(i)); err != nil {
				t.Fatalf("Set = %v", err)
			}
			cancel()
		}
		time.Sleep(time.Minute)
		if s.Queued() != 20 {
			t.Errorf("%d are queued, want all", s.Queued())
		}
	})
}

// damage overwrites the file of blob i.
func damage(t *testing.T, dir string, i int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, numberedRef(i).Hex()), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedLocalCopyThatHasNotArrivedIsReportedUntilItIsStoredAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		hold := make(chan struct{})
		remote.Plan(faultstore.Always(faultstore.Fault{Hold: hold}, faultstore.Set))
		dir := filepath.Join(t.TempDir(), "local")
		s := open(t, openDir(t, dir, blobstore.Verified), remote, t.TempDir(), writethrough.Options{Workers: 1})
		set(t, s, 0)
		synctest.Wait() // it is held up on its way
		set(t, s, 1)
		damage(t, dir, 1)
		close(hold)
		for range 2 {
			err := s.Flush(t.Context())
			if undelivered := new(writethrough.UndeliveredError); !errors.As(err, &undelivered) || !errors.Is(err, blobstore.ErrCorrupt) && !errors.Is(err, blobstore.ErrNotFound) {
				t.Errorf("Flush = %v", err)
			}
		}
		set(t, s, 1)
		flush(t, s)
		if !has(t, arrived, 0) || !has(t, arrived, 1) {
			t.Error("a blob has not arrived")
		}
	})
}

func TestADamagedLocalCopyIsHealedFromTheRemote(t *testing.T) {
	arrived, remote := newRemote()
	base := t.TempDir()
	dir := filepath.Join(base, "local")
	local := openDir(t, dir, blobstore.Verified)
	s := open(t, local, remote, filepath.Join(base, "queue"), writethrough.Options{})
	set(t, s, 1)
	flush(t, s)
	damage(t, dir, 1)
	if !has(t, s, 1) || !has(t, local, 1) {
		t.Error("it was not healed by reading it")
	}
	// One that is to be sent is healed, too: the remote got it by another way.
	damage(t, dir, 1)
	if err := os.WriteFile(filepath.Join(dir, numberedRef(2).Hex()), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := arrived.Set(t.Context(), numberedRef(2), numbered(2)); err != nil {
		t.Fatal(err)
	}
	for i, put := range []func() (int, error){func() (int, error) { return s.Reconcile(t.Context()) }} {
		if n, err := put(); err != nil {
			t.Fatal(i, n, err)
		}
	}
	flush(t, s)
	if !has(t, local, 1) || !has(t, local, 2) {
		t.Error("what was to be sent was not healed")
	}
}

func TestSetLocalStaysHereUntilItIsSet(t *testing.T) {
	arrived, remote := newRemote()
	local, dir := memory.New(blobstore.Verified), t.TempDir()
	s := open(t, local, remote, dir, writethrough.Options{})
	if err := s.SetLocal(t.Context(), numberedRef(1), numbered(1)); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, local, remote, dir, writethrough.Options{})
	flush(t, s)
	if has(t, arrived, 1) || !has(t, s, 1) {
		t.Error("it is at the remote, or not here")
	}
	set(t, s, 1)
	flush(t, s)
	if !has(t, arrived, 1) {
		t.Error("it was Set, and has not arrived")
	}
}

func TestADamagedQueueIsToldUntilTheStoresWereCompared(t *testing.T) {
	arrived, remote := newRemote()
	remote.Plan(offline)
	local, dir := memory.New(blobstore.Verified), t.TempDir()
	s := open(t, local, remote, dir, writethrough.Options{})
	for i := range 10 {
		set(t, s, i)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	queue := filepath.Join(dir, "queue")
	data, err := os.ReadFile(queue)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[88*3 : 88*4])
	if err := os.WriteFile(queue, data, 0o600); err != nil {
		t.Fatal(err)
	}
	remote.Plan(nil)
	for range 2 { // also by the next process
		s = open(t, local, remote, dir, writethrough.Options{})
		if err := s.Flush(t.Context()); !errors.Is(err, writethrough.ErrQueueDamaged) {
			t.Errorf("Flush = %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, local, remote, dir, writethrough.Options{})
	if n, err := s.Reconcile(t.Context()); err != nil || n != 1 {
		t.Errorf("Reconcile = %d, %v; want the one blob", n, err)
	}
	flush(t, s)
	for i := range 10 {
		if !has(t, arrived, i) {
			t.Errorf("blob %d has not arrived", i)
		}
	}
}

func TestStoresOnOneQueueSendForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		local, dir := memory.New(blobstore.Verified), t.TempDir()
		first := open(t, local, remote, dir, writethrough.Options{})
		synctest.Wait() // it sends
		second := open(t, local, remote, dir, writethrough.Options{})
		for i := range 20 {
			set(t, []*writethrough.Store{first, second}[i%2], i)
		}
		flush(t, second)
		for i := range 20 {
			if !has(t, arrived, i) {
				t.Errorf("blob %d has not arrived", i)
			}
		}
		// One that cannot go is told by both.
		remote.Plan(faultstore.Always(faultstore.Fault{Before: blobstore.ErrTooLarge}, faultstore.Set))
		set(t, second, 30)
		for _, s := range []*writethrough.Store{first, second} {
			if err := s.Flush(t.Context()); !errors.Is(err, blobstore.ErrTooLarge) {
				t.Errorf("Flush = %v", err)
			}
		}
		remote.Plan(nil)
		flush(t, second)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			set(t, second, 100+i)
		}
		flush(t, second) // which sends now
		for i := range 10 {
			if !has(t, arrived, 100+i) {
				t.Errorf("blob %d has not arrived", 100+i)
			}
		}
		for ref, n := range sets(remote) {
			if n != 1 {
				t.Errorf("%v was sent %d times", ref, n)
			}
		}
	})
}

// A store that does not send learns from the log alone what others did with a blob: its
// view may be as old as its last look.
func TestWhatAnotherProcessSentAndDeletedIsQueuedWhenItIsStoredAgain(t *testing.T) {
	arrived, remote := newRemote()
	local, dir := memory.New(blobstore.Verified), t.TempDir()
	sender := open(t, local, remote, dir, writethrough.Options{})
	set(t, sender, 0) // whose arrival shows which of the two sends
	flush(t, sender)
	s := open(t, local, remote, dir, writethrough.Options{})
	for i := 1; i <= 20; i++ {
		set(t, s, i)
		flush(t, sender)
		if err := sender.Delete(t.Context(), numberedRef(i)); err != nil {
			t.Fatal(err)
		}
		set(t, s, i)
		flush(t, s)
		if !has(t, arrived, i) {
			t.Fatalf("blob %d was stored and flushed, and is not at the remote; %d are queued", i, s.Queued())
		}
	}
}

func TestACloseDoesNotWaitForTheRemote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		remote.Plan(faultstore.Always(faultstore.Fault{Hold: make(chan struct{})}))
		local, dir := memory.New(blobstore.Verified), t.TempDir()
		s := open(t, local, remote, dir, writethrough.Options{})
		set(t, s, 1)
		got, flushed := make(chan error), make(chan error)
		go func() { _, err := s.Get(t.Context(), numberedRef(9)); got <- err }()
		go func() { flushed <- s.Flush(t.Context()) }()
		synctest.Wait()
		remote.Plan(nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err == nil {
			t.Error("a Get that waited for the remote found something")
		}
		if err := <-flushed; err == nil {
			t.Error("a Flush that was cut off says that all arrived")
		}
		if err := s.Set(t.Context(), numberedRef(2), numbered(2)); err == nil {
			t.Error("a Set after Close was acknowledged")
		}
		s = open(t, local, remote, dir, writethrough.Options{})
		flush(t, s)
		if !has(t, arrived, 1) {
			t.Error("what was cut off has not arrived")
		}
	})
}

func TestModesMustAgree(t *testing.T) {
	_, err := writethrough.New(memory.New(blobstore.Verified), memory.New(blobstore.Opaque), t.TempDir(), writethrough.Options{})
	if !errors.Is(err, blobstore.ErrMode) {
		t.Errorf("New = %v", err)
	}
}
