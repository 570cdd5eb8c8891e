package blobstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// sealed stands for an encrypting layer: what it keeps below are other bytes.
type sealed struct{ inner blobstore.Store }

func seal(data []byte) []byte {
	out := make([]byte, len(data))
	for i, c := range data {
		out[i] = c ^ 0x55
	}
	return out
}

func (s sealed) Unwrap() blobstore.Store { return s.inner }

func (s sealed) Mode() blobstore.Mode { return blobstore.Verified }

func (s sealed) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.inner.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if data = seal(data); !ref.Verify(data) {
		return nil, blobstore.ErrCorrupt
	}
	return data, nil
}

func (s sealed) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if !ref.Verify(data) {
		return blobstore.ErrMismatch
	}
	return s.inner.Set(ctx, ref, seal(data))
}

func (s sealed) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

func (s sealed) Flush(ctx context.Context) error { return s.inner.Flush(ctx) }

func TestControlIsFoundThroughLayersAndBytesAreNot(t *testing.T) {
	bottom := memory.New(blobstore.Opaque)
	var s blobstore.Store = sealed{sealed{bottom}}

	if d, ok := blobstore.As[blobstore.Deleter](s); !ok || d != blobstore.Deleter(bottom) {
		t.Errorf("As[Deleter] = %v, %v; want the store at the bottom", d, ok)
	}
	if w, ok := blobstore.As[blobstore.Walker](s); !ok || w != blobstore.Walker(bottom) {
		t.Errorf("As[Walker] = %v, %v; want the store at the bottom", w, ok)
	}
	if m, ok := blobstore.As[blobstore.Moder](s); !ok || m.Mode() != blobstore.Verified {
		t.Errorf("As[Moder] = %v, %v; want the outermost layer", m, ok)
	}
	if found, ok := blobstore.As[blobstore.Opener](s); ok {
		t.Errorf("As[Opener] found %T below an encrypting layer", found)
	}
	if found, ok := blobstore.As[blobstore.RangeReader](s); ok {
		t.Errorf("As[RangeReader] found %T below an encrypting layer", found)
	}
	if found, ok := blobstore.As[blobstore.Putter](s); ok {
		t.Errorf("As[Putter] found %T below an encrypting layer", found)
	}
	if found, ok := blobstore.As[blobstore.BytesPutter](s); ok {
		t.Errorf("As[BytesPutter] found %T below an encrypting layer", found)
	}
	if found, ok := blobstore.As[*memory.Store](s); ok {
		t.Errorf("As[*memory.Store] found %T below an encrypting layer", found)
	}
	type walkOpener interface {
		blobstore.Walker
		blobstore.Opener
	}
	if found, ok := blobstore.As[walkOpener](s); ok {
		t.Errorf("As of a Walker that is an Opener found %T below an encrypting layer", found)
	}
	if found, ok := blobstore.As[blobstore.Opener](bottom); !ok || found != blobstore.Opener(bottom) {
		t.Errorf("As[Opener] of a store that is one = %v, %v", found, ok)
	}
	if found, ok := blobstore.As[blobstore.Walker](sealed{nil}); ok {
		t.Errorf("As found %T below nothing", found)
	}
}

func TestPutHashesOnceWhereTheStoreHashesAnyway(t *testing.T) {
	data := []byte("a screenshot")
	// memory stores under the hash by itself; sealed has to be told it.
	for _, s := range []blobstore.Store{memory.New(blobstore.Verified), sealed{memory.New(blobstore.Opaque)}} {
		ref, err := blobstore.Put(t.Context(), s, data)
		if err != nil || ref != blobref.Of(data) {
			t.Fatalf("Put = %v, %v", ref, err)
		}
		if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
			t.Errorf("Get = %q, %v", got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ref, err := blobstore.Put(ctx, sealed{memory.New(blobstore.Opaque)}, data); !errors.Is(err, context.Canceled) || !ref.IsZero() {
		t.Errorf("Put with a cancelled context = %v, %v", ref, err)
	}
}

func TestModesSayTheirNames(t *testing.T) {
	for mode, want := range map[blobstore.Mode]string{blobstore.Verified: "verified", blobstore.Opaque: "opaque", 7: "Mode(7)"} {
		if got := mode.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

// forwarding is sealed with every ability that carries bytes, as layers have them.
type forwarding struct{ sealed }

func (f forwarding) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	data, err := f.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	return blob{bytes.NewReader(data)}, nil
}

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

func (f forwarding) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	plain := memory.New(blobstore.Verified)
	data, err := f.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := plain.Set(ctx, ref, data); err != nil {
		return nil, err
	}
	return plain.GetRange(ctx, ref, off, n)
}

func (f forwarding) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	if err := f.Set(ctx, ref, data); err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}

func (f forwarding) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	ref, err := f.PutBytes(ctx, data)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return ref, int64(len(data)), nil
}

func (f forwarding) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(r, size+1))
	if err == nil && int64(len(data)) != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return f.Set(ctx, ref, data)
}

func TestALayerPassesTheSuite(t *testing.T) {
	storetest.Run(t, func() blobstore.Store {
		return forwarding{sealed{memory.New(blobstore.Opaque)}}
	})
}
