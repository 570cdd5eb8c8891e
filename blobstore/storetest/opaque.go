package storetest

import (
	"bytes"
	"io"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// testReplaceEveryWay replaces a value by each call that stores, and looks at the
// new one by each call that reads.
func (s *suite) testReplaceEveryWay(t *testing.T) {
	if s.mode != blobstore.Opaque {
		t.Skip("a verified store replaces nothing")
	}
	store := s.open()
	final := random(5000, 50)
	ref := blobref.Of(final) // the one id that PutBytes and Put can have
	old := random(9000, 51)
	for in, set := range map[string]func() error{
		"Set": func() error { return store.Set(t.Context(), ref, final) },
		"SetLocal": func() error {
			if s.notLocal {
				return store.Set(t.Context(), ref, final)
			}
			return store.SetLocal(t.Context(), ref, final)
		},
		"PutBytes": func() error { _, err := blobstore.Put(t.Context(), store, final); return err },
		"SetStream": func() error {
			if _, ok := able[blobstore.StreamSetter](t, store); !ok {
				return store.Set(t.Context(), ref, final)
			}
			return blobstore.SetStream(t.Context(), store, ref, bytes.NewReader(final), int64(len(final)))
		},
		"Put": func() error {
			if _, ok := able[blobstore.Putter](t, store); !ok {
				return store.Set(t.Context(), ref, final)
			}
			_, _, err := blobstore.PutStream(t.Context(), store, bytes.NewReader(final))
			return err
		},
	} {
		for _, flush := range []bool{false, true} {
			if err := store.Set(t.Context(), ref, old); err != nil {
				t.Fatal(err)
			}
			wantBlob(t, store, ref, old) // and into whatever cache there is
			if flush {
				if err := store.Flush(t.Context()); err != nil {
					t.Fatalf("Flush: %v", err)
				}
			}
			if err := set(); err != nil {
				t.Fatalf("%s over another value: %v", in, err)
			}
			s.wantEverywhere(t, store, ref, final)
			if err := store.Flush(t.Context()); err != nil {
				t.Fatalf("Flush: %v", err)
			}
			s.wantEverywhere(t, store, ref, final)
		}
	}
	if s.reopen != nil {
		store = s.reopen(store)
		s.wantEverywhere(t, store, ref, final)
	}
	if d, ok := able[blobstore.Deleter](t, store); ok {
		if err := d.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		wantAbsent(t, store, ref)
	}
}

// wantEverywhere fails unless every way to look at a blob shows want, once.
func (s *suite) wantEverywhere(t *testing.T, store blobstore.Store, ref blobref.Ref, want []byte) {
	t.Helper()
	wantBlob(t, store, ref, want)
	if r, ok := able[blobstore.RangeReader](t, store); ok {
		got, err := r.GetRange(t.Context(), ref, 1, int64(len(want)))
		if err != nil {
			t.Fatalf("GetRange: %v", err)
		}
		if err := sameBytes(got, want[1:]); err != nil {
			t.Fatalf("GetRange: %v", err)
		}
	}
	if o, ok := able[blobstore.Opener](t, store); ok {
		b, err := o.Open(t.Context(), ref)
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		defer b.Close()
		got, err := io.ReadAll(b)
		if err == nil {
			err = sameBytes(got, want)
		}
		if err != nil || b.Size() != int64(len(want)) {
			t.Fatalf("Open: size %d, %v", b.Size(), err)
		}
	}
	if st, ok := store.(blobstore.Stater); ok {
		if _, ok := able[blobstore.Stater](t, store); ok {
			if info, err := st.Stat(t.Context(), ref); err != nil || info.Size != int64(len(want)) {
				t.Fatalf("Stat = %+v, %v; want %d bytes", info, err, len(want))
			}
		}
	}
	if _, ok := able[blobstore.Walker](t, store); ok {
		found := 0
		for info, err := range blobstore.Walk(t.Context(), store) {
			if err != nil {
				t.Fatalf("Walk: %v", err)
			}
			if info.Ref == ref {
				found++
			}
		}
		if found != 1 {
			t.Fatalf("Walk yielded the replaced blob %d times", found)
		}
	}
}

// testReplaceUnderReader opens a value that is replaced, and reads on.
func (s *suite) testReplaceUnderReader(t *testing.T) {
	if s.mode != blobstore.Opaque {
		t.Skip("a verified store replaces nothing")
	}
	store := s.open()
	opener := need[blobstore.Opener](t, store)
	old := random(300<<10, 52)
	for _, next := range [][]byte{random(300<<10, 53), random(10, 54), {}, random(600<<10, 55)} {
		ref := s.set(t, store, old)
		b, err := opener.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		begin := make([]byte, 1000)
		_, err = io.ReadFull(b, begin)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Set(t.Context(), ref, next); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(b)
		if err == nil {
			err = sameBytes(append(begin, rest...), old)
		}
		if err != nil {
			t.Errorf("a reader that was open when %d other bytes were stored: %v", len(next), err)
		}
		b.Close()
		wantBlob(t, store, ref, next)
	}
}
