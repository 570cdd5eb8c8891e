package encrypted_test

import (
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

func TestFaultsBelow(t *testing.T) {
	for name, opts := range map[string]encrypted.Options{
		"own form":            {},
		"own form, keyed ids": {KeyedIDs: true},
		"seed's form":         {Form: encrypted.Seed},
		"opaque":              {Mode: blobstore.Opaque},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := ring(t, "newest")
			options := []storetest.Option{storetest.OpaqueBelow()}
			if opts.Mode == blobstore.Opaque {
				options = append(options, storetest.Opaque())
			}
			storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
				return open(t, inner, keys, opts)
			}, options...)
		})
	}
}
