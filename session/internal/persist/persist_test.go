package persist

import (
	"context"
	"errors"
	"slices"

	"github.com/agentrun/agentrun/blobref"
)

var errAbsent = errors.New("no such blob")

// blobs is a store in memory.
type blobs map[blobref.Ref][]byte

func (m blobs) put(_ context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	m[ref] = slices.Clone(data)
	return ref, nil
}

func (m blobs) get(_ context.Context, ref blobref.Ref) ([]byte, error) {
	data, ok := m[ref]
	if !ok {
		return nil, errAbsent
	}
	return data, nil
}
