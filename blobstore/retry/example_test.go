package retry_test

import (
	"context"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
)

func Example() {
	ctx := context.Background()
	remote := faultstore.New(memory.New(blobstore.Verified))
	remote.Plan(faultstore.First(2, faultstore.Fault{Before: faultstore.ErrInjected}))

	store := retry.New(remote, retry.Policy{Attempts: 3, Wait: time.Millisecond})
	ref, err := blobstore.Put(ctx, store, []byte("bytes"))
	fmt.Println(ref, err)
	fmt.Println(len(remote.Calls()), "attempts, breaker", store.Breaker().State)
	// Output:
	// blob:sha256:277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9 <nil>
	// 3 attempts, breaker closed
}
