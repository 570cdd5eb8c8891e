package cached_test

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func Example() {
	ctx := context.Background()
	slow := memory.New(blobstore.Verified) // stands for a directory, or a remote
	store := cached.New(slow, cached.Options{MaxBytes: 64 << 20})

	ref, err := blobstore.Put(ctx, store, []byte("bytes"))
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := store.Get(ctx, ref) // from memory
	fmt.Printf("%s %v, kept: %+v\n", data, err, store.Usage())
	// Output: bytes <nil>, kept: {Blobs:1 Bytes:261}
}
