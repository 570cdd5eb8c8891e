package stacks_test

import (
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// impatient asks again at once: these tests run in real time.
func impatient(inner blobstore.Store) blobstore.Store {
	return retry.New(inner, retry.Policy{
		Attempts: 3, Wait: time.Millisecond, MaxWait: 2 * time.Millisecond, Budget: -1, BreakAfter: 20, BreakFor: 10 * time.Millisecond,
	})
}

func TestFaultsBelowTheWholeStack(t *testing.T) {
	if testing.Short() {
		t.Skip("many stacks, with queues on disk")
	}
	t.Parallel()
	t.Run("in the remote", func(t *testing.T) {
		storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
			p := parts{t: t}
			return p.cached(p.encrypted(p.writethrough(p.memory(opaque), impatient(inner))))
		}, storetest.OpaqueBelow(), storetest.RealTime())
	})
	t.Run("without a queue", func(t *testing.T) {
		storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
			p := parts{t: t}
			return p.cached(p.encrypted(p.retry(inner)))
		}, storetest.OpaqueBelow())
	})
}
