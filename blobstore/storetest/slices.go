package storetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// waysIn are the calls that are given a slice. Each stores data and returns the
// reference it used.
func (s *suite) waysIn() map[string]func(t *testing.T, store blobstore.Store, data []byte) (blobref.Ref, error) {
	return map[string]func(*testing.T, blobstore.Store, []byte) (blobref.Ref, error){
		"Set": func(t *testing.T, store blobstore.Store, data []byte) (blobref.Ref, error) {
			return s.id(data), store.Set(t.Context(), s.id(data), data)
		},
		"SetLocal": func(t *testing.T, store blobstore.Store, data []byte) (blobref.Ref, error) {
			return s.id(data), store.SetLocal(t.Context(), s.id(data), data)
		},
		"PutBytes": func(t *testing.T, store blobstore.Store, data []byte) (blobref.Ref, error) {
			return blobstore.Put(t.Context(), store, data)
		},
		"SetStream": func(t *testing.T, store blobstore.Store, data []byte) (blobref.Ref, error) {
			return s.id(data), blobstore.SetStream(t.Context(), store, s.id(data), bytes.NewReader(data), int64(len(data)))
		},
		"Put": func(t *testing.T, store blobstore.Store, data []byte) (blobref.Ref, error) {
			// The reader hands its caller the slice itself, if the caller asks for that.
			ref, _, err := blobstore.PutStream(t.Context(), store, bytes.NewReader(data))
			return ref, err
		},
	}
}

// waysOut are the calls that hand out a slice with the whole of a blob in it.
func waysOut() map[string]func(*testing.T, blobstore.Store, blobref.Ref) ([]byte, error) {
	return map[string]func(*testing.T, blobstore.Store, blobref.Ref) ([]byte, error){
		"Get": func(t *testing.T, store blobstore.Store, ref blobref.Ref) ([]byte, error) {
			return store.Get(t.Context(), ref)
		},
		"GetRange": func(t *testing.T, store blobstore.Store, ref blobref.Ref) ([]byte, error) {
			return blobstore.GetRange(t.Context(), store, ref, 0, 1<<40)
		},
		"Open": func(t *testing.T, store blobstore.Store, ref blobref.Ref) ([]byte, error) {
			b, err := blobstore.Open(t.Context(), store, ref)
			if err != nil {
				return nil, err
			}
			defer b.Close()
			var k keeper
			// Copy asks for WriteTo, which could pass the stored slice on.
			_, err = io.Copy(&k, b)
			return bytes.Join(k.slices, nil), errors.Join(err, k.spoil())
		},
	}
}

// keeper is a writer that keeps and overwrites the slices it is given, which a
// writer must not do; a store that is safe from it is safe from all.
type keeper struct {
	slices [][]byte
	given  [][]byte
}

func (k *keeper) Write(p []byte) (int, error) {
	k.slices, k.given = append(k.slices, bytes.Clone(p)), append(k.given, p)
	return len(p), nil
}

func (k *keeper) spoil() error {
	for _, p := range k.given {
		spoil(p)
	}
	return nil
}

// spoil changes a slice and the room behind it, which an append may use: both are
// the caller's.
func spoil(p []byte) {
	p = p[:cap(p)]
	for i := range p {
		p[i] ^= 0xa5
	}
}

// testAliasing changes what was passed in and what was handed out, at once and under
// whatever the store still has to do with it.
func (s *suite) testAliasing(t *testing.T) {
	const room = 64
	for in, set := range s.waysIn() {
		for out, get := range waysOut() {
			store := s.open()
			for _, size := range []int{0, 1, 1000, 64 << 10, 300 << 10} {
				want := random(size, 4)
				passed := append(bytes.Clone(want), bytes.Repeat([]byte{7}, room)...)[:size]
				ref, err := set(t, store, passed)
				if errors.Is(err, blobstore.ErrUnsupported) || errors.Is(err, blobstore.ErrNotLocal) {
					break
				}
				if err != nil {
					t.Fatalf("%s of %d bytes: %v", in, size, err)
				}
				if !bytes.Equal(passed, want) || !bytes.Equal(passed[size:size+room], bytes.Repeat([]byte{7}, room)) {
					t.Fatalf("%s changed the slice it was given, or the room behind it", in)
				}
				spoil(passed) // a store that put the work off sees it from here on
				first, err := get(t, store, ref)
				if errors.Is(err, blobstore.ErrUnsupported) {
					break
				}
				if err := errors.Join(err, sameBytes(first, want)); err != nil {
					t.Fatalf("the slice passed to %s was changed afterwards: %s: %v", in, out, err)
				}
				if err := store.Flush(t.Context()); err != nil {
					t.Fatalf("Flush: %v", err)
				}
				second, err := get(t, store, ref)
				if err != nil {
					t.Fatalf("%s: %v", out, err)
				}
				spoil(first)
				if err := sameBytes(second, want); err != nil {
					t.Fatalf("two calls of %s share their bytes: %v", out, err)
				}
				spoil(second)
				wantBlob(t, store, ref, want)
				if in != "SetLocal" && s.reopen != nil && size == 1000 {
					store = s.reopen(store)
					wantBlob(t, store, ref, want)
				}
			}
		}
	}
}

// testHandedOut keeps what was handed out while the store goes on.
func (s *suite) testHandedOut(t *testing.T) {
	store := s.open()
	want := random(64<<10, 30)
	ref := s.set(t, store, want)
	kept := make(map[string][]byte)
	for out, get := range waysOut() {
		got, err := get(t, store, ref)
		if errors.Is(err, blobstore.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		kept[out] = got
	}
	passed := bytes.Clone(want)
	for range 2 {
		if err := store.Set(t.Context(), ref, passed); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			s.set(t, store, random(64<<10-i, 31)) // into whatever buffers there are
		}
		if s.mode == blobstore.Opaque {
			if err := store.Set(t.Context(), ref, random(64<<10, 32)); err != nil {
				t.Fatal(err)
			}
		}
		if d, ok := able[blobstore.Deleter](t, store); ok {
			if err := d.Delete(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := store.Flush(t.Context()); err != nil {
		t.Fatalf("Flush: %v", err)
	}
	kept["the slice passed to Set"] = passed
	for what, got := range kept {
		if err := sameBytes(got, want); err != nil {
			t.Errorf("%s was changed by later calls: %v", what, err)
		}
	}
}
