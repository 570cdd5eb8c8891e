package blobstore

import (
	"context"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
)

// StreamSetter is a store that stores a stream under an id that its caller knows
// beforehand: what Put is to PutBytes, this is to Set. A layer that changes bytes on
// their way needs it of the store below, whose ids are not hashes of what it is given.
type StreamSetter interface {
	// SetStream is Set of the size bytes that r yields. A stream that fails, or has
	// more or fewer bytes, is an error, and nothing is stored.
	SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error
}

// SetStream stores the size bytes that r yields under ref in s. Errors match
// ErrUnsupported where s is no StreamSetter.
func SetStream(ctx context.Context, s Store, ref blobref.Ref, r io.Reader, size int64) error {
	if a, ok := s.(StreamSetter); ok {
		return a.SetStream(ctx, ref, r, size)
	}
	return fmt.Errorf("storing %s from a stream: %w: a store of this kind takes blobs as a whole only", ref, ErrUnsupported)
}
