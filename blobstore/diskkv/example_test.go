package diskkv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	s, damage, err := diskkv.Open(ctx, filepath.Join(dir, "state.vscdb"), diskkv.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if damage != nil {
		log.Print(damage) // the file was moved aside, and a new one begun
	}

	// A state is a blob, and a pointer says which is the latest.
	first, err := blobstore.Put(ctx, s, []byte("the first state"))
	if err != nil {
		log.Fatal(err)
	}
	if err := s.SetCheckpoint(ctx, "a-conversation", blobref.Ref{}, first); err != nil {
		log.Fatal(err)
	}

	// Who does not know the latest cannot replace it.
	second, err := blobstore.Put(ctx, s, []byte("the second state"))
	if err != nil {
		log.Fatal(err)
	}
	err = s.SetCheckpoint(ctx, "a-conversation", blobref.Ref{}, second)
	var conflict *diskkv.ConflictError
	if errors.As(err, &conflict) {
		err = s.SetCheckpoint(ctx, "a-conversation", conflict.Is.Ref, second)
	}
	if err != nil {
		log.Fatal(err)
	}

	p, err := s.Checkpoint(ctx, "a-conversation")
	if err != nil {
		log.Fatal(err)
	}
	state, err := s.Get(ctx, p.Ref)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", state)
	// Output: the second state
}
