package storeurl_test

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/storeurl"
)

func Example() {
	ctx := context.Background()
	store, err := storeurl.Open(ctx, "mem:?cached=64MiB&retry=on", storeurl.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	ref, err := blobstore.Put(ctx, store.Store, []byte("a blob"))
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := store.Store.Get(ctx, ref)
	fmt.Printf("%s %v\n", data, err)
	// Output: a blob <nil>
}

func ExampleParse() {
	u, err := storeurl.Parse("dir:blobs?remote=https://example.com/store&cached=65536KiB")
	fmt.Println(u, err)
	_, err = storeurl.Parse("dir:blobs?cache=64MiB")
	fmt.Println(err)
	// Output:
	// dir:blobs?cached=64MiB&remote=https://example.com/store <nil>
	// reading store URL "dir:blobs?cache=64MiB": there is no parameter "cache" for dir:, but encrypted=, form=, cached=, retry= and remote=
}
