package writethrough

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
)

// SetLocal stores the blob here. The remote never hears of it, unless it is queued
// already or Set later.
//
// In mode Opaque a blob of that id that is queued may have other bytes, which are sent
// from the local copy: SetLocal waits until they have arrived, for as long as its context
// lets it, and replaces nothing before. When they cannot go the error matches
// UndeliveredError. A Set by another process at the same moment is not waited for.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if s.mode == blobstore.Verified { // the same bytes
		return s.change(ctx, ref, func() error { return s.local.SetLocal(ctx, ref, data) })
	}
	for {
		var w *waiter
		err := s.change(ctx, ref, func() (err error) {
			if w, err = s.waitFor(ctx, ref); err != nil || w != nil {
				return err
			}
			return s.local.SetLocal(ctx, ref, data)
		})
		if err != nil || w == nil {
			return err
		}
		// Without the lock of the blob, so that Set and Delete need not wait as well.
		err = s.await(ctx, w.done)
		s.queue.forget(w)
		if err == nil && len(w.undel.Refs) > 0 {
			err = &w.undel
		}
		if err != nil {
			return fmt.Errorf("storing %s here alone: waiting for what is queued under this id: %w%s", ref, err, s.queue.lastFailure())
		}
	}
}

// SetIfAbsent stores the blob where nothing is under its id: at the remote, which all
// machines share, and then here. It needs the remote now, and its errors match
// blobstore.ErrUnsupported where that cannot tell who was first.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("storing %s: %w", ref, err)
	}
	err = s.change(ctx, ref, func() error {
		if _, err := blobstore.Stat(ctx, s.local, ref); !errors.Is(err, blobstore.ErrNotFound) {
			return err // one that is here is on its way there
		}
		if stored, err = blobstore.SetIfAbsent(ctx, s.remote, ref, data); err != nil || !stored {
			return err
		}
		return s.local.SetLocal(ctx, ref, data)
	})
	return stored, err
}

// waitFor returns a waiter for the blob, nil when it is not queued.
func (s *Store) waitFor(ctx context.Context, ref blobref.Ref) (w *waiter, err error) {
	err = s.log.Update(ctx, func() []idlog.Record {
		w = s.queue.waitFor(ref)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("storing %s: %w", ref, err)
	}
	return w, nil
}

// waitFor is wait for one blob, and nil when that is not queued.
func (q *queue) waitFor(ref blobref.Ref) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pending[ref]
	if e == nil {
		return nil
	}
	return q.waiter(map[blobref.Ref]*entry{ref: e})
}
