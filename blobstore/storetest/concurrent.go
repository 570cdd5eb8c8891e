package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// together runs do in n goroutines that start at once, and reports every error.
func together(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var ready, done sync.WaitGroup
	start, errs := make(chan struct{}), make([]error, n)
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			errs[i] = do(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) testConcurrentSame(t *testing.T) {
	for _, size := range []int{0, 1000, 300 << 10} {
		store, data := s.open(), random(size, 13)
		ref := s.id(data)
		together(t, 16, func(i int) error {
			ctx := context.Background()
			if i%2 == 0 {
				if err := store.Set(ctx, ref, data); err != nil {
					return fmt.Errorf("calling Set: %w", err)
				}
			}
			got, err := store.Get(ctx, ref)
			if i%2 != 0 && errors.Is(err, blobstore.ErrNotFound) {
				return nil // a reader may come before every writer
			}
			if err != nil {
				return fmt.Errorf("calling Get: %w", err)
			}
			return sameBytes(got, data)
		})
		wantBlob(t, store, ref, data)
	}
}

func (s *suite) testConcurrentMany(t *testing.T) {
	store := s.open()
	const writers, blobs = 8, 16
	// Each blob is written by two goroutines and read by all.
	blob := func(i int) []byte { return random(1000+i%(writers*blobs/2), 14) }
	together(t, writers, func(w int) error {
		ctx := context.Background()
		for i := w * blobs; i < (w+1)*blobs; i++ {
			data := blob(i)
			if err := store.Set(ctx, s.id(data), data); err != nil {
				return fmt.Errorf("calling Set: %w", err)
			}
			got, err := store.Get(ctx, s.id(data))
			if err != nil {
				return fmt.Errorf("calling Get: %w", err)
			}
			if err := sameBytes(got, data); err != nil {
				return err
			}
		}
		return store.Flush(ctx)
	})
	for i := range writers * blobs {
		data := blob(i)
		wantBlob(t, store, s.id(data), data)
	}
}

// testReplaceAtomically has readers look at an id that writers keep replacing.
// Every value is one byte repeated, so that a mix of two cannot hide.
func (s *suite) testReplaceAtomically(t *testing.T) {
	if s.mode != blobstore.Opaque {
		t.Skip("a verified store replaces nothing")
	}
	store := s.open()
	id := blobref.Of([]byte("plaintext"))
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 8000+i) }
	if err := store.Set(t.Context(), id, value(0)); err != nil {
		t.Fatal(err)
	}
	together(t, 8, func(g int) error {
		ctx := context.Background()
		for i := range 32 {
			if g%2 == 0 {
				if err := store.Set(ctx, id, value(g*32+i)); err != nil {
					return fmt.Errorf("calling Set: %w", err)
				}
				continue
			}
			got, err := store.Get(ctx, id)
			if err != nil {
				return fmt.Errorf("calling Get: %w", err)
			}
			if len(got) == 0 || !bytes.Equal(got, value(int(got[0]))) {
				return fmt.Errorf("got %d bytes that no Set stored", len(got))
			}
		}
		return nil
	})
}
