package writethrough

import (
	"context"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

var _ blobstore.StreamSetter = (*Store)(nil)

// SetStream is Set of the size bytes that r yields. Errors match
// blobstore.ErrUnsupported where the local store takes no streams. Other calls for
// this ref wait until the stream has ended.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if err := s.setStreamAndQueue(ctx, ref, r, size); err != nil {
		return err
	}
	return s.waitForRoom(ctx, ref)
}

func (s *Store) setStreamAndQueue(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	unlock, err := s.refs.lock(ctx, ref)
	if err != nil {
		return err
	}
	defer unlock()
	defer s.fetchs.outdate(ref) // also what began to be fetched after this call began
	if err := blobstore.SetStream(ctx, s.local, ref, r, size); err != nil {
		return err
	}
	return s.enqueue(ctx, ref)
}
