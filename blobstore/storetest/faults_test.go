package storetest_test

import (
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// faultFlaws are mistakes of layers that show when the store below fails, and the
// test of RunFaults that must find each.
var faultFlaws = []struct {
	name    string
	foundBy string
	make    func(*testing.T, blobstore.Store) blobstore.Store
	opts    []storetest.Option
}{
	{
		"damage handed on", "any one call below may fail",
		func(_ *testing.T, inner blobstore.Store) blobstore.Store { return inner }, nil,
	},
	{
		"absence for any error", "any one call below may fail",
		func(_ *testing.T, inner blobstore.Store) blobstore.Store { return absentForAnyError{inner} },
		[]storetest.Option{storetest.TrustsBelow()},
	},
	{
		"errors of Set forgotten", "nothing works for a while",
		func(_ *testing.T, inner blobstore.Store) blobstore.Store { return swallowing{inner} },
		[]storetest.Option{storetest.TrustsBelow()},
	},
	{
		"a context that is not passed on", "a call ends when its context ends",
		func(_ *testing.T, inner blobstore.Store) blobstore.Store { return deaf{inner} },
		[]storetest.Option{storetest.TrustsBelow()},
	},
	{
		"a Flush that believes", "nothing works for a while",
		func(_ *testing.T, inner blobstore.Store) blobstore.Store {
			return &backWriter{Store: memory.New(blobstore.Verified), below: inner}
		},
		[]storetest.Option{storetest.TrustsBelow()},
	},
}

func TestFaultsOfASimpleLayer(t *testing.T) {
	storetest.RunFaults(t, func(_ *testing.T, inner blobstore.Store) blobstore.Store { return inner },
		storetest.TrustsBelow())
	storetest.RunFaults(t, func(_ *testing.T, inner blobstore.Store) blobstore.Store { return inner },
		storetest.Opaque())
	storetest.RunFaults(t, func(_ *testing.T, inner blobstore.Store) blobstore.Store { return inner },
		storetest.TrustsBelow(), storetest.RealTime())
}

func TestAFaultStoreWithoutFaultsIsAStore(t *testing.T) {
	storetest.Run(t, func() blobstore.Store { return faultstore.New(memory.New(blobstore.Verified)) })
	storetest.Run(t, func() blobstore.Store { return faultstore.New(memory.New(blobstore.Opaque)) }, storetest.Opaque())
}
