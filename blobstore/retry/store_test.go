package retry_test

import (
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

func TestVerifiedStore(t *testing.T) {
	storetest.Run(t, func() blobstore.Store { return retry.New(memory.New(blobstore.Verified), retry.Policy{}) })
}

func TestOpaqueStore(t *testing.T) {
	storetest.Run(t, func() blobstore.Store { return retry.New(memory.New(blobstore.Opaque), retry.Policy{}) }, storetest.Opaque())
}

// stacks are retry alone and with another layer on either side.
var stacks = []struct {
	name  string
	layer func(t *testing.T, inner blobstore.Store) blobstore.Store
}{
	{"retry", func(_ *testing.T, inner blobstore.Store) blobstore.Store { return retry.New(inner, retry.Policy{}) }},
	{"retry once", func(_ *testing.T, inner blobstore.Store) blobstore.Store {
		return retry.New(inner, retry.Policy{Attempts: 1, BreakAfter: 2})
	}},
	{"cached(retry)", func(_ *testing.T, inner blobstore.Store) blobstore.Store {
		return cached.New(retry.New(inner, retry.Policy{}), cached.Options{})
	}},
	{"retry(cached)", func(_ *testing.T, inner blobstore.Store) blobstore.Store {
		return retry.New(cached.New(inner, cached.Options{MaxBytes: 4 << 10}), retry.Policy{})
	}},
	{"retry(retry)", func(_ *testing.T, inner blobstore.Store) blobstore.Store {
		return retry.New(retry.New(inner, retry.Policy{Attempts: 2}), retry.Policy{Attempts: 3})
	}},
}

func TestStacks(t *testing.T) {
	for _, tt := range stacks[2:] {
		t.Run(tt.name, func(t *testing.T) {
			storetest.Run(t, func() blobstore.Store { return tt.layer(t, memory.New(blobstore.Verified)) }, storetest.Largest(1<<20))
			storetest.Run(t, func() blobstore.Store { return tt.layer(t, memory.New(blobstore.Opaque)) },
				storetest.Opaque(), storetest.Largest(1<<20))
		})
	}
}

func TestFaultsBelow(t *testing.T) {
	verified := []storetest.Option{storetest.TrustsBelow()}
	opaque := []storetest.Option{storetest.Opaque()}
	for i, opts := range [][]storetest.Option{verified, verified, verified, opaque} {
		t.Run(stacks[i].name, func(t *testing.T) { storetest.RunFaults(t, stacks[i].layer, opts...) })
	}
}
