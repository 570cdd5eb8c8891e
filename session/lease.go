package session

import (
	"context"

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

// putBlob stores a blob of an entry that is not written yet. The session keeps the
// lease until it is closed: an entry may be pending for long, and one that another
// program's rewrite drops is written again, with blobs that nothing names meanwhile.
func (s *Session) putBlob(ctx context.Context, data []byte) (blobref.Ref, error) {
	if err := s.prepareHome(); err != nil {
		return blobref.Ref{}, err
	}
	if s.writer.release == nil {
		var err error
		if s.writer.release, err = s.manager.LeaseBlobs(); err != nil {
			return blobref.Ref{}, err
		}
	}
	ref, err := blobstore.Put(ctx, s.blobs, data)
	if err != nil {
		return blobref.Ref{}, err
	}
	return ref, s.registerBlob(ctx, ref)
}
