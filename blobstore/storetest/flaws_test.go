package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// queueing writes at Flush, from the slice that it was given.
type queueing struct {
	flawed
	mu    sync.Mutex
	later map[blobref.Ref][]byte // guarded by mu
}

func (s *queueing) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := errors.Join(ctx.Err(), check(ref, data)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.later == nil {
		s.later = make(map[blobref.Ref][]byte)
	}
	s.later[ref] = data
	return nil
}

func check(ref blobref.Ref, data []byte) error {
	if !ref.Verify(data) {
		return blobstore.ErrMismatch
	}
	return nil
}

func (s *queueing) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

func (s *queueing) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	_ = s.Flush(ctx)
	return s.Store.Get(ctx, ref)
}

func (s *queueing) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, data := range s.later {
		if err := s.Store.Set(ctx, ref, data); err != nil {
			return err
		}
		delete(s.later, ref)
	}
	return nil
}

// localOnly shares what SetLocal is given, and no more.
func (s *sharing) localOnly() blobstore.Store { return sharingLocal{s, s.Store} }

type sharingLocal struct {
	shared *sharing
	blobstore.Store
}

func (s sharingLocal) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.shared.Set(ctx, ref, data)
}

func (s sharingLocal) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	s.shared.mu.Lock()
	_, ok := s.shared.blobs[ref]
	s.shared.mu.Unlock()
	if ok {
		got, err := s.shared.Get(ctx, ref)
		return bytes.Clone(got), err
	}
	return s.Store.Get(ctx, ref)
}

// appending puts its trailer behind the bytes it was given, where they are.
type appending struct{ flawed }

func (s appending) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	_ = append(data, "checksum"...)
	return s.Store.Set(ctx, ref, data)
}

// rangesShared hands out parts of the slice it keeps.
type rangesShared struct{ *sharing }

func (s rangesShared) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	if _, err := s.Get(ctx, ref); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 {
		return nil, errors.New("negative range")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data := s.blobs[ref]
	off = min(off, int64(len(data)))
	return data[off : off+min(n, int64(len(data))-off)], nil
}

// inPlace writes a new value over the old one, which it has handed out.
type inPlace struct {
	mu    sync.Mutex
	blobs map[blobref.Ref][]byte // guarded by mu
}

func (s *inPlace) Mode() blobstore.Mode { return blobstore.Opaque }

func (s *inPlace) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := ctx.Err(); err != nil || ref.IsZero() {
		return errors.Join(err, errors.New("no"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.blobs[ref]; len(old) >= len(data) {
		s.blobs[ref] = old[:copy(old, data)]
		return nil
	}
	s.blobs[ref] = bytes.Clone(data)
	return nil
}

func (s *inPlace) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

func (s *inPlace) Flush(context.Context) error { return nil }

func (s *inPlace) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.blobs[ref]
	if err := ctx.Err(); err != nil || !ok {
		return nil, errors.Join(err, blobstore.ErrNotFound)
	}
	return data, nil
}

// staleCache hears of Set alone.
type staleCache struct {
	blobstore.Store
	seen *sync.Map
}

func (s staleCache) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if data, ok := s.seen.Load(ref); ok && ctx.Err() == nil {
		return bytes.Clone(data.([]byte)), nil
	}
	data, err := s.Store.Get(ctx, ref)
	if err == nil {
		s.seen.Store(ref, bytes.Clone(data))
	}
	return data, err
}

func (s staleCache) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	s.seen.Delete(ref)
	return s.Store.Set(ctx, ref, data)
}

// The layers below are flawed only when the store below them fails.

type absentForAnyError struct{ blobstore.Store }

func (s absentForAnyError) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.Store.Get(ctx, ref)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("getting %s: %w", ref, blobstore.ErrNotFound)
	}
	return data, err
}

type swallowing struct{ blobstore.Store }

func (s swallowing) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	_ = s.Store.Set(ctx, ref, data)
	return nil
}

type deaf struct{ blobstore.Store }

func (s deaf) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	return s.Store.Get(context.WithoutCancel(ctx), ref)
}

// backWriter keeps what it is given in memory, and believes that what it sent once
// has arrived.
type backWriter struct {
	*memory.Store
	below blobstore.Store
	mu    sync.Mutex
	later []blobref.Ref // guarded by mu
}

func (s *backWriter) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, ref)
	return s.Store.Set(ctx, ref, data)
}

func (s *backWriter) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	return blobref.Of(data), s.Set(ctx, blobref.Of(data), data)
}

func (s *backWriter) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return blobref.Of(data), int64(len(data)), s.Set(ctx, blobref.Of(data), data)
}

func (s *backWriter) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if data, err := s.Store.Get(ctx, ref); err == nil {
		return data, nil
	}
	return s.below.Get(ctx, ref)
}

func (s *backWriter) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.later {
		if data, err := s.Store.Get(ctx, ref); err == nil {
			_ = s.below.Set(ctx, ref, data)
		}
	}
	s.later = nil
	return nil
}
