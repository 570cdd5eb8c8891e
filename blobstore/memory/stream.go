package memory

import (
	"context"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

var _ blobstore.StreamSetter = (*Store)(nil)

// SetStream is Set of what r yields, which is as long as the caller says.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	data, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if int64(len(data)) != size {
		return fmt.Errorf("storing %s: the stream has not the %d bytes that were announced", ref, size)
	}
	return s.Set(ctx, ref, data)
}
