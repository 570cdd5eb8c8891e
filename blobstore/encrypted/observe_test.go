package encrypted_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// heard writes down what an observer is told.
type heard struct{ calls []string }

func (h *heard) Began(ctx context.Context, _ blobstore.Op) context.Context { return ctx }

func (h *heard) Ended(_ context.Context, op blobstore.Op, took time.Duration, err error) {
	h.calls = append(h.calls, fmt.Sprintf("%s.%s %v %v", op.Layer, op.Name, took >= 0, err != nil))
}

func (h *heard) Counted(_ context.Context, counter, _, _ string) {
	h.calls = append(h.calls, counter)
}

func TestAnObserverIsToldOfEveryGetAndSet(t *testing.T) {
	h := new(heard)
	s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{Observer: h})
	data := []byte("data")
	ref := put(t, s, data)
	if err := s.Set(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	if err := s.SetLocal(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Put(t.Context(), strings.NewReader("data")); err != nil {
		t.Fatal(err)
	}
	if err := s.SetStream(t.Context(), ref, strings.NewReader("data"), 4); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(t.Context(), ref, []byte("other")); !errors.Is(err, blobstore.ErrMismatch) {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatal(err)
	}
	set, get := "encrypted.set_blob true ", "encrypted.get_blob true "
	want := []string{set + "false", set + "false", set + "false", set + "false", set + "false", set + "true", get + "false", get + "true"}
	if !slices.Equal(h.calls, want) {
		t.Errorf("the observer heard\n%s", strings.Join(h.calls, "\n"))
	}
}

// One allocation that holds the ciphertext is all that a put of 64 KiB takes, and one that
// the store below makes, all that a get does; what else there is of them is small.
func TestABlobIsNotCopied(t *testing.T) {
	const size, rounds, rest = 64 << 10, 50, 12 << 10 // the rest is size classes, ciphers, HKDF
	s := open(t, discard{memory.New(blobstore.Opaque)}, ring(t, "pass"), encrypted.Options{})
	data := random(size, 1)
	ref := put(t, s, data)
	if n := allocated(func() {
		for range rounds {
			if err := s.Set(t.Context(), ref, data); err != nil {
				t.Fatal(err)
			}
		}
	}) / rounds; n > size+rest {
		t.Errorf("a put of %d bytes allocates %d", size, n)
	}
	below := memory.New(blobstore.Opaque)
	s = open(t, below, ring(t, "pass"), encrypted.Options{})
	put(t, s, data)
	if n := allocated(func() {
		for range rounds {
			if _, err := s.Get(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
	}) / rounds; n > size+rest {
		t.Errorf("a get of %d bytes allocates %d", size, n)
	}
}

// discard keeps markers, which are small, and no blobs.
type discard struct{ *memory.Store }

func (d discard) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if len(data) > 4<<10 {
		return nil
	}
	return d.Store.Set(ctx, ref, data)
}
