package httpstore_test

import (
	"context"
	"fmt"
	"net"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func Example() {
	// One process serves a store.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := httpstore.NewHandler(memory.New(blobstore.Verified), httpstore.HandlerOptions{Token: "from-a-file"})
	server := httpstore.NewServer(handler)
	go server.Serve(listener)
	defer server.Close()

	// Another one uses it.
	store, err := httpstore.Open("http://"+listener.Addr().String(), httpstore.Options{Token: "from-a-file"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	ref, err := blobstore.Put(context.Background(), store, []byte("a blob"))
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := store.Get(context.Background(), ref)
	fmt.Printf("%s %v\n", data, err)
	// Output: a blob <nil>
}
