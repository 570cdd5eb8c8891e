package blobstore

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
)

// Healer is a layer that keeps copies of blobs which a store below it has too. In
// mode Opaque it cannot tell a damaged copy; the layer above that can tells it.
type Healer interface {
	// Heal replaces the copy of ref by what the other store has, and returns nil
	// when that was done: Get then returns other bytes than before, which may be
	// right. It never replaces a copy that the other store does not have yet. An
	// error matches ErrNotFound where the other store has no such blob, and
	// ErrCorrupt where nothing better is to be had.
	Heal(ctx context.Context, ref blobref.Ref) error
}

// Heal tells s that the bytes it has of ref are damaged. Errors match ErrUnsupported
// where neither s nor a layer below it is a Healer.
func Heal(ctx context.Context, s Store, ref blobref.Ref) error {
	if a, ok := As[Healer](s); ok {
		return a.Heal(ctx, ref)
	}
	return fmt.Errorf("healing %s: %w: a store of this kind has no second copy", ref, ErrUnsupported)
}
