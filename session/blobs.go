package session

import (
	"bytes"
	"context"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// blobs is the store of a home: what is written goes to store, what is read may
// also come from kept, where the blobs of sessions are that the program which
// collects store does not see.
type blobs struct {
	store, kept blobstore.Store
}

var (
	_ blobstore.Store       = blobs{}
	_ blobstore.Opener      = blobs{}
	_ blobstore.BytesPutter = blobs{}
	_ blobstore.Putter      = blobs{}
	_ blobstore.Unwrapper   = blobs{}
)

func (b blobs) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := b.store.Get(ctx, ref)
	if err != nil {
		if data, kerr := b.kept.Get(ctx, ref); kerr == nil {
			return data, nil
		}
	}
	return data, err
}

func (b blobs) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	blob, err := open(ctx, b.store, ref)
	if err != nil {
		if blob, kerr := open(ctx, b.kept, ref); kerr == nil {
			return blob, nil
		}
	}
	return blob, err
}

// open streams a blob, or loads it where the store has no streams.
func open(ctx context.Context, s blobstore.Store, ref blobref.Ref) (blobstore.Blob, error) {
	if o, ok := blobstore.As[blobstore.Opener](s); ok {
		return o.Open(ctx, ref)
	}
	data, err := s.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	return loaded{bytes.NewReader(data)}, nil
}

// loaded is a blob in memory.
type loaded struct{ *bytes.Reader }

func (loaded) Close() error { return nil }

func (b blobs) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	return b.store.Set(ctx, ref, data)
}

func (b blobs) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return b.store.SetLocal(ctx, ref, data)
}

func (b blobs) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	return blobstore.Put(ctx, b.store, data)
}

func (b blobs) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	if p, ok := blobstore.As[blobstore.Putter](b.store); ok {
		return p.Put(ctx, r)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	ref, err := blobstore.Put(ctx, b.store, data)
	return ref, int64(len(data)), err
}

func (b blobs) Flush(ctx context.Context) error { return b.store.Flush(ctx) }

func (b blobs) Unwrap() blobstore.Store { return b.store }
