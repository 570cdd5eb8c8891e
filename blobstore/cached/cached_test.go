package cached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// below is the store under a cache: it counts its Gets, and what a test hangs in
// is called around the real operation.
type below struct {
	*memory.Store
	gets atomic.Int64

	get func(ctx context.Context, get func() ([]byte, error)) ([]byte, error)
	set func(set func() error) error
}

func (b *below) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	b.gets.Add(1)
	if b.get == nil {
		return b.Store.Get(ctx, ref)
	}
	return b.get(ctx, func() ([]byte, error) { return b.Store.Get(ctx, ref) })
}

func (b *below) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if b.set == nil {
		return b.Store.Set(ctx, ref, data)
	}
	return b.set(func() error { return b.Store.Set(ctx, ref, data) })
}

func (b *below) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	return ref, b.Set(ctx, ref, data)
}

// put stores data in the store below, past the cache.
func (b *below) put(t *testing.T, data []byte) blobref.Ref {
	t.Helper()
	ref, err := b.Store.PutBytes(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func want(t *testing.T, s blobstore.Store, ref blobref.Ref, data []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), ref)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("Get = %q, %v; want %q", got, err, data)
	}
}

func wantAbsent(t *testing.T, s blobstore.Store, ref blobref.Ref) {
	t.Helper()
	if got, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatalf("Get = %q, %v; want ErrNotFound", got, err)
	}
}

func (b *below) wantGets(t *testing.T, n int64) {
	t.Helper()
	if got := b.gets.Load(); got != n {
		t.Fatalf("the store below was asked %d times, want %d", got, n)
	}
}

func TestABlobIsFetchedOnceAndOneThatWasSetNotAtAll(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		b := &below{Store: memory.New(mode)}
		c := cached.New(b, cached.Options{})
		there := b.put(t, []byte("there before"))
		for range 3 {
			want(t, c, there, []byte("there before"))
		}
		b.wantGets(t, 1)
		for i, store := range []func(data []byte) (blobref.Ref, error){
			func(data []byte) (blobref.Ref, error) {
				return blobref.Of(data), c.Set(t.Context(), blobref.Of(data), data)
			},
			func(data []byte) (blobref.Ref, error) {
				return blobref.Of(data), c.SetLocal(t.Context(), blobref.Of(data), data)
			},
			func(data []byte) (blobref.Ref, error) { return c.PutBytes(t.Context(), data) },
		} {
			data := fmt.Appendf(nil, "stored in way %d", i)
			ref, err := store(data)
			if err != nil {
				t.Fatal(err)
			}
			want(t, c, ref, data)
		}
		b.wantGets(t, 1)
	}
}

func TestConcurrentMissesOfOneBlobFetchItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, maxBytes := range []int64{0, -1} { // kept, and not
			gate := make(chan struct{})
			b := &below{Store: memory.New(blobstore.Verified)}
			b.get = func(_ context.Context, get func() ([]byte, error)) ([]byte, error) {
				<-gate
				return get()
			}
			c := cached.New(b, cached.Options{MaxBytes: maxBytes})
			ref := b.put(t, []byte("wanted"))
			var got [20][]byte
			var waiters sync.WaitGroup
			for i := range got {
				waiters.Go(func() { got[i], _ = c.Get(t.Context(), ref) })
			}
			synctest.Wait()
			b.wantGets(t, 1)
			close(gate)
			waiters.Wait()
			for i, data := range got {
				if !bytes.Equal(data, []byte("wanted")) {
					t.Errorf("waiter %d got %q", i, data)
				}
				clear(data) // each has bytes of its own
			}
			want(t, c, ref, []byte("wanted"))
		}
	})
}

func TestAnErrorOfAFetchIsForAllWhoWaitAndForNobodyAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, boom := make(chan struct{}), errors.New("the line is dead")
		b := &below{Store: memory.New(blobstore.Verified)}
		b.get = func(context.Context, func() ([]byte, error)) ([]byte, error) {
			<-gate
			return []byte("half"), boom
		}
		c := cached.New(b, cached.Options{AbsentFor: time.Hour})
		ref := b.put(t, []byte("wanted"))
		got := make(chan error)
		for range 3 {
			go func() {
				data, err := c.Get(t.Context(), ref)
				if data != nil {
					err = fmt.Errorf("%d bytes beside %w", len(data), errors.ErrUnsupported)
				}
				got <- err
			}()
		}
		synctest.Wait()
		close(gate)
		for range 3 {
			if err := <-got; !errors.Is(err, boom) {
				t.Errorf("Get = %v, want %v", err, boom)
			}
		}
		b.wantGets(t, 1)
		b.get = nil
		want(t, c, ref, []byte("wanted"))
	})
}

func TestAWaiterWhoseContextEndsLeavesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var ended error
		b := &below{Store: memory.New(blobstore.Verified)}
		b.get = func(ctx context.Context, get func() ([]byte, error)) ([]byte, error) {
			select {
			case <-gate:
			case <-ctx.Done():
				ended = ctx.Err()
			}
			return get()
		}
		c := cached.New(b, cached.Options{})
		ref := b.put(t, []byte("wanted"))
		type result struct {
			data []byte
			err  error
		}
		ask := func(ctx context.Context) chan result {
			r := make(chan result, 1)
			go func() {
				data, err := c.Get(ctx, ref)
				r <- result{data, err}
			}()
			synctest.Wait()
			return r
		}
		// The first one began the fetch. It goes, by a deadline; the other stays.
		first, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		a := ask(first)
		other := ask(t.Context())
		if r := <-a; !errors.Is(r.err, context.DeadlineExceeded) || r.data != nil {
			t.Fatalf("the first Get = %q, %v; want its own deadline", r.data, r.err)
		}
		synctest.Wait()
		if ended != nil {
			t.Fatalf("the fetch ended with its first caller: %v", ended)
		}
		close(gate)
		if r := <-other; r.err != nil || string(r.data) != "wanted" {
			t.Fatalf("the other Get = %q, %v", r.data, r.err)
		}
		b.wantGets(t, 1)

		// When nobody waits any more, the fetch ends, and the next Get begins one of
		// its own.
		gate = make(chan struct{})
		if err := c.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		b.put(t, []byte("wanted"))
		alone, cancel := context.WithCancel(t.Context())
		a = ask(alone)
		cancel()
		if r := <-a; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("Get = %q, %v; want context.Canceled", r.data, r.err)
		}
		synctest.Wait()
		if !errors.Is(ended, context.Canceled) {
			t.Fatalf("the fetch that nobody waits for goes on (%v)", ended)
		}
		close(gate)
		want(t, c, ref, []byte("wanted"))
		b.wantGets(t, 3)
	})
}

func TestAnAbsenceIsRememberedOnlyWhenTold(t *testing.T) {
	ref := blobref.Of([]byte("absent"))
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{})
	wantAbsent(t, c, ref)
	wantAbsent(t, c, ref)
	b.wantGets(t, 2)
	b.put(t, []byte("absent"))
	want(t, c, ref, []byte("absent"))

	synctest.Test(t, func(t *testing.T) {
		b := &below{Store: memory.New(blobstore.Verified)}
		c := cached.New(b, cached.Options{AbsentFor: time.Minute})
		wantAbsent(t, c, ref)
		b.put(t, []byte("absent")) // by somebody else
		wantAbsent(t, c, ref)
		if _, err := c.Open(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Open = %v, want ErrNotFound as Get has it", err)
		}
		b.wantGets(t, 1)
		time.Sleep(time.Minute)
		want(t, c, ref, []byte("absent"))
		b.wantGets(t, 2)
	})
}

func TestAnAbsenceIsForgottenWhenTheBlobIsStored(t *testing.T) {
	data := []byte("absent")
	ref := blobref.Of(data)
	lost := errors.New("the acknowledgement is lost")
	for name, store := range map[string]func(*cached.Store, *below) error{
		"Set":      func(c *cached.Store, _ *below) error { return c.Set(t.Context(), ref, data) },
		"SetLocal": func(c *cached.Store, _ *below) error { return c.SetLocal(t.Context(), ref, data) },
		"PutBytes": func(c *cached.Store, _ *below) error { _, err := c.PutBytes(t.Context(), data); return err },
		"Put": func(c *cached.Store, _ *below) error {
			_, _, err := c.Put(t.Context(), bytes.NewReader(data))
			return err
		},
		"Set that stores and fails": func(c *cached.Store, b *below) error {
			b.set = func(set func() error) error { return errors.Join(set(), lost) }
			if err := c.Set(t.Context(), ref, data); !errors.Is(err, lost) {
				return fmt.Errorf("Set = %w, want %w", err, lost)
			}
			return nil
		},
	} {
		for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
			b := &below{Store: memory.New(mode)}
			c := cached.New(b, cached.Options{AbsentFor: time.Hour})
			wantAbsent(t, c, ref)
			if err := store(c, b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			want(t, c, ref, data)
		}
	}
}
