package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/kv"
)

// A store at one end of a stream, and its user at the other. Over a network it is
// kvhttp.Serve and kvhttp.Dial.
func Example() {
	ctx := context.Background()
	near, far := kv.Pipe(kv.MaxMessage(0))

	served := make(chan error, 1)
	controlled := kv.NewControlled(memory.New(blobstore.Verified), kv.ControlledOptions{})
	go func() { served <- controlled.Serve(ctx, far) }()

	var store blobstore.Store = kv.NewRemote(kv.Once(near), kv.RemoteOptions{})
	ref, err := blobstore.Put(ctx, store, []byte("hello"))
	if err != nil {
		log.Fatal(err)
	}
	data, err := store.Get(ctx, ref)
	fmt.Printf("%s %v\n", data, err)

	_, err = store.Get(ctx, blobref.Of([]byte("something else")))
	fmt.Println(errors.Is(err, blobstore.ErrNotFound))

	err = store.SetLocal(ctx, ref, []byte("hello"))
	fmt.Println(errors.Is(err, blobstore.ErrNotLocal))

	store.(*kv.Remote).Close()
	fmt.Println(<-served)
	// Output:
	// hello <nil>
	// true
	// true
	// <nil>
}
