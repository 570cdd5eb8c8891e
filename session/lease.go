package session

import (
	"context"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

// leaser is a store with a collector, which leaves alone what is stored under a
// lease.
type leaser interface {
	NewLease() (*localdir.Lease, error)
}

// LeaseBlobs keeps the collector from blobs that nothing names yet: take the lease
// before the first is stored with Manager.Blobs, and call release when what names them
// is on the disk. Sessions do so by themselves.
func (m *Manager) LeaseBlobs() (release func() error, err error) {
	store, ok := blobstore.As[leaser](m.blobs.store)
	if !ok {
		return func() error { return nil }, nil // nothing collects it
	}
	if err := m.mark(); err != nil {
		return nil, err
	}
	l, err := store.NewLease()
	if err != nil {
		return nil, err
	}
	return l.Close, nil
}

// pins keep what a session has stored from the collector.
type pins struct {
	mu      sync.Mutex   // guards all below; held for the time of a write to the registry
	release func() error // gives back the lease; nil before the first blob
	listed  listed       // what the registry of the home knows of the session
	closed  bool
}

// putBlob stores a blob of an entry that is not written yet. The session keeps the
// lease until it is closed: an entry may be pending for long, and one that another
// program's rewrite drops is written again, with blobs that nothing names meanwhile.
func (s *Session) putBlob(ctx context.Context, data []byte) (blobref.Ref, error) {
	if err := s.prepareHome(); err != nil {
		return blobref.Ref{}, err
	}
	if err := s.pin(); err != nil {
		return blobref.Ref{}, err
	}
	ref, err := blobstore.Put(ctx, s.blobs, data)
	if err != nil {
		return blobref.Ref{}, err
	}
	return ref, s.registerBlob(ctx, ref)
}

// pin takes the lease, the first time.
func (s *Session) pin() error {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	switch {
	case s.pins.closed:
		return ErrClosed
	case s.pins.release != nil:
		return nil
	}
	var err error
	s.pins.release, err = s.manager.LeaseBlobs()
	return err
}

// unpin gives the lease back for good.
func (s *Session) unpin() {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	if s.pins.release != nil {
		s.pins.release() // what it cannot remove, the collector does
	}
	s.pins.release, s.pins.closed = nil, true
}
