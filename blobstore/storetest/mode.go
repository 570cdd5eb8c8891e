package storetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

func (s *suite) testMismatch(t *testing.T) {
	if s.mode != blobstore.Verified {
		t.Skip("an opaque store does not know whose bytes they are")
	}
	store := s.open()
	right := []byte("the right bytes")
	ref := blobref.Of(right)
	wrong := [][]byte{nil, []byte("the wrong bytes"), right[:len(right)-1], append(bytes.Clone(right), 0)}

	for _, data := range wrong {
		for name, set := range map[string]func() error{
			"Set":      func() error { return store.Set(t.Context(), ref, data) },
			"SetLocal": func() error { return store.SetLocal(t.Context(), ref, data) },
		} {
			if err := set(); !errors.Is(err, blobstore.ErrMismatch) {
				t.Errorf("%s of %q = %v, want ErrMismatch", name, data, err)
			}
		}
		wantAbsent(t, store, ref)
		wantAbsent(t, store, blobref.Of(data))
	}

	s.set(t, store, right)
	for _, data := range wrong {
		if err := store.Set(t.Context(), ref, data); !errors.Is(err, blobstore.ErrMismatch) {
			t.Errorf("Set of %q over a blob = %v, want ErrMismatch", data, err)
		}
		wantBlob(t, store, ref, right)
	}
}

func (s *suite) testCorrupt(t *testing.T) {
	if s.mode != blobstore.Verified {
		t.Skip("an opaque store cannot tell damage")
	}
	if s.corrupt == nil {
		t.Skip("no storetest.Corrupt was given: the suite cannot damage this store")
	}
	want := random(100<<10, 8)
	flipped := bytes.Clone(want)
	flipped[len(flipped)-1] ^= 1
	damages := map[string][]byte{
		"one bit":      flipped,
		"cut off":      want[:len(want)/2],
		"emptied":      {},
		"grown":        append(bytes.Clone(want), 0),
		"all of it":    bytes.Repeat([]byte{0}, len(want)),
		"another blob": random(100<<10, 9),
	}
	ref := blobref.Of(want)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			damaged := func(t *testing.T) blobstore.Store {
				t.Helper()
				store := s.open()
				s.set(t, store, want)
				if err := s.corrupt(store, ref, damage); err != nil {
					t.Fatalf("storetest.Corrupt: %v", err)
				}
				return store
			}
			heals := func(t *testing.T, store blobstore.Store) {
				t.Helper()
				s.set(t, store, want)
				wantBlob(t, store, ref, want)
			}
			t.Run("Get reports it", func(t *testing.T) {
				store := damaged(t)
				if got, err := store.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrCorrupt) || got != nil {
					t.Fatalf("Get = %d bytes, %v; want ErrCorrupt", len(got), err)
				}
				heals(t, store)
			})
			t.Run("Set heals it", func(t *testing.T) { heals(t, damaged(t)) })
			t.Run("Open reports it", func(t *testing.T) {
				store := damaged(t)
				o := need[blobstore.Opener](t, store)
				if b, err := o.Open(t.Context(), ref); !errors.Is(err, blobstore.ErrCorrupt) {
					if err == nil {
						b.Close()
					}
					t.Fatalf("Open = %v, want ErrCorrupt", err)
				}
				heals(t, store)
			})
			t.Run("GetRange does not hand it out", func(t *testing.T) {
				store := damaged(t)
				r := need[blobstore.RangeReader](t, store)
				// The last byte is one that every damage here changed or removed.
				got, err := r.GetRange(t.Context(), ref, int64(len(want)-1), 1)
				if !errors.Is(err, blobstore.ErrCorrupt) {
					t.Fatalf("GetRange = %v, %v; want ErrCorrupt", got, err)
				}
				heals(t, store)
			})
			t.Run("Put heals it", func(t *testing.T) {
				store := damaged(t)
				p := need[blobstore.Putter](t, store)
				if got, _, err := p.Put(t.Context(), bytes.NewReader(want)); err != nil || got != ref {
					t.Fatalf("Put = %v, %v", got, err)
				}
				wantBlob(t, store, ref, want)
			})
		})
	}
}

func (s *suite) testAnyBytes(t *testing.T) {
	if s.mode != blobstore.Opaque {
		t.Skip("a verified store takes no other bytes")
	}
	store := s.open()
	id := blobref.Of([]byte("plaintext"))
	// Shorter, longer, equal in length, empty: each replaces the one before.
	for _, data := range [][]byte{
		[]byte("ciphertext"), []byte("CIPHERTEXT"), random(300<<10, 10), {}, []byte("x"), random(300<<10, 11), random(300<<10, 12),
	} {
		if err := store.Set(t.Context(), id, data); err != nil {
			t.Fatalf("Set of %d bytes: %v", len(data), err)
		}
		wantBlob(t, store, id, data)
	}
	wantAbsent(t, store, blobref.Of([]byte("ciphertext")))
}
