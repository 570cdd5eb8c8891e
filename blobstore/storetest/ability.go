package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// need returns an ability of the store, or skips the test.
func need[T any](t *testing.T, store blobstore.Store) T {
	t.Helper()
	ability, ok := able[T](t, store)
	if !ok {
		t.Skipf("the store is no %v", reflect.TypeFor[T]())
	}
	return ability
}

// able returns an ability of the store. One that answers ErrUnsupported is none: a
// layer has every method, and finds out below what it can do.
func able[T any](t *testing.T, store blobstore.Store) (T, bool) {
	t.Helper()
	ability, ok := blobstore.As[T](store)
	if !ok {
		return ability, false
	}
	absent, err := blobref.Of([]byte("what no test stores")), error(nil)
	switch any((*T)(nil)).(type) {
	case *blobstore.Stater:
		_, err = blobstore.Stat(t.Context(), store, absent)
	case *blobstore.Walker:
		for _, werr := range blobstore.Walk(t.Context(), store) {
			err = werr
			break
		}
	case *blobstore.Deleter:
		err = blobstore.Delete(t.Context(), store, absent)
	case *blobstore.Opener:
		var b blobstore.Blob
		if b, err = blobstore.Open(t.Context(), store, absent); err == nil {
			b.Close()
		}
	case *blobstore.RangeReader:
		_, err = blobstore.GetRange(t.Context(), store, absent, 0, 1)
	case *blobstore.Putter:
		// A reader that fails at once leaves nothing behind.
		_, _, err = blobstore.PutStream(t.Context(), store, iotest.ErrReader(errors.New("asked only")))
	case *blobstore.StreamSetter:
		err = blobstore.SetStream(t.Context(), store, absent, iotest.ErrReader(errors.New("asked only")), 1)
	}
	return ability, !errors.Is(err, blobstore.ErrUnsupported)
}

func (s *suite) testStat(t *testing.T) {
	store := s.open()
	stater := need[blobstore.Stater](t, store)
	for _, size := range []int{0, 1, 300 << 10} {
		data := random(size, 20)
		ref := s.id(data)
		if info, err := stater.Stat(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
			t.Fatalf("Stat of an absent blob = %+v, %v; want ErrNotFound", info, err)
		}
		s.set(t, store, data)
		info, err := stater.Stat(t.Context(), ref)
		if err != nil {
			t.Fatalf("Stat: %v", err)
		}
		if info.Ref != ref {
			t.Errorf("Stat(%v).Ref = %v", ref, info.Ref)
		}
		// A layer may keep more than it was given, a nonce say, but where the
		// store itself streams, both must speak of the same bytes.
		if _, own := store.(blobstore.Stater); own && info.Size != int64(size) {
			t.Errorf("Stat.Size = %d, want %d", info.Size, size)
		}
	}
}

func (s *suite) testWalk(t *testing.T) {
	store := s.open()
	walker := need[blobstore.Walker](t, store)
	list := func() map[blobref.Ref]bool {
		t.Helper()
		found := make(map[blobref.Ref]bool)
		for info, err := range walker.Walk(t.Context()) {
			if err != nil {
				t.Fatalf("Walk: %v", err)
			}
			if found[info.Ref] {
				t.Errorf("Walk yielded %v twice", info.Ref)
			}
			found[info.Ref] = true
		}
		return found
	}
	if found := list(); len(found) != 0 {
		t.Fatalf("Walk of an empty store yielded %d blobs", len(found))
	}
	want := make(map[blobref.Ref]bool)
	for size := range 50 {
		want[s.set(t, store, random(size, 21))] = true
	}
	if found := list(); !reflect.DeepEqual(found, want) {
		t.Errorf("Walk yielded %d blobs, want the %d that were stored", len(found), len(want))
	}
	count := 0
	for range walker.Walk(t.Context()) {
		if count++; count == 3 {
			break
		}
	}
	if count != 3 {
		t.Errorf("a Walk that was left after 3 blobs yielded %d", count)
	}
	// The body of the loop may use the store.
	for info := range walker.Walk(t.Context()) {
		if _, err := store.Get(t.Context(), info.Ref); err != nil {
			t.Errorf("Get of a listed blob: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var last error
	for _, err := range walker.Walk(ctx) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("a cancelled Walk ended with %v, want context.Canceled", last)
	}
}

func (s *suite) testDelete(t *testing.T) {
	store := s.open()
	deleter := need[blobstore.Deleter](t, store)
	data, other := random(1000, 22), random(1001, 22)
	ref, kept := s.set(t, store, data), s.set(t, store, other)
	if err := deleter.Delete(t.Context(), ref); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	wantAbsent(t, store, ref)
	if err := deleter.Delete(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Delete of a deleted blob = %v, want ErrNotFound", err)
	}
	wantBlob(t, store, kept, other)
	if walker, ok := able[blobstore.Walker](t, store); ok {
		for info, err := range walker.Walk(t.Context()) {
			if err != nil || info.Ref == ref {
				t.Errorf("Walk after Delete yielded %v, %v", info.Ref, err)
			}
		}
	}
	s.set(t, store, data)
	wantBlob(t, store, ref, data)
}

func (s *suite) testOpen(t *testing.T) {
	store := s.open()
	opener := need[blobstore.Opener](t, store)
	if b, err := opener.Open(t.Context(), s.id([]byte("absent"))); !errors.Is(err, blobstore.ErrNotFound) {
		if err == nil {
			b.Close()
		}
		t.Errorf("Open of an absent blob = %v, want ErrNotFound", err)
	}
	for _, size := range []int{0, 1, 1000, 300 << 10} {
		data := random(size, 23)
		b, err := opener.Open(t.Context(), s.set(t, store, data))
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		if b.Size() != int64(size) {
			t.Errorf("Size() = %d, want %d", b.Size(), size)
		}
		// TestReader reads in odd pieces, seeks, and reads at offsets.
		if err := iotest.TestReader(b, data); err != nil {
			t.Errorf("reading %d bytes: %v", size, err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}

	deleter, ok := able[blobstore.Deleter](t, store)
	if !ok {
		return
	}
	data := random(300<<10, 24)
	ref := s.set(t, store, data)
	b, err := opener.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := deleter.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(b)
	if err == nil {
		err = sameBytes(got, data)
	}
	if err != nil {
		t.Errorf("reading a blob that was deleted after Open: %v", err)
	}
}

func (s *suite) testGetRange(t *testing.T) {
	store := s.open()
	ranger := need[blobstore.RangeReader](t, store)
	if _, err := ranger.GetRange(t.Context(), s.id([]byte("absent")), 0, 1); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("GetRange of an absent blob = %v, want ErrNotFound", err)
	}
	data := random(300<<10, 25)
	ref, size := s.set(t, store, data), int64(300<<10)
	for _, r := range [][2]int64{
		{0, 0},
		{0, 1},
		{0, size},
		{0, size + 1},
		{1, size},
		{size - 1, 1},
		{size - 1, 2},
		{size, 0},
		{size, 1},
		{size + 1, 1},
		{1 << 62, 1 << 62},
		{255 << 10, 2 << 10},
		{1, 1<<63 - 1},
	} {
		off, n := r[0], r[1]
		got, err := ranger.GetRange(t.Context(), ref, off, n)
		if err != nil {
			t.Errorf("GetRange(%d, %d): %v", off, n, err)
			continue
		}
		from := min(off, size)
		if err := sameBytes(got, data[from:from+min(n, size-from)]); err != nil {
			t.Errorf("GetRange(%d, %d): %v", off, n, err)
		}
		clear(got)
	}
	for _, r := range [][2]int64{{-1, 1}, {0, -1}, {-1 << 63, 1}} {
		if got, err := ranger.GetRange(t.Context(), ref, r[0], r[1]); err == nil {
			t.Errorf("GetRange(%d, %d) = %d bytes, want an error", r[0], r[1], len(got))
		}
	}
	wantBlob(t, store, ref, data)
}

func (s *suite) testPut(t *testing.T) {
	store := s.open()
	putter := need[blobstore.Putter](t, store)
	for _, size := range []int{0, 1, 1000, 256 << 10, 256<<10 + 1, 600 << 10} {
		data := random(size, 26)
		for _, r := range []io.Reader{
			iotest.HalfReader(bytes.NewReader(data)),
			bytes.NewReader(data), // again, when it is there
			iotest.DataErrReader(bytes.NewReader(data)),
		} {
			ref, n, err := putter.Put(t.Context(), r)
			if err != nil {
				t.Fatalf("Put of %d bytes: %v", size, err)
			}
			if ref != blobref.Of(data) || n != int64(size) {
				t.Fatalf("Put of %d bytes = %v, %d; want %v", size, ref, n, blobref.Of(data))
			}
			wantBlob(t, store, ref, data)
		}
	}
	// A reader that fails, also with the error of a stream that was cut off, must
	// not pass for one that ended.
	store = s.open()
	putter = need[blobstore.Putter](t, store)
	for _, size := range []int{0, 1000, 256 << 10, 600 << 10} {
		for _, cause := range []error{io.ErrUnexpectedEOF, errors.New("the line is dead")} {
			data := random(size, 27)
			ref, _, err := putter.Put(t.Context(), io.MultiReader(bytes.NewReader(data), iotest.ErrReader(cause)))
			if !errors.Is(err, cause) || !ref.IsZero() {
				t.Errorf("Put of a reader that fails after %d bytes = %v, %v; want %v", size, ref, err, cause)
			}
			wantAbsent(t, store, blobref.Of(data))
		}
	}
}

func (s *suite) testPutBytes(t *testing.T) {
	store := s.open()
	for _, size := range []int{0, 1000, 300 << 10} {
		data := random(size, 28)
		// With and without the ability, this is how callers store bytes.
		ref, err := blobstore.Put(t.Context(), store, data)
		if err != nil || ref != blobref.Of(data) {
			t.Fatalf("blobstore.Put of %d bytes = %v, %v; want %v", size, ref, err, blobref.Of(data))
		}
		clear(data)
		wantBlob(t, store, ref, random(size, 28))
	}
}

// testForwarding looks for abilities that a layer hides.
func (s *suite) testForwarding(t *testing.T) {
	store := s.open()
	u, ok := store.(blobstore.Unwrapper)
	if !ok {
		t.Skip("the store is no layer around another")
	}
	forwards[blobstore.Stater](t, store, u.Unwrap())
	forwards[blobstore.Walker](t, store, u.Unwrap())
	forwards[blobstore.Deleter](t, store, u.Unwrap())
	forwards[blobstore.Opener](t, store, u.Unwrap())
	forwards[blobstore.RangeReader](t, store, u.Unwrap())
	forwards[blobstore.Putter](t, store, u.Unwrap())
	forwards[blobstore.BytesPutter](t, store, u.Unwrap())
	forwards[blobstore.StreamSetter](t, store, u.Unwrap())
}

func forwards[T any](t *testing.T, layer, inner blobstore.Store) {
	t.Helper()
	_, has := able[T](t, layer)
	if _, below := able[T](t, inner); below && !has {
		t.Errorf("the layer hides that the store below it is a %v", reflect.TypeFor[T]())
	}
}
