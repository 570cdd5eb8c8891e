package cached_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
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
