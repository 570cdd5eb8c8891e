package cached_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

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

func TestSetKeepsNothingThatWasNotAcknowledged(t *testing.T) {
	full := errors.New("the disk is full")
	b := &below{Store: memory.New(blobstore.Opaque)}
	c := cached.New(b, cached.Options{})
	ref := blobref.Of([]byte("id"))
	if err := c.Set(t.Context(), ref, []byte("old")); err != nil {
		t.Fatal(err)
	}
	b.set = func(func() error) error { return full }
	if err := c.Set(t.Context(), ref, []byte("new")); !errors.Is(err, full) {
		t.Fatalf("Set = %v, want %v", err, full)
	}
	want(t, c, ref, []byte("old"))
	b.set = func(set func() error) error { return errors.Join(set(), full) }
	if err := c.Set(t.Context(), ref, []byte("newer")); !errors.Is(err, full) {
		t.Fatalf("Set = %v, want %v", err, full)
	}
	want(t, c, ref, []byte("newer"))
}

func TestAFetchThatAWriteOvertookIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := blobref.Of([]byte("old"))
		for _, tt := range []struct {
			name  string
			mode  blobstore.Mode
			write func(*cached.Store) error
			after func(*cached.Store)
		}{
			{
				"Delete", blobstore.Verified,
				func(c *cached.Store) error { return c.Delete(t.Context(), id) },
				func(c *cached.Store) { wantAbsent(t, c, id) },
			},
			{
				"Set", blobstore.Opaque,
				func(c *cached.Store) error { return c.Set(t.Context(), id, []byte("new")) },
				func(c *cached.Store) { want(t, c, id, []byte("new")) },
			},
			{
				"PutBytes", blobstore.Opaque,
				func(c *cached.Store) error { _, err := c.PutBytes(t.Context(), []byte("old")); return err },
				func(c *cached.Store) { want(t, c, id, []byte("old")) },
			},
			{
				"Put", blobstore.Opaque,
				func(c *cached.Store) error {
					_, _, err := c.Put(t.Context(), bytes.NewReader([]byte("old")))
					return err
				},
				func(c *cached.Store) { want(t, c, id, []byte("old")) },
			},
			{
				"SetStream", blobstore.Opaque,
				func(c *cached.Store) error {
					return c.SetStream(t.Context(), id, bytes.NewReader([]byte("new")), 3)
				},
				func(c *cached.Store) { want(t, c, id, []byte("new")) },
			},
			{
				"Put that fails", blobstore.Opaque,
				func(c *cached.Store) error {
					if _, _, err := c.Put(t.Context(), io.MultiReader(bytes.NewReader([]byte("old")), failing{})); err == nil {
						return errors.New("it did not fail")
					}
					return nil
				},
				func(c *cached.Store) { want(t, c, id, []byte("first")) },
			},
		} {
			gate := make(chan struct{})
			b := &below{Store: memory.New(tt.mode)}
			first := []byte("old")
			if tt.mode == blobstore.Opaque {
				first = []byte("first")
			}
			if err := b.Store.Set(t.Context(), id, first); err != nil {
				t.Fatal(err)
			}
			b.get = func(_ context.Context, get func() ([]byte, error)) ([]byte, error) {
				data, err := get()
				<-gate // the bytes are old by then
				return data, err
			}
			c := cached.New(b, cached.Options{})
			early := make(chan []byte, 1)
			go func() {
				data, _ := c.Get(t.Context(), id)
				early <- data
			}()
			synctest.Wait()
			if err := tt.write(c); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			b.get = nil
			tt.after(c) // a Get that begins now does not wait for the old fetch
			close(gate)
			if got := <-early; !bytes.Equal(got, first) {
				t.Errorf("%s: the Get that was under way = %q, want %q", tt.name, got, first)
			}
			synctest.Wait()
			tt.after(c)
		}
	})
}

// failing is a reader that fails at once.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the source is gone") }

func TestOfOverlappingWritesNoneIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &below{Store: memory.New(blobstore.Opaque)}
		c := cached.New(b, cached.Options{})
		id := blobref.Of([]byte("id"))
		// The first Set reaches the store below last and returns first, the second
		// the other way round: what is there is the first.
		applied, gate := make(chan struct{}), make(chan struct{})
		b.set = func(set func() error) error {
			err := set()
			close(applied)
			<-gate
			return err
		}
		second := make(chan error, 1)
		go func() { second <- c.Set(t.Context(), id, []byte("second")) }()
		<-applied
		b.set = nil
		if err := c.Set(t.Context(), id, []byte("first")); err != nil {
			t.Fatal(err)
		}
		want(t, c, id, []byte("first"))
		close(gate)
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		want(t, c, id, []byte("first"))
	})
}

func TestADeletionOfABlobThatIsJustBeingStoredHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := []byte("bytes")
		ref := blobref.Of(data)
		for name, store := range map[string]func(c *cached.Store) error{
			"Set":      func(c *cached.Store) error { return c.Set(t.Context(), ref, data) },
			"PutBytes": func(c *cached.Store) error { _, err := c.PutBytes(t.Context(), data); return err },
		} {
			b := &below{Store: memory.New(blobstore.Verified)}
			c := cached.New(b, cached.Options{})
			applied, gate := make(chan struct{}), make(chan struct{})
			b.set = func(set func() error) error {
				err := set()
				close(applied)
				<-gate // the acknowledgement is late
				return err
			}
			stored := make(chan error, 1)
			go func() { stored <- store(c) }()
			<-applied
			if err := c.Delete(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			close(gate)
			if err := <-stored; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantAbsent(t, c, ref)
		}
	})
}

func TestWrongBytesFromBelowAreCorruptAndNotKept(t *testing.T) {
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{})
	ref := b.put(t, []byte("right"))
	b.get = func(context.Context, func() ([]byte, error)) ([]byte, error) { return []byte("wrong"), nil }
	if got, err := c.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrCorrupt) || got != nil {
		t.Errorf("Get = %q, %v; want ErrCorrupt", got, err)
	}
	b.get = nil
	want(t, c, ref, []byte("right"))
}

// silent is a store without abilities, that does not say its mode either.
type silent struct{ s blobstore.Store }

func (s silent) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) { return s.s.Get(ctx, ref) }
func (s silent) Flush(ctx context.Context) error                          { return s.s.Flush(ctx) }

func (s silent) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.s.Set(ctx, ref, data)
}

func (s silent) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.s.SetLocal(ctx, ref, data)
}

func TestAStoreThatDoesNotSayItsModeIsNotBelieved(t *testing.T) {
	c := cached.New(silent{memory.New(blobstore.Opaque)}, cached.Options{})
	ref := blobref.Of([]byte("right"))
	if err := c.Set(t.Context(), ref, []byte("wrong")); err != nil {
		t.Fatal(err) // the store below takes anything
	}
	if got, err := c.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Errorf("Get = %q, %v; want ErrCorrupt", got, err)
	}
}

func TestWhatTheStoreBelowCannotDoIsUnsupportedHitOrNot(t *testing.T) {
	c := cached.New(silent{memory.New(blobstore.Verified)}, cached.Options{})
	ref, err := c.PutBytes(t.Context(), []byte("bytes"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, c, ref, []byte("bytes"))
	for name, do := range map[string]func() error{
		"Open":     func() error { _, err := c.Open(t.Context(), ref); return err },
		"GetRange": func() error { _, err := c.GetRange(t.Context(), ref, 0, 1); return err },
		"Put":      func() error { _, _, err := c.Put(t.Context(), bytes.NewReader(nil)); return err },
		"Delete":   func() error { return c.Delete(t.Context(), ref) },
		"Stat":     func() error { _, err := blobstore.Stat(t.Context(), c, ref); return err },
		"Walk": func() error {
			for _, err := range blobstore.Walk(t.Context(), c) {
				return err
			}
			return nil
		},
	} {
		if err := do(); !errors.Is(err, blobstore.ErrUnsupported) {
			t.Errorf("%s = %v, want ErrUnsupported", name, err)
		}
	}
}

// coded stands for an encrypting layer without abilities around a store with all
// of them.
type coded struct{ silent }

func (s coded) Unwrap() blobstore.Store { return s.s }
func (coded) Mode() blobstore.Mode      { return blobstore.Verified }

func TestALayerThatChangesBytesIsNotLookedThrough(t *testing.T) {
	c := cached.New(coded{silent{memory.New(blobstore.Opaque)}}, cached.Options{})
	ref := blobref.Of([]byte("plaintext"))
	// Stands for ciphertext under the reference of its plaintext.
	if err := blobstore.Store(coded{silent{c}}).Set(t.Context(), ref, []byte("ciphertext")); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Open(t.Context(), ref); !errors.Is(err, blobstore.ErrUnsupported) {
		t.Errorf("Open = %v, %v; want ErrUnsupported", b, err)
	}
	if part, err := c.GetRange(t.Context(), ref, 0, 100); !errors.Is(err, blobstore.ErrUnsupported) {
		t.Errorf("GetRange = %q, %v; want ErrUnsupported", part, err)
	}
	if _, err := blobstore.Stat(t.Context(), c, ref); err != nil {
		t.Errorf("Stat, which is control, is not found below: %v", err)
	}
}

func TestOpenAndRangesAreServedFromWhatIsKept(t *testing.T) {
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{})
	data := []byte("0123456789")
	ref := b.put(t, data)
	want(t, c, ref, data)
	if err := b.Store.Delete(t.Context(), ref); err != nil { // only the cache has it now
		t.Fatal(err)
	}
	part, err := c.GetRange(t.Context(), ref, 2, 3)
	if err != nil || string(part) != "234" {
		t.Errorf("GetRange = %q, %v", part, err)
	}
	clear(part)
	blob, err := c.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, direct := blob.(io.WriterTo); direct {
		t.Error("the open blob hands out the slice that is kept")
	}
	got, err := io.ReadAll(blob)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("Open read %q, %v", got, err)
	}
	clear(got)
	want(t, c, ref, data)
}

// counter counts what is counted.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (*counter) Began(ctx context.Context, _ blobstore.Op) context.Context { return ctx }

func (o *counter) Ended(_ context.Context, op blobstore.Op, _ time.Duration, _ error) {
	o.add(op.Layer + "." + op.Name)
}

func (o *counter) Counted(_ context.Context, name, label, value string) {
	o.add(name + "{" + label + "=" + value + "}")
}

func (o *counter) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[what]++
}

func TestEachGetIsCountedByWhereItWasServedFrom(t *testing.T) {
	o := &counter{counts: make(map[string]int)}
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{AbsentFor: time.Hour, Observer: o})
	ref, absent := b.put(t, []byte("there")), blobref.Of([]byte("absent"))
	want(t, c, ref, []byte("there"))
	for range 4 {
		want(t, c, ref, []byte("there"))
	}
	wantAbsent(t, c, absent) // found out
	wantAbsent(t, c, absent) // remembered
	_ = c.Set(t.Context(), ref, []byte("there"))
	_ = c.SetLocal(t.Context(), ref, []byte("there"))
	_ = c.Flush(t.Context())
	expected := map[string]int{
		"agent_kv.cached.get_blob.results{cache_type=hit}":    4,
		"agent_kv.cached.get_blob.results{cache_type=miss}":   1,
		"agent_kv.cached.get_blob.results{cache_type=absent}": 2,
		"cached.get_blob":              7,
		"cached.set_blob":              1,
		"cached.set_blob_locally_only": 1,
		"cached.flush":                 1,
	}
	if !maps.Equal(o.counts, expected) {
		t.Errorf("counted %v, want %v", o.counts, expected)
	}
}

func TestWhatIsKeptStaysWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 8<<10).Draw(t, "limit")
		c := cached.New(memory.New(blobstore.Verified), cached.Options{MaxBytes: limit, AbsentFor: time.Hour})
		sizes := rapid.SliceOfN(rapid.IntRange(0, 3<<10), 1, 60).Draw(t, "sizes")
		for i, size := range sizes {
			data := make([]byte, size)
			if size > 8 {
				binary.LittleEndian.PutUint64(data, uint64(i%7))
			}
			ref := blobref.Of(data)
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				err = c.Set(context.Background(), ref, data)
			case 1:
				_, err = c.Get(context.Background(), ref)
			case 2:
				_, err = c.Get(context.Background(), blobref.Of([]byte{byte(i), byte(size), 1}))
			case 3:
				err = c.Delete(context.Background(), ref)
			}
			if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
				t.Fatal(err)
			}
			if u := c.Usage(); u.Bytes > limit || u.Bytes < int64(u.Blobs)*256 {
				t.Fatalf("%+v is kept of at most %d", u, limit)
			}
		}
	})
}

func TestBlobsThatAreWantedOutlastOnesThatWereReadOnce(t *testing.T) {
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{MaxBytes: 32 << 10})
	blob := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%04d", i)), 256) }
	wanted := make([]blobref.Ref, 8)
	for i := range wanted {
		wanted[i] = b.put(t, blob(i))
		want(t, c, wanted[i], blob(i))
	}
	for i := 100; i < 300; i++ { // eight times what there is room for
		want(t, c, b.put(t, blob(i)), blob(i))
		for j := range wanted {
			want(t, c, wanted[j], blob(j))
		}
	}
	b.wantGets(t, 8+200)
}

func TestAHitCostsItsCopyAlone(t *testing.T) {
	c := cached.New(memory.New(blobstore.Verified), cached.Options{})
	ref, err := c.PutBytes(t.Context(), make([]byte, 1<<10))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Get(context.Background(), ref) }); n > 1 {
		t.Errorf("a hit allocates %v times, want once", n)
	}
}

// TestReadersNeverSeeWhatWasReplaced has one writer of ever higher numbers for
// each of a few ids, and readers and deleters: a Get returns no number below one
// that was acknowledged before it began.
func TestReadersNeverSeeWhatWasReplaced(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	c := cached.New(memory.New(blobstore.Opaque), cached.Options{MaxBytes: 1 << 10, AbsentFor: time.Hour})
	var ids [4]blobref.Ref
	var acknowledged [len(ids)]atomic.Uint64
	for i := range ids {
		ids[i] = blobref.Of([]byte{byte(i)})
	}
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for i, id := range ids {
		writers.Go(func() {
			for n := uint64(1); n <= uint64(rounds); n++ {
				if n%64 == 0 {
					_ = c.Delete(t.Context(), id)
				}
				if err := c.Set(t.Context(), id, binary.BigEndian.AppendUint64(nil, n)); err != nil {
					t.Error(err)
					return
				}
				acknowledged[i].Store(n)
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for i := 0; ; i = (i + 1) % len(ids) {
				select {
				case <-stop:
					return
				default:
				}
				least := acknowledged[i].Load()
				data, err := c.Get(t.Context(), ids[i])
				if errors.Is(err, blobstore.ErrNotFound) {
					continue // deleted just now, or not yet there
				}
				if err != nil || binary.BigEndian.Uint64(data) < least {
					t.Errorf("Get = %d, %v; %d was acknowledged before", data, err, least)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for i, id := range ids {
		want(t, c, id, binary.BigEndian.AppendUint64(nil, acknowledged[i].Load()))
	}
}
