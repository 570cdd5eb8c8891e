package otelobserver_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/otelobserver"
)

// A program gives its meter provider, and its tracer provider if it traces, to
// the observer, and the observer to each store and layer.
func Example() {
	observer, err := otelobserver.New(noop.NewMeterProvider(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memory.New(blobstore.Verified, memory.Observed(observer))
	ref, err := blobstore.Put(context.Background(), store, []byte("bytes"))
	fmt.Println(ref, err)
	// Output: blob:sha256:277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9 <nil>
}
