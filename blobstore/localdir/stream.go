package localdir

import (
	"context"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

var _ blobstore.StreamSetter = (*Store)(nil)

// SetStream is Set of the size bytes that r yields, in bounded memory: what has more
// than 256 KiB is spooled to a temporary.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if ref.IsZero() {
		return fmt.Errorf("storing %d bytes: %w: the zero reference names no blob", size, blobref.ErrInvalid)
	}
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	n, err := fill(buf, r)
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if n < len(buf) {
		if int64(n) != size {
			return wrongSize(ref, int64(n), size)
		}
		return s.Set(ctx, ref, buf[:n])
	}
	// One byte more than was announced is enough to know that there is more.
	in, err := s.spool(ctx, buf, io.LimitReader(r, max(size-int64(n), 0)+1))
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	switch {
	case in.size != size:
		err = wrongSize(ref, in.size, size)
	case s.opts.Mode == blobstore.Verified && in.ref != ref:
		err = fmt.Errorf("storing %s: %w (they are %s)", ref, blobstore.ErrMismatch, in.ref)
	}
	if err != nil {
		_ = s.fsys.Remove(in.temp) // a leftover is only space
		return err
	}
	in.ref = ref
	return s.settle(ctx, in)
}

func wrongSize(ref blobref.Ref, found, announced int64) error {
	return fmt.Errorf("storing %s: the stream has %d bytes, and %d were announced", ref, found, announced)
}
