package writethrough

import (
	"bytes"
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
)

var _ blobstore.Healer = (*Store)(nil)

// Heal replaces the local copy of a blob by what the remote store has. A blob that
// has not reached that yet stays as it is: blobstore.ErrCorrupt, as where both stores
// have the same bytes.
func (s *Store) Heal(ctx context.Context, ref blobref.Ref) error {
	if err := s.change(ctx, ref, func() error { return s.heal(ctx, ref) }); err != nil {
		return fmt.Errorf("healing %s: %w", ref, err)
	}
	return nil
}

func (s *Store) heal(ctx context.Context, ref blobref.Ref) error {
	waits := false
	err := s.log.Update(ctx, func() []idlog.Record {
		waits = s.queue.waits(ref)
		return nil
	})
	if err != nil {
		return err
	}
	if waits {
		return fmt.Errorf("%w: the remote store does not have it yet", blobstore.ErrCorrupt)
	}
	there, err := s.remote.Get(ctx, ref)
	if err != nil {
		return fmt.Errorf("getting it from the remote store: %w", err)
	}
	if s.mode == blobstore.Verified && !ref.Verify(there) {
		return fmt.Errorf("%w: so it is in the remote store", blobstore.ErrCorrupt)
	}
	if here, err := s.local.Get(ctx, ref); err == nil && bytes.Equal(here, there) {
		return fmt.Errorf("%w: the remote store has the same bytes", blobstore.ErrCorrupt)
	}
	return s.local.SetLocal(ctx, ref, there)
}
