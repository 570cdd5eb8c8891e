package blobstore

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
)

// ExclusiveSetter is a store in which, of many who store something under one id at once,
// in any process, one does.
type ExclusiveSetter interface {
	// SetIfAbsent stores data under ref unless there is something under it, and reports
	// whether it did. What is there is not looked at: a damaged blob is not healed.
	// Errors are those of Set; after one that matches ErrUnavailable it may be stored.
	SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error)
}

// SetIfAbsent stores data under ref in s where nothing is. Errors match ErrUnsupported
// where s is no ExclusiveSetter.
func SetIfAbsent(ctx context.Context, s Store, ref blobref.Ref, data []byte) (stored bool, err error) {
	if a, ok := s.(ExclusiveSetter); ok {
		return a.SetIfAbsent(ctx, ref, data)
	}
	return false, fmt.Errorf("storing %s where nothing is: %w: a store of this kind cannot tell who was first", ref, ErrUnsupported)
}
