package conversation_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session"
)

func TestABranchThatWasCollectedMeanwhileIsStoredAgain(t *testing.T) {
	ctx, store := t.Context(), memory.New(blobstore.Verified)
	p := conversation.NewProjector(store, conversation.ProjectorOptions{})
	log := manyTurns(5)
	for _, more := range []string{
		"",
		`{"type":"message","id":"f1","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"another root","timestamp":1}}` + "\n",
		`{"type":"message","id":"g1","parentId":"a4","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"back","timestamp":1}}` + "\n",
	} {
		log = append(log, more...)
		got, err := p.Project(ctx, logOf(log))
		if err != nil {
			t.Fatal(err)
		}
		keep := map[blobref.Ref]bool{}
		for r, err := range conversation.Walk(ctx, store, got.Root, conversation.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Get(ctx, r); err != nil {
				t.Fatal(err)
			}
			keep[r] = true
		}
		var gone []blobref.Ref
		for info, err := range blobstore.Walk(ctx, store) {
			if err != nil {
				t.Fatal(err)
			}
			if !keep[info.Ref] {
				gone = append(gone, info.Ref)
			}
		}
		for _, r := range gone {
			if err := store.Delete(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// deaf is a store that cannot tell whether it has one blob.
type deaf struct {
	*memory.Store
	ref blobref.Ref
}

func (d deaf) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	if ref == d.ref {
		return blobstore.Info{}, errDisk
	}
	return d.Store.Stat(ctx, ref)
}

func TestAnIDOfAnUnknownFieldIsAHoleWhenTheStoreCannotTellWhetherItHasIt(t *testing.T) {
	m := newMaker(t)
	root := ref(m.message("root", fullState(m)))
	told := false
	for r, err := range conversation.Walk(t.Context(), deaf{m.store, ref(m.text("external link"))}, root, conversation.Limits{}) {
		if m.names[r] == "external link" {
			var h *conversation.Hole
			told = errors.As(err, &h) && errors.Is(err, errDisk)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !told {
		t.Error("nothing is said of it")
	}
}

// rotten is a store with one damaged blob.
type rotten struct {
	*memory.Store
	ref blobref.Ref
}

func (r rotten) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if ref == r.ref {
		return nil, blobstore.ErrCorrupt
	}
	return r.Store.Get(ctx, ref)
}

func TestAFileWithADamagedPieceIsAHoleOfTheImport(t *testing.T) {
	store := memory.New(blobstore.Verified)
	good, err := blobstore.Put(t.Context(), store, []byte("good"))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := blobstore.Put(t.Context(), store, []byte("bad"))
	if err != nil {
		t.Fatal(err)
	}
	p := conversation.NewProjector(store, conversation.ProjectorOptions{})
	p.SetBeside(conversation.Beside{Files: []conversation.File{
		{Name: "bad.txt", Bytes: 7, Pieces: []blobref.Ref{good, bad}},
		{Name: "good.txt", Bytes: 4, Pieces: []blobref.Ref{good}},
	}})
	got, err := p.Project(t.Context(), logOf(manyTurns(2)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.OpenManager(t.TempDir(), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := conversation.Import(t.Context(), m, load(t, rotten{store, bad}, got.Root), conversation.ImportOptions{})
	if err != nil || in.Files != 1 || len(in.Holes) != 1 || in.Holes[0].ID != bad || !errors.Is(in.Holes[0], blobstore.ErrCorrupt) {
		t.Fatalf("%+v, %v", in, err)
	}
	if _, err := os.Stat(filepath.Join(in.Path[:len(in.Path)-len(".jsonl")], "bad.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a file is there: %v", err)
	}
}

func TestASubagentByReferenceIsInlineFromThenOnAndNotTwice(t *testing.T) {
	m := newMaker(t)
	h, err := session.OpenManager(t.TempDir(), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := conversation.Import(t.Context(), h, load(t, m.store, ref(m.message("root", fullState(m)))), conversation.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Open(t.Context(), in.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := conversation.NewSessionProjector(h, s, memory.New(blobstore.Verified)).Project(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := &agentv1.ConversationStateStructure{}
	if err := proto.Unmarshal(p.State, got); err != nil {
		t.Fatal(err)
	}
	if got.SubagentStates["b"] == nil || len(got.SubagentStateRefs) > 0 {
		t.Errorf("inline %v, by reference %v", got.SubagentStates, got.SubagentStateRefs)
	}
}
