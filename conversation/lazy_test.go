package conversation_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
)

// reading is a store that counts what is read.
type reading struct {
	*memory.Store
	gets atomic.Int64
}

func (r *reading) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	r.gets.Add(1)
	return r.Store.Get(ctx, ref)
}

func TestOneTurnOfManyCostsItsOwnBlobs(t *testing.T) {
	data := manyTurns(5000)
	store := &reading{Store: memory.New(blobstore.Verified)}
	root := project(t, store, data).Root
	store.gets.Store(0)
	s := load(t, store, root)
	turn, err := s.Turn(t.Context(), s.Len()-1)
	if err != nil || len(turn.Holes) > 0 || turn.User.GetText() != "question 4999" {
		t.Fatal(turn, err)
	}
	if n := store.gets.Load(); n != 4 { // state, turn, message, step
		t.Errorf("%d blobs were read", n)
	}
	store.gets.Store(0)
	lines, known, err := s.TurnLines(t.Context(), 2500)
	if err != nil || !known || !bytes.Contains(lines, []byte("question 2500")) || bytes.Count(lines, []byte("\n")) != 2 {
		t.Errorf("%q, %v, %v", lines, known, err)
	}
	if n := store.gets.Load(); n > 8 { // the root of the sidecar, three nodes of either tree, a chunk
		t.Errorf("%d blobs were read", n)
	}
}

func TestOneMoreTurnStoresItsOwnBlobs(t *testing.T) {
	data := manyTurns(3001)
	cut := bytes.Index(data, []byte(`{"type":"message","id":"u3000"`))
	p := conversation.NewProjector(memory.New(blobstore.Verified), conversation.ProjectorOptions{})
	if _, err := p.Project(t.Context(), logOf(data[:cut])); err != nil {
		t.Fatal(err)
	}
	got, err := p.Project(t.Context(), logOf(data))
	if err != nil {
		t.Fatal(err)
	}
	// Turn, message, step and chunk; three nodes of either tree, and as many that became
	// full; the root of the sidecar and the state.
	if got.Blobs > 14 || got.Turns != 3001 {
		t.Errorf("%d blobs", got.Blobs)
	}
}
