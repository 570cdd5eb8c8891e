package writethrough

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// fetches are the blobs that come from the remote at this moment. The zero value has
// none.
type fetches struct {
	mu    sync.Mutex
	calls map[blobref.Ref]*fetchCall // guarded by mu
	done  bool                       // no more begin; guarded by mu
	all   sync.WaitGroup

	// keeping is held, in mode Opaque, by who keeps what was fetched, and for
	// reading by who stores under a reference that is known afterwards only.
	keeping sync.RWMutex
}

// fetchCall is one fetch, and those who wait for it.
type fetchCall struct {
	cancel   context.CancelFunc
	waiting  int           // guarded by fetches.mu
	outdated bool          // the blob was stored or deleted meanwhile; guarded by fetches.mu
	done     chan struct{} // closed when the fields below are set
	data     []byte        // nil when the blob was streamed
	err      error
}

// outdate keeps fetches of ref that run from storing what they get.
func (f *fetches) outdate(ref blobref.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call := f.calls[ref]; call != nil {
		call.outdated = true
		delete(f.calls, ref) // who comes from now on fetches anew
	}
}

// close ends all fetches and waits for them.
func (f *fetches) close() {
	f.mu.Lock()
	f.done = true
	for _, call := range f.calls {
		call.cancel()
	}
	f.mu.Unlock()
	f.all.Wait()
}

// fetch brings a blob from the remote to the local store and returns its bytes, which
// are the caller's, unless it was streamed. Callers at one time share one fetch; it
// ends when none of them waits any more.
func (s *Store) fetch(ctx context.Context, ref blobref.Ref) (data []byte, streamed bool, err error) {
	call, err := s.joinFetch(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	select {
	case <-call.done:
		if call.err != nil {
			return nil, false, call.err
		}
		return bytes.Clone(call.data), call.data == nil, nil
	case <-ctx.Done():
		s.fetchs.mu.Lock()
		defer s.fetchs.mu.Unlock()
		if call.waiting--; call.waiting == 0 {
			call.cancel()
			if s.fetchs.calls[ref] == call {
				delete(s.fetchs.calls, ref) // nobody joins one that is ending
			}
		}
		return nil, false, fmt.Errorf("getting %s from the remote store: %w", ref, ctx.Err())
	}
}

func (s *Store) joinFetch(ctx context.Context, ref blobref.Ref) (*fetchCall, error) {
	f := &s.fetchs
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return nil, fmt.Errorf("getting %s from the remote store: %w", ref, errClosed)
	}
	if call := f.calls[ref]; call != nil {
		call.waiting++
		return call, nil
	}
	// The span of the first caller goes on; its end does not end the fetch.
	fctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	call := &fetchCall{cancel: cancel, waiting: 1, done: make(chan struct{})}
	if f.calls == nil {
		f.calls = make(map[blobref.Ref]*fetchCall)
	}
	f.calls[ref] = call
	f.all.Go(func() {
		defer cancel()
		call.data, call.err = s.fetchNow(fctx, ref, call)
		f.mu.Lock()
		if f.calls[ref] == call {
			delete(f.calls, ref)
		}
		f.mu.Unlock()
		close(call.done)
	})
	return call, nil
}

func (s *Store) fetchNow(ctx context.Context, ref blobref.Ref, call *fetchCall) ([]byte, error) {
	if s.mode == blobstore.Verified {
		if streamed, err := s.fetchStream(ctx, ref); streamed || err != nil {
			return nil, err
		}
	}
	data, err := s.remote.Get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("getting it from the remote store: %w", err)
	}
	if s.mode == blobstore.Verified && !ref.Verify(data) {
		return nil, fmt.Errorf("getting %s from the remote store: %w: %d bytes that are %s", ref, blobstore.ErrCorrupt, len(data), blobref.Of(data))
	}
	if err := s.keep(ctx, ref, data, call); err != nil && ctx.Err() == nil {
		s.report(fmt.Errorf("keeping %s, which came from the remote store: %w", ref, err))
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// keep stores what was fetched, unless the blob was stored or deleted since.
func (s *Store) keep(ctx context.Context, ref blobref.Ref, data []byte, call *fetchCall) error {
	unlock, err := s.refs.lock(ctx, ref)
	if err != nil {
		return err
	}
	defer unlock()
	if s.mode == blobstore.Opaque {
		if !s.fetchs.keeping.TryLock() {
			return nil // somebody stores a blob, which may be this one
		}
		defer s.fetchs.keeping.Unlock()
	}
	s.fetchs.mu.Lock()
	outdated := call.outdated
	s.fetchs.mu.Unlock()
	if outdated {
		return nil
	}
	return s.local.SetLocal(ctx, ref, data)
}

// fetchStream brings a large blob where both stores can stream.
func (s *Store) fetchStream(ctx context.Context, ref blobref.Ref) (bool, error) {
	opener, canOpen := s.remote.(blobstore.Opener)
	putter, canPut := s.local.(blobstore.Putter)
	if !canOpen || !canPut {
		return false, nil
	}
	if info, err := blobstore.Stat(ctx, s.remote, ref); err != nil || info.Size <= s.opts.StreamOver {
		return false, nil
	}
	b, err := opener.Open(ctx, ref)
	if errors.Is(err, blobstore.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening it in the remote store: %w", err)
	}
	defer b.Close()
	// Bytes are stored under their own hash: a stream that is not what was asked
	// for becomes another blob, which nobody asks for.
	got, _, err := putter.Put(ctx, readerOf(ctx, b))
	switch {
	case errors.Is(err, blobstore.ErrUnsupported):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("keeping %s, which comes from the remote store: %w", ref, err)
	case got != ref:
		return false, fmt.Errorf("getting %s from the remote store: %w: they are %s", ref, blobstore.ErrCorrupt, got)
	}
	return true, nil
}

// Get returns the blob of the local store, else that of the remote.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	data, err := s.local.Get(ctx, ref)
	if !missing(err) {
		return data, err
	}
	return s.getRemote(ctx, ref, err)
}

// getRemote fetches a blob that the local store answered with cause.
func (s *Store) getRemote(ctx context.Context, ref blobref.Ref, cause error) ([]byte, error) {
	if ref.IsZero() {
		return nil, cause
	}
	data, streamed, err := s.fetch(ctx, ref)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		return nil, cause // absent, or damaged here and absent there
	case err != nil && errors.Is(cause, blobstore.ErrCorrupt):
		return nil, errors.Join(cause, err)
	case err != nil:
		return nil, err
	case streamed:
		return s.local.Get(ctx, ref)
	}
	return data, nil
}

// Open opens the blob of the local store, after bringing it there from the remote if
// need be.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (_ blobstore.Blob, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	b, err := blobstore.Open(ctx, s.local, ref)
	if !missing(err) {
		return b, err
	}
	data, err := s.getRemoteOrStream(ctx, ref, err)
	if err != nil {
		return nil, err
	}
	if b, err := blobstore.Open(ctx, s.local, ref); err == nil || data == nil {
		return b, err
	}
	return bytesBlob{bytes.NewReader(data)}, nil // it could not be kept
}

// GetRange reads a part of the blob of the local store, after bringing all of it there
// from the remote if need be.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	part, err := blobstore.GetRange(ctx, s.local, ref, off, n)
	if !missing(err) {
		return part, err
	}
	data, err := s.getRemoteOrStream(ctx, ref, err)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return blobstore.GetRange(ctx, s.local, ref, off, n)
	}
	off = min(off, int64(len(data)))
	return bytes.Clone(data[off : off+min(n, int64(len(data))-off)]), nil
}

// getRemoteOrStream is getRemote that returns nil, and no error, when the blob is in
// the local store by now and was never in memory.
func (s *Store) getRemoteOrStream(ctx context.Context, ref blobref.Ref, cause error) ([]byte, error) {
	if ref.IsZero() {
		return nil, cause
	}
	data, _, err := s.fetch(ctx, ref)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		return nil, cause
	case err != nil && errors.Is(cause, blobstore.ErrCorrupt):
		return nil, errors.Join(cause, err)
	}
	return data, err
}
