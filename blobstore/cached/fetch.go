package cached

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// fetch is one Get of the store below, for all who wait for it.
type fetch struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when what follows is there

	data   []byte
	err    error
	shared bool // data belongs to the cache, or to several

	waiting int  // guarded by Store.mu
	joined  int  // guarded by Store.mu; how many ever waited
	stale   bool // guarded by Store.mu; a write ended meanwhile
}

// fetch gets ref from the store below, together with everybody else who wants it
// now.
func (s *Store) fetch(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	f, e := s.join(ctx, ref)
	if e != nil {
		if e.absent {
			return nil, fmt.Errorf("getting %s: %w", ref, blobstore.ErrNotFound)
		}
		return copyOf(e.data), nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		s.leave(ref, f)
		return nil, fmt.Errorf("getting %s: %w", ref, ctx.Err())
	}
	switch {
	case f.err != nil:
		return nil, f.err
	case f.shared:
		return copyOf(f.data), nil
	}
	return f.data, nil
}

// join returns the fetch of ref that is under way, or a new one. When one ended
// since the caller looked, it returns what that left.
func (s *Store) join(ctx context.Context, ref blobref.Ref) (*fetch, *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fetches[ref]
	if f == nil {
		if e := s.kept.find(ref); e != nil {
			return nil, e
		}
		f = &fetch{done: make(chan struct{})}
		// It lives as long as somebody waits, which need not be its first caller.
		ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		s.fetches[ref] = f
		go s.run(ctx, ref, f)
	}
	f.waiting++
	f.joined++
	return f, nil
}

// leave is for a caller whose context ended. The last one ends the fetch.
func (s *Store) leave(ref blobref.Ref, f *fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	if s.fetches[ref] == f {
		delete(s.fetches, ref)
	}
	f.cancel()
}

// run is the fetch itself.
func (s *Store) run(ctx context.Context, ref blobref.Ref, f *fetch) {
	defer f.cancel()
	data, err := s.inner.Get(ctx, ref)
	switch {
	case err != nil:
		data = nil
	case s.verified && !ref.Verify(data):
		data, err = nil, fmt.Errorf("getting %s: %w (they are %s)", ref, blobstore.ErrCorrupt, blobref.Of(data))
	case data == nil:
		data = []byte{}
	}
	kept := s.ended(ref, f, data, err)
	f.data, f.err, f.shared = data, err, kept
	close(f.done)
}

// ended keeps what was fetched, unless a write ended meanwhile: what was fetched
// may be older. It reports whether more than one will have the bytes.
func (s *Store) ended(ref blobref.Ref, f *fetch, data []byte, err error) (shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetches[ref] == f {
		delete(s.fetches, ref)
	}
	shared = f.joined > 1
	switch {
	case f.stale:
	case err == nil && s.kept.fits(cap(data)):
		s.kept.add(&entry{ref: ref, data: data})
		shared = true
	case errors.Is(err, blobstore.ErrNotFound) && s.absentFor > 0:
		s.kept.add(&entry{ref: ref, absent: true, until: time.Now().Add(s.absentFor)})
	}
	return shared
}

// writes counts the calls that change which bytes the store below has under a
// ref: in mode Verified that is Delete alone, in mode Opaque every write.
type writes struct {
	begun   uint64
	running int
}

// write is a call that stores or deletes below.
type write struct {
	changes bool   // it is one of writes
	begun   uint64 // writes.begun when it began
	alone   bool   // no other of writes was running then
}

func (s *Store) beginWrite(changes bool) write {
	s.mu.Lock()
	defer s.mu.Unlock()
	alone := s.writes.running == 0
	if changes {
		s.writes.begun++
		s.writes.running++
	}
	return write{changes: changes, begun: s.writes.begun, alone: alone}
}

// endWrite forgets what may no longer be so and keeps data, unless that is nil or
// another write ran at the same time: which of the two the store below did last
// is not known here.
func (s *Store) endWrite(w write, ref blobref.Ref, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	undisturbed := w.alone && s.writes.begun == w.begun
	if w.changes {
		s.writes.running--
	}
	if f := s.fetches[ref]; f != nil {
		f.stale = true
		delete(s.fetches, ref)
	}
	e := s.kept.find(ref)
	if e != nil && !e.absent && !w.changes {
		return // a Set of the bytes that are kept
	}
	s.kept.remove(ref)
	if data != nil && undisturbed {
		s.kept.add(&entry{ref: ref, data: data})
	}
}

// forgetAll is for a write that failed and does not know of which blob.
func (s *Store) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.fetches {
		f.stale = true
	}
	clear(s.fetches)
	s.kept.clear()
}
