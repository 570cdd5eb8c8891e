package localdir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

func Example() {
	home, err := os.MkdirTemp("", "agentrun-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)

	ctx := context.Background()
	store, err := localdir.Open(filepath.Join(home, "blobs"), localdir.Options{Sync: true})
	if err != nil {
		log.Fatal(err)
	}
	ref, err := blobstore.Put(ctx, store, []byte("a screenshot"))
	if err != nil {
		log.Fatal(err)
	}
	data, err := store.Get(ctx, ref)
	fmt.Println(ref, string(data), err)

	_, err = store.Get(ctx, blobref.Of([]byte("never stored")))
	fmt.Println(errors.Is(err, blobstore.ErrNotFound))
	// Output:
	// blob:sha256:6c043a95dd43f123ccc16ed42802fff8fa70fd20b0c49f77c814a44a1e2f3549 a screenshot <nil>
	// true
}

func ExampleStore_Put() {
	home, err := os.MkdirTemp("", "agentrun-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)

	ctx := context.Background()
	store, err := localdir.Open(filepath.Join(home, "blobs"), localdir.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// A stream of any length is hashed while it is written.
	ref, size, err := store.Put(ctx, strings.NewReader(strings.Repeat("a line\n", 1_000_000)))
	if err != nil {
		log.Fatal(err)
	}
	blob, err := store.Open(ctx, ref) // all of it is verified here
	if err != nil {
		log.Fatal(err)
	}
	defer blob.Close()
	if _, err := blob.Seek(-7, io.SeekEnd); err != nil {
		log.Fatal(err)
	}
	last, err := io.ReadAll(blob)
	fmt.Printf("%d bytes, the last are %q, %v\n", size, last, err)
	// Output:
	// 7000000 bytes, the last are "a line\n", <nil>
}
