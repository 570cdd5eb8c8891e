package blobstore

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/agentrun/agentrun/blobref"
)

// Stat describes a blob of s. Errors match ErrUnsupported where neither s nor a
// layer below it is a Stater.
func Stat(ctx context.Context, s Store, ref blobref.Ref) (Info, error) {
	if a, ok := As[Stater](s); ok {
		return a.Stat(ctx, ref)
	}
	return Info{}, fmt.Errorf("describing %s: %w: a store of this kind knows a blob only by reading it", ref, ErrUnsupported)
}

// Walk yields the blobs of s. Where neither s nor a layer below it is a Walker it
// yields one error that matches ErrUnsupported.
func Walk(ctx context.Context, s Store) iter.Seq2[Info, error] {
	if a, ok := As[Walker](s); ok {
		return a.Walk(ctx)
	}
	return func(yield func(Info, error) bool) {
		yield(Info{}, fmt.Errorf("listing blobs: %w: a store of this kind has no list of what it holds", ErrUnsupported))
	}
}

// Delete removes a blob from s. Errors match ErrUnsupported where neither s nor a
// layer below it is a Deleter.
func Delete(ctx context.Context, s Store, ref blobref.Ref) error {
	if a, ok := As[Deleter](s); ok {
		return a.Delete(ctx, ref)
	}
	return fmt.Errorf("deleting %s: %w: a store of this kind never forgets a blob", ref, ErrUnsupported)
}

// Open opens a blob of s as a stream. Errors match ErrUnsupported where s is no
// Opener.
func Open(ctx context.Context, s Store, ref blobref.Ref) (Blob, error) {
	if a, ok := s.(Opener); ok {
		return a.Open(ctx, ref)
	}
	return nil, fmt.Errorf("opening %s: %w: a store of this kind hands out blobs as a whole only", ref, ErrUnsupported)
}

// GetRange reads a part of a blob of s. Errors match ErrUnsupported where s is no
// RangeReader.
func GetRange(ctx context.Context, s Store, ref blobref.Ref, off, n int64) ([]byte, error) {
	if a, ok := s.(RangeReader); ok {
		return a.GetRange(ctx, ref, off, n)
	}
	return nil, fmt.Errorf("getting %d bytes at %d of %s: %w: a store of this kind hands out blobs as a whole only", n, off, ref, ErrUnsupported)
}

// PutStream stores what r yields in s. Errors match ErrUnsupported where s is no
// Putter.
func PutStream(ctx context.Context, s Store, r io.Reader) (blobref.Ref, int64, error) {
	if a, ok := s.(Putter); ok {
		return a.Put(ctx, r)
	}
	return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w: a store of this kind takes blobs as a whole only", ErrUnsupported)
}

// ModeOf returns the mode that s, or the first layer below it that knows, says it
// has. A store that does not say is taken for a Verified one, which is the
// stricter reading.
func ModeOf(s Store) Mode {
	if m, ok := As[Moder](s); ok {
		return m.Mode()
	}
	return Verified
}
