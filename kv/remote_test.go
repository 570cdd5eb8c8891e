package kv_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/kv"
)

// pair returns a Remote over a Controlled of store, in this process.
func pair(t *testing.T, store blobstore.Store, controlled kv.ControlledOptions, remote kv.RemoteOptions) (*kv.Remote, *kv.Controlled) {
	t.Helper()
	c := kv.NewControlled(store, controlled)
	asker, answerer := kv.Pipe(c.MaxMessage())
	served := make(chan error, 1)
	go func() { served <- c.Serve(t.Context(), answerer) }()
	r := kv.NewRemote(kv.Once(asker), remote)
	t.Cleanup(func() {
		r.Close()
		<-served
	})
	return r, c
}

// trusting says that it is Verified and checks nothing: what it is damaged by comes
// out of it, and what must not go in is for others to stop.
type trusting struct{ *memory.Store }

func (trusting) Mode() blobstore.Mode { return blobstore.Verified }

func TestARemoteIsAStore(t *testing.T) {
	t.Run("verified", func(t *testing.T) {
		below := make(map[blobstore.Store]trusting)
		storetest.Run(t, func() blobstore.Store {
			store := trusting{memory.New(blobstore.Opaque)}
			r, _ := pair(t, store, kv.ControlledOptions{}, kv.RemoteOptions{})
			below[r] = store
			return r
		}, storetest.NotLocal(), storetest.Corrupt(func(s blobstore.Store, ref blobref.Ref, data []byte) error {
			return below[s].Set(context.Background(), ref, data)
		}))
	})
	t.Run("opaque", func(t *testing.T) {
		storetest.Run(t, func() blobstore.Store {
			r, _ := pair(t, memory.New(blobstore.Opaque), kv.ControlledOptions{}, kv.RemoteOptions{Mode: blobstore.Opaque})
			return r
		}, storetest.NotLocal(), storetest.Opaque())
	})
}

// counting counts how many gets run at once.
type counting struct {
	blobstore.Store
	open          chan struct{}
	running, most atomic.Int64
}

func (c *counting) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	now := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	<-c.open
	return c.Store.Get(ctx, ref)
}

func TestTheStoreOfThePeerFails(t *testing.T) {
	storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
		r, _ := pair(t, inner, kv.ControlledOptions{}, kv.RemoteOptions{})
		return r
	}, storetest.NotLocal())
}
