package encrypted_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	// The directory holds ciphertext: bytes that are not what their names hash to.
	below, err := localdir.Open(filepath.Join(dir, "sealed"), localdir.Options{Mode: blobstore.Opaque})
	if err != nil {
		log.Fatal(err)
	}
	keys, err := encrypted.NewKeyring([]byte("correct horse battery staple")) // or OpenKeyring
	if err != nil {
		log.Fatal(err)
	}
	blobs, err := encrypted.New(below, keys, encrypted.Options{KeyedIDs: true})
	if err != nil {
		log.Fatal(err)
	}

	ref, err := blobstore.Put(ctx, blobs, []byte("a screenshot"))
	if err != nil {
		log.Fatal(err)
	}
	data, err := blobs.Get(ctx, ref)
	fmt.Printf("%s %v\n", data, err)

	// With a newer passphrase above it the old one still opens. Rotate puts all under
	// the newest.
	keys, err = encrypted.NewKeyring([]byte("newer"), []byte("correct horse battery staple"))
	if err != nil {
		log.Fatal(err)
	}
	if blobs, err = encrypted.New(below, keys, encrypted.Options{}); err != nil {
		log.Fatal(err)
	}
	done, err := blobs.Rotate(ctx, nil)
	fmt.Println(done.Rewrapped, "rewrapped", err)
	// Output:
	// a screenshot <nil>
	// 1 rewrapped <nil>
}
