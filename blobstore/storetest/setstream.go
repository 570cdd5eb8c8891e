package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

func (s *suite) testSetStream(t *testing.T) {
	store := s.open()
	setter := need[blobstore.StreamSetter](t, store)
	for _, size := range []int{0, 1, 1000, 256 << 10, 256<<10 + 1, 600 << 10} {
		data := random(size, 60)
		ref := s.id(data)
		for _, r := range []io.Reader{
			iotest.HalfReader(bytes.NewReader(data)),
			bytes.NewReader(data), // again, when it is there
			iotest.DataErrReader(bytes.NewReader(data)),
		} {
			if err := setter.SetStream(t.Context(), ref, r, int64(size)); err != nil {
				t.Fatalf("SetStream of %d bytes: %v", size, err)
			}
			wantBlob(t, store, ref, data)
		}
	}

	// What is not as it was announced leaves nothing behind.
	cause := errors.New("the line is dead")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, size := range []int{1, 1000, 256 << 10, 600 << 10} {
		data := random(size, 61)
		ref := s.id(data)
		set := func(r io.Reader, announced int64) error { return setter.SetStream(t.Context(), ref, r, announced) }
		for what, err := range map[string]error{
			"a byte less than announced": set(bytes.NewReader(data), int64(size)+1),
			"a byte more than announced": set(bytes.NewReader(data), int64(size)-1),
			"a negative size":            set(bytes.NewReader(data), -1),
			"no stream at all":           set(bytes.NewReader(nil), int64(size)),
		} {
			if err == nil {
				t.Errorf("SetStream of %d bytes that are %s = nil", size, what)
			}
		}
		if err := set(io.MultiReader(bytes.NewReader(data[:size/2]), iotest.ErrReader(cause)), int64(size)); !errors.Is(err, cause) {
			t.Errorf("SetStream of a reader that fails = %v, want %v", err, cause)
		}
		if err := setter.SetStream(cancelled, ref, bytes.NewReader(data), int64(size)); !errors.Is(err, context.Canceled) {
			t.Errorf("SetStream with a cancelled context = %v, want context.Canceled", err)
		}
		if s.mode == blobstore.Verified {
			other := random(size, 62)
			if err := set(bytes.NewReader(other), int64(size)); !errors.Is(err, blobstore.ErrMismatch) {
				t.Errorf("SetStream of other bytes = %v, want ErrMismatch", err)
			}
			wantAbsent(t, store, blobref.Of(other))
		}
		wantAbsent(t, store, ref)
	}
	if s.mode != blobstore.Opaque {
		return
	}
	id := s.id([]byte("replaced"))
	for _, size := range []int{1000, 600 << 10, 0, 10} {
		if err := setter.SetStream(t.Context(), id, bytes.NewReader(random(size, 63)), int64(size)); err != nil {
			t.Fatal(err)
		}
		wantBlob(t, store, id, random(size, 63))
	}
}
