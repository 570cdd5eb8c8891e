package s3store_test

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/s3store"
)

// Credentials come from the environment, or from ~/.aws/credentials.
func Example() {
	store, err := s3store.Open(s3store.Options{
		Endpoint: "https://s3.eu-central-1.amazonaws.com", Region: "eu-central-1",
		Bucket: "our-blobs", Prefix: "agentrun",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	put := func(ctx context.Context, data []byte) error {
		ref, err := blobstore.Put(ctx, store, data)
		fmt.Println(ref, err)
		return err
	}
	_ = put // it would ask the service
	fmt.Println(store)
	// Output: s3://our-blobs/agentrun at https://s3.eu-central-1.amazonaws.com
}
