package memory_test

import (
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

func TestVerifiedStore(t *testing.T) {
	storetest.Run(t, func() blobstore.Store { return memory.New(blobstore.Verified) })
}

func TestOpaqueStore(t *testing.T) {
	storetest.Run(t, func() blobstore.Store { return memory.New(blobstore.Opaque) }, storetest.Opaque())
}

func TestTheZeroValueIsAnEmptyVerifiedStore(t *testing.T) {
	storetest.Run(t, func() blobstore.Store { return new(memory.Store) })
}
