package cached_test

import (
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// caches are sizes that make a difference: everything fits, little does, nothing
// does.
var caches = []struct {
	name string
	opts cached.Options
}{
	{"everything fits", cached.Options{}},
	{"absences are kept", cached.Options{AbsentFor: time.Hour}},
	{"few blobs fit", cached.Options{MaxBytes: 2 << 10, AbsentFor: time.Hour}},
	{"nothing fits", cached.Options{MaxBytes: -1}},
}

func TestVerifiedStore(t *testing.T) {
	for _, tt := range caches {
		t.Run(tt.name, func(t *testing.T) {
			storetest.Run(t, func() blobstore.Store { return cached.New(memory.New(blobstore.Verified), tt.opts) })
		})
	}
}

func TestOpaqueStore(t *testing.T) {
	for _, tt := range caches {
		t.Run(tt.name, func(t *testing.T) {
			storetest.Run(t, func() blobstore.Store { return cached.New(memory.New(blobstore.Opaque), tt.opts) }, storetest.Opaque())
		})
	}
}

func TestACacheAroundACacheAroundADirectory(t *testing.T) {
	storetest.Run(t, func() blobstore.Store {
		s, err := localdir.Open(t.TempDir(), localdir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return cached.New(cached.New(s, cached.Options{}), cached.Options{MaxBytes: 64 << 10})
	})
}

// Ranges and streams are those of the store below, which is relied upon to report
// damage of them.
func TestFaultsBelow(t *testing.T) {
	for _, tt := range caches[1:3] {
		t.Run(tt.name, func(t *testing.T) {
			layer := func(_ *testing.T, inner blobstore.Store) blobstore.Store { return cached.New(inner, tt.opts) }
			t.Run("verified", func(t *testing.T) { storetest.RunFaults(t, layer, storetest.TrustsBelow()) })
			t.Run("opaque", func(t *testing.T) { storetest.RunFaults(t, layer, storetest.Opaque()) })
		})
	}
}

// whole is a store that hands out blobs as a whole only.
type whole struct{ blobstore.Store }

func TestDamageBelowIsFoundWhereBlobsComeAsAWhole(t *testing.T) {
	for _, tt := range caches[1:3] {
		t.Run(tt.name, func(t *testing.T) {
			storetest.RunFaults(t, func(_ *testing.T, inner blobstore.Store) blobstore.Store {
				return cached.New(whole{inner}, tt.opts)
			})
		})
	}
}
