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
	mu      sync.Mutex
	calls   map[blobref.Ref]*fetchCall // those that a caller may join; guarded by mu
	running map[*fetchCall]struct{}    // guarded by mu
	done    bool                       // no more begin; guarded by mu
	all     sync.WaitGroup

	// keeping is held, in mode Opaque, by who keeps what was fetched, and for
	// reading by who stores under a reference that is known afterwards only.
	keeping sync.RWMutex
}

// fetchCall is one fetch, and those who wait for it.
type fetchCall struct {
	cancel   context.CancelFunc
	waiting  int           // guarded by fetches.mu
	outdated bool          // the blob was stored or deleted meanwhile; guarded by fetches.mu
	holds    bool          // the lock of the blob, for as long as a stream takes; guarded by fetches.mu
	done     chan struct{} // closed when the fields below are set
	data     []byte        // nil when the blob was streamed
	err      error
}

// outdate keeps fetches of ref that run from storing what they get.
func (f *fetches) outdate(ref blobref.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call := f.calls[ref]; call != nil {
		f.drop(ref, call)
	}
}

// outdateAll is outdate for all references.
func (f *fetches) outdateAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, call := range f.calls {
		f.drop(ref, call)
	}
}

// drop is called with f.mu held.
func (f *fetches) drop(ref blobref.Ref, call *fetchCall) {
	call.outdated = true
	delete(f.calls, ref) // who comes from now on fetches anew
	if call.holds {
		call.cancel()
	}
}

// hold notes that a fetch is going to hold locks until it ends. It is an error when
// that must not be any more.
func (f *fetches) hold(call *fetchCall) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call.outdated {
		return errOutdated
	}
	call.holds = true
	return nil
}

func (f *fetches) isOutdated(call *fetchCall) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return call.outdated
}

// close ends all fetches and waits for them.
func (f *fetches) close() {
	f.mu.Lock()
	f.done = true
	for call := range f.running {
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
			call.outdated = true
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
		f.calls, f.running = make(map[blobref.Ref]*fetchCall), make(map[*fetchCall]struct{})
	}
	f.calls[ref], f.running[call] = call, struct{}{}
	f.all.Go(func() {
		defer cancel()
		call.data, call.err = s.fetchNow(fctx, ref, call)
		f.mu.Lock()
		delete(f.running, call)
		if f.calls[ref] == call {
			delete(f.calls, ref)
		}
		f.mu.Unlock()
		close(call.done)
	})
	return call, nil
}

func (s *Store) fetchNow(ctx context.Context, ref blobref.Ref, call *fetchCall) ([]byte, error) {
	streamed, err := s.fetchStream(ctx, ref, call)
	if err != nil && s.fetchs.isOutdated(call) {
		err = errOutdated
	}
	if streamed || err != nil {
		return nil, err
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
	if s.fetchs.isOutdated(call) {
		return nil
	}
	return s.local.SetLocal(ctx, ref, data)
}

// look runs local, which asks the local store, and when that misses the blob fetches
// it. The data is nil when local has the answer.
func (s *Store) look(ctx context.Context, ref blobref.Ref, local func() error) (data []byte, err error) {
	// A blob that was streamed, or stored by others meanwhile, is looked for again;
	// more than once only if it keeps going.
	for tries := 5; ; tries-- {
		err := local()
		if !missing(err) || ref.IsZero() || tries == 0 {
			return nil, err
		}
		data, streamed, ferr := s.fetch(ctx, ref)
		switch {
		case streamed, errors.Is(ferr, errOutdated):
			continue
		case errors.Is(ferr, blobstore.ErrNotFound):
			return nil, err // absent, or damaged here and absent there
		case ferr != nil && errors.Is(err, blobstore.ErrCorrupt):
			return nil, errors.Join(err, ferr)
		}
		return data, ferr
	}
}

// Get returns the blob of the local store, else that of the remote.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	var here []byte
	data, err := s.look(ctx, ref, func() (err error) {
		here, err = s.local.Get(ctx, ref)
		return err
	})
	if data == nil {
		return here, err
	}
	return data, err
}

// Open opens the blob of the local store, else that of the remote, which it brings here
// first.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (_ blobstore.Blob, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	var here blobstore.Blob
	data, err := s.look(ctx, ref, func() (err error) {
		here, err = blobstore.Open(ctx, s.local, ref)
		return err
	})
	if data == nil {
		return here, err
	}
	return bytesBlob{bytes.NewReader(data)}, err
}

// GetRange reads a part of the blob of the local store, else of that of the remote, all
// of which it brings here first.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	var here []byte
	data, err := s.look(ctx, ref, func() (err error) {
		here, err = blobstore.GetRange(ctx, s.local, ref, off, n)
		return err
	})
	if data == nil {
		return here, err
	}
	off = min(off, int64(len(data)))
	return data[off : off+min(n, int64(len(data))-off)], err
}
