package blobstore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

// must is for stores that are composed in one expression.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Layers are composed, the outermost first: what is stored is kept in memory, encrypted, stored here, and sent on from
// a queue on disk, as often as it takes.
func Example_layers() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "layers"))
	defer os.RemoveAll(dir)
	local, remote := memory.New(blobstore.Opaque), memory.New(blobstore.Opaque)
	keys := must(encrypted.NewKeyring([]byte("a passphrase")))
	queue := must(writethrough.New(local, retry.New(remote, retry.Policy{}), dir, writethrough.Options{}))
	defer queue.Close()

	store := cached.New(must(encrypted.New(queue, keys, encrypted.Options{})), cached.Options{MaxBytes: 64 << 20})

	ref := must(blobstore.Put(ctx, store, []byte("a screenshot")))
	fmt.Printf("%s\n", must(store.Get(ctx, ref)))
	fmt.Println(store.Flush(ctx)) // until the remote has it
	fmt.Println(encrypted.IsEncrypted(must(remote.Get(ctx, ref))))
	// Output:
	// a screenshot
	// <nil>
	// true
}
