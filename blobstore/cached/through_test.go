package cached_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
)

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
