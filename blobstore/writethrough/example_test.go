package writethrough_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

func Example() {
	home, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	local, err := localdir.Open(filepath.Join(home, "store"), localdir.Options{})
	if err != nil {
		panic(err)
	}
	remote := memory.New(blobstore.Verified) // in the place of one that is far away

	store, err := writethrough.New(local, remote, filepath.Join(home, "queue"), writethrough.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	ctx := context.Background()
	ref, err := blobstore.Put(ctx, store, []byte("stored here at once"))
	if err != nil {
		panic(err)
	}
	if err := store.Flush(ctx); err != nil { // waits until the remote has it
		panic(err)
	}
	data, err := remote.Get(ctx, ref)
	fmt.Printf("%s %v\n", data, err)
	// Output: stored here at once <nil>
}
