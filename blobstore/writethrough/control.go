package writethrough

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
)

// PutBytes is Set under the reference of data.
func (s *Store) PutBytes(ctx context.Context, data []byte) (_ blobref.Ref, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	ref, err := s.putAndQueue(ctx, func() (blobref.Ref, error) { return blobstore.Put(ctx, s.local, data) })
	if err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}

// putAndQueue queues what put stores, for a call that tells the reference afterwards.
func (s *Store) putAndQueue(ctx context.Context, put func() (blobref.Ref, error)) (blobref.Ref, error) {
	if err := ctx.Err(); err != nil {
		return blobref.Ref{}, fmt.Errorf("storing a blob: %w", err)
	}
	ref, err := s.putLocal(put)
	if err != nil {
		return ref, err
	}
	unlock, err := s.refs.lock(ctx, ref)
	if err != nil {
		return ref, err
	}
	err = s.enqueue(ctx, ref)
	unlock()
	if err != nil {
		return ref, err
	}
	return ref, s.waitForRoom(ctx, ref)
}

func (s *Store) putLocal(put func() (blobref.Ref, error)) (blobref.Ref, error) {
	if s.mode == blobstore.Verified {
		return put() // what is fetched meanwhile has the same bytes
	}
	s.fetchs.outdateAll() // one may be a stream that holds the lock for long
	s.fetchs.keeping.RLock()
	defer s.fetchs.keeping.RUnlock()
	ref, err := put()
	if err == nil {
		s.fetchs.outdate(ref)
	}
	return ref, err
}

// Stat describes the blob as the local store has it, else as the remote does.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	info, err := blobstore.Stat(ctx, s.local, ref)
	if !errors.Is(err, blobstore.ErrNotFound) || ref.IsZero() {
		return info, err
	}
	return blobstore.Stat(ctx, s.remote, ref)
}

// ErrRemoteUnlisted is in the last error of a Walk that could not list all of the remote
// store, beside the cause.
var ErrRemoteUnlisted = errors.New("the remote store cannot be listed")

// Walk yields what the remote has, and then what only the local store has. It keeps
// the ids of the remote in memory meanwhile. When the remote cannot be listed, the walk
// yields all that is here nevertheless, and ends with an error that matches
// ErrRemoteUnlisted.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		there := make(map[blobref.Ref]struct{})
		var unlisted error
		for info, err := range blobstore.Walk(ctx, s.remote) {
			if err != nil && info.Ref.IsZero() {
				unlisted = fmt.Errorf("%w: %w", ErrRemoteUnlisted, err)
				break
			}
			if err == nil {
				there[info.Ref] = struct{}{}
			}
			if !yield(info, err) {
				return
			}
		}
		for info, err := range blobstore.Walk(ctx, s.local) {
			if err != nil && info.Ref.IsZero() {
				if unlisted != nil {
					err = fmt.Errorf("%w; nor the remote store: %v", err, unlisted) // which is the lesser of the two
				}
				yield(info, err)
				return
			}
			if _, twice := there[info.Ref]; twice && err == nil {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
		if unlisted != nil {
			yield(blobstore.Info{}, unlisted)
		}
	}
}

// Delete removes the blob from the queue, from the remote and here. Without the remote
// it fails, and the blob stays; one that neither store has is blobstore.ErrNotFound.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	for _, store := range []blobstore.Store{s.local, s.remote} {
		if _, ok := blobstore.As[blobstore.Deleter](store); !ok {
			return blobstore.Delete(ctx, store, ref) // which says that it cannot
		}
	}
	return s.change(ctx, ref, func() error { return s.deleteBoth(ctx, ref) })
}

func (s *Store) deleteBoth(ctx context.Context, ref blobref.Ref) error {
	var waited bool
	err := s.log.Update(ctx, func() []idlog.Record {
		waited = s.queue.waits(ref)
		return []idlog.Record{{Kind: idlog.Deleted, Ref: ref}}
	})
	if err == nil {
		err = s.queue.landing(ctx, ref)
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", ref, s.restore(ctx, ref, waited, err))
	}
	there := blobstore.Delete(ctx, s.remote, ref)
	if there != nil && !errors.Is(there, blobstore.ErrNotFound) {
		return fmt.Errorf("deleting %s from the remote store: %w", ref, s.restore(ctx, ref, waited, there))
	}
	here := blobstore.Delete(ctx, s.local, ref)
	if errors.Is(here, blobstore.ErrNotFound) {
		return there // nil when only the remote had it
	}
	return here
}

// restore queues a blob again that could not be deleted.
func (s *Store) restore(ctx context.Context, ref blobref.Ref, waited bool, cause error) error {
	if !waited {
		return cause
	}
	// The call failed, maybe because its context ended; the blob must go anyway.
	return errors.Join(cause, s.enqueue(context.WithoutCancel(ctx), ref))
}
