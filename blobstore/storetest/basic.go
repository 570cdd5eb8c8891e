package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

func (s *suite) testAbsent(t *testing.T) {
	store := s.open()
	wantAbsent(t, store, blobref.Of([]byte("never stored")))
	s.set(t, store, []byte("another"))
	wantAbsent(t, store, blobref.Of([]byte("never stored")))
}

func (s *suite) testRoundTrip(t *testing.T) {
	store := s.open()
	// Around the sizes at which implementations change their way: buffers, pages,
	// chunks.
	var sizes []int
	for _, edge := range []int{1, 32, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20} {
		sizes = append(sizes, edge-1, edge, edge+1)
	}
	refs := make(map[int]blobref.Ref)
	for i, size := range sizes {
		if size > s.largest {
			continue
		}
		data := random(size, 1)
		ref := s.id(data)
		set := store.Set
		if i%2 == 1 && !s.notLocal {
			set = store.SetLocal
		}
		if err := set(t.Context(), ref, data); err != nil {
			t.Fatalf("storing %d bytes: %v", size, err)
		}
		wantBlob(t, store, ref, data)
		refs[size] = ref
	}
	if err := store.Flush(t.Context()); err != nil {
		t.Fatalf("Flush: %v", err)
	}
	for size, ref := range refs {
		wantBlob(t, store, ref, random(size, 1))
	}
}

func (s *suite) testLarge(t *testing.T) {
	store := s.open()
	data := random(s.largest, 2)
	wantBlob(t, store, s.set(t, store, data), data)
}

func (s *suite) testEmpty(t *testing.T) {
	for _, empty := range [][]byte{nil, {}} {
		store := s.open()
		wantAbsent(t, store, s.id(empty))
		wantBlob(t, store, s.set(t, store, empty), []byte{})
		wantBlob(t, store, s.set(t, store, empty), []byte{})
	}
}

func (s *suite) testTwice(t *testing.T) {
	store := s.open()
	for _, size := range []int{1, 64 << 10, 300 << 10} {
		data := random(size, 3)
		ref := s.set(t, store, data)
		if again := s.set(t, store, bytes.Clone(data)); again != ref {
			t.Fatalf("the second Set used %v, the first %v", again, ref)
		}
		if err := store.SetLocal(t.Context(), ref, data); err != nil && !s.notLocal {
			t.Fatalf("SetLocal of bytes that are there: %v", err)
		}
		wantBlob(t, store, ref, data)
	}
}

func (s *suite) testCancelled(t *testing.T) {
	store := s.open()
	kept := random(1000, 5)
	keptRef := s.set(t, store, kept)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	data := random(1000, 6)
	for name, set := range map[string]func(context.Context, blobref.Ref, []byte) error{"Set": store.Set, "SetLocal": store.SetLocal} {
		if err := set(ctx, s.id(data), data); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context = %v, want context.Canceled", name, err)
		}
	}
	wantAbsent(t, store, s.id(data))
	if got, err := store.Get(ctx, keptRef); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("Get with a cancelled context = %d bytes, %v; want context.Canceled", len(got), err)
	}
	if d, ok := able[blobstore.Deleter](t, store); ok {
		if err := d.Delete(ctx, keptRef); !errors.Is(err, context.Canceled) {
			t.Errorf("Delete with a cancelled context = %v, want context.Canceled", err)
		}
	}
	if p, ok := able[blobstore.Putter](t, store); ok {
		if _, _, err := p.Put(ctx, bytes.NewReader(data)); !errors.Is(err, context.Canceled) {
			t.Errorf("Put with a cancelled context = %v, want context.Canceled", err)
		}
	}
	if p, ok := blobstore.As[blobstore.BytesPutter](store); ok {
		if _, err := p.PutBytes(ctx, data); !errors.Is(err, context.Canceled) {
			t.Errorf("PutBytes with a cancelled context = %v, want context.Canceled", err)
		}
	}
	wantAbsent(t, store, blobref.Of(data))
	wantBlob(t, store, keptRef, kept)
}

func (s *suite) testZeroRef(t *testing.T) {
	store := s.open()
	for _, data := range [][]byte{nil, []byte("bytes")} {
		if err := store.Set(t.Context(), blobref.Ref{}, data); err == nil {
			t.Error("Set under the zero Ref succeeded")
		}
	}
	wantAbsent(t, store, blobref.Ref{})
}

// testHistory plays random calls and expects what a map would answer.
func (s *suite) testHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store, model := s.open(), make(map[blobref.Ref][]byte)
		deleter, canDelete := able[blobstore.Deleter](t, store)
		blob := rapid.Custom(func(rt *rapid.T) []byte {
			// Few values, so that they meet.
			return bytes.Repeat([]byte{byte(rapid.IntRange(0, 4).Draw(rt, "fill"))}, rapid.SampledFrom([]int{0, 1, 300}).Draw(rt, "size"))
		})
		for range rapid.IntRange(1, 20).Draw(rt, "calls") {
			data := blob.Draw(rt, "blob")
			ref := s.id(data)
			switch rapid.IntRange(0, 3).Draw(rt, "call") {
			case 0:
				if err := store.Set(t.Context(), ref, data); err != nil {
					rt.Fatalf("Set: %v", err)
				}
				model[ref] = data
			case 1:
				got, err := store.Get(t.Context(), ref)
				if err := agrees(model, ref, got, err); err != nil {
					rt.Fatal(err)
				}
			case 2:
				other := blob.Draw(rt, "other")
				err := store.Set(t.Context(), ref, other)
				switch {
				case s.mode == blobstore.Verified && !bytes.Equal(data, other):
					if !errors.Is(err, blobstore.ErrMismatch) {
						rt.Fatalf("Set of other bytes = %v, want ErrMismatch", err)
					}
				case err != nil:
					rt.Fatalf("Set: %v", err)
				default:
					model[ref] = other
				}
			case 3:
				if !canDelete {
					continue
				}
				err := deleter.Delete(t.Context(), ref)
				if _, ok := model[ref]; ok != (err == nil) || !ok && !errors.Is(err, blobstore.ErrNotFound) {
					rt.Fatalf("Delete of a blob that is there (%v) = %v", ok, err)
				}
				delete(model, ref)
			}
		}
		for ref := range model {
			got, err := store.Get(t.Context(), ref)
			if err := agrees(model, ref, got, err); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func agrees(model map[blobref.Ref][]byte, ref blobref.Ref, got []byte, err error) error {
	want, ok := model[ref]
	switch {
	case !ok && !errors.Is(err, blobstore.ErrNotFound):
		return fmt.Errorf("calling Get of an absent blob gives %d bytes, %v; want ErrNotFound", len(got), err)
	case !ok:
		return nil
	case err != nil:
		return fmt.Errorf("calling Get: %w", err)
	}
	return sameBytes(got, want)
}

func (s *suite) testReopen(t *testing.T) {
	if s.reopen == nil {
		t.Skip("no storetest.Reopen was given: this store is not said to outlive itself")
	}
	store := s.open()
	refs := make(map[int]blobref.Ref)
	for _, size := range []int{0, 1, 64 << 10, 300 << 10} {
		refs[size] = s.set(t, store, random(size, 7))
	}
	if err := store.Flush(t.Context()); err != nil {
		t.Fatalf("Flush: %v", err)
	}
	store = s.reopen(store)
	for size, ref := range refs {
		wantBlob(t, store, ref, random(size, 7))
	}
}

func (s *suite) testNotLocal(t *testing.T) {
	if !s.notLocal {
		t.Skip("storetest.NotLocal was not given")
	}
	store := s.open()
	data := random(1000, 7)
	if err := store.SetLocal(t.Context(), s.id(data), data); !errors.Is(err, blobstore.ErrNotLocal) {
		t.Errorf("SetLocal = %v, want ErrNotLocal", err)
	}
	wantAbsent(t, store, s.id(data))
}
