package encrypted_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

// early is a store as it was seen before anybody had stored something, until something is
// stored through it.
type early struct {
	blobstore.Store
	stored atomic.Bool
}

func (e *early) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if !e.stored.Load() {
		return nil, blobstore.ErrNotFound
	}
	return e.Store.Get(ctx, ref)
}

func (e *early) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	if !e.stored.Load() {
		return func(func(blobstore.Info, error) bool) {}
	}
	return blobstore.Walk(ctx, e.Store)
}

func (e *early) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	e.stored.Store(true)
	return e.Store.Set(ctx, ref, data)
}

func (e *early) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (bool, error) {
	e.stored.Store(true)
	return blobstore.SetIfAbsent(ctx, e.Store, ref, data)
}

func (e *early) Unwrap() blobstore.Store { return e.Store }

func TestTwoWhoBeginAStoreAtOnceHaveOneKeyForIDs(t *testing.T) {
	for name, below := range map[string]func(t *testing.T) blobstore.Store{
		"memory": func(*testing.T) blobstore.Store { return memory.New(blobstore.Opaque) },
		"a directory": func(t *testing.T) blobstore.Store {
			s, err := localdir.Open(t.TempDir(), localdir.Options{Mode: blobstore.Opaque})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"a file": func(t *testing.T) blobstore.Store {
			s, _, err := diskkv.Open(t.Context(), t.TempDir()+"/db", diskkv.Options{Mode: blobstore.Opaque})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		},
		"a remote": func(t *testing.T) blobstore.Store {
			s, err := writethrough.New(memory.New(blobstore.Opaque), retry.New(memory.New(blobstore.Opaque), retry.Policy{}), t.TempDir(), writethrough.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared, keys := below(t), ring(t, "pass")
			opts := encrypted.Options{KeyedIDs: true}
			blobs := make(map[blobref.Ref][]byte)
			for i, s := range []*encrypted.Store{
				open(t, shared, keys, opts),
				open(t, &early{Store: shared}, keys, opts), // which looked before the first one wrote
			} {
				data := random(100, byte(i))
				blobs[put(t, s, data)] = data
			}
			holds(t, open(t, shared, keys, opts), blobs)
		})
	}
}
