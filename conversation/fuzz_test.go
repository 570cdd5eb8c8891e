package conversation_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// answering is a store that has the same bytes under every id: whatever names something
// leads to them again.
type answering struct {
	blobstore.Store
	data []byte
}

func (a answering) Get(context.Context, blobref.Ref) ([]byte, error) {
	return bytes.Clone(a.data), nil
}

func (a answering) Stat(_ context.Context, ref blobref.Ref) (blobstore.Info, error) {
	return blobstore.Info{Ref: ref, Size: int64(len(a.data))}, nil
}

// readAll does with a state all that can be done with one.
func readAll(t *testing.T, s *conversation.State) {
	n := 0
	for turn, err := range s.Turns(t.Context(), 0, min(s.Len(), 100)) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(turn.Holes)
		_, _, _ = s.TurnLines(t.Context(), 0)
	}
	if _, err := s.WriteLog(t.Context(), io.Discard, conversation.RestoreOptions{}); err != nil && !errors.Is(err, conversation.ErrTooMuch) && !errors.Is(err, conversation.ErrNotState) {
		t.Fatal(err)
	}
	subs, _, err := s.Subagents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range subs {
		if sub.State == nil {
			t.Fatal("a subagent without a state")
		}
	}
	files, err := s.Files(t.Context())
	var h *conversation.Hole
	if err != nil && !errors.As(err, &h) {
		t.Fatal(err)
	}
	for _, f := range files[:min(len(files), 3)] {
		_, _ = io.Copy(io.Discard, io.LimitReader(s.Reader(t.Context(), f), 1<<16))
	}
	_, _ = conversation.JSON(s.Bytes())
}

func FuzzState(f *testing.F) {
	log := []byte(`{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}` + "\n" +
		`{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"hi","timestamp":1}}` + "\n")
	store := memory.New(blobstore.Verified)
	p, err := conversation.NewProjector(store, conversation.ProjectorOptions{}).Project(f.Context(), logOf(log))
	if err != nil {
		f.Fatal(err)
	}
	for info, err := range store.Walk(f.Context()) {
		if err != nil {
			f.Fatal(err)
		}
		data, err := store.Get(f.Context(), info.Ref)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("~" + "CgEx"))
	full, err := proto.Marshal(&agentv1.ConversationState{Turns: []*agentv1.ConversationTurn{{}}, RootPromptMessagesJson: []string{"{}"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			return
		}
		limits := conversation.Limits{Bytes: 1 << 16, Blobs: 1000, Depth: 3, Parallel: 2}
		// Every id leads to these bytes, and every id to a part of a real state.
		for _, under := range []blobstore.Store{answering{store, data}, store} {
			if s, err := conversation.Parse(data, under, limits); err == nil {
				readAll(t, s)
			} else if !errors.Is(err, conversation.ErrNotState) {
				t.Fatal(err)
			}
			n := 0
			for _, err := range conversation.Walk(t.Context(), under, p.Root, limits) {
				var h *conversation.Hole
				if err != nil && !errors.As(err, &h) && !errors.Is(err, conversation.ErrTooMuch) {
					t.Fatal(err)
				}
				if n++; n > 3000 {
					t.Fatal("a walk goes beyond its limit")
				}
			}
		}
		if s, err := conversation.Load(t.Context(), answering{store, data}, p.Root, limits); err == nil {
			readAll(t, s)
		}
		to := memory.New(blobstore.Verified)
		if root, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(data), to); err == nil {
			if _, err := to.Get(t.Context(), root); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzLog projects hostile bytes as a log: they come back.
func FuzzLog(f *testing.F) {
	f.Add([]byte("{\"type\":\"session\",\"id\":\"s\"}\n{\"type\":\"message\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"toolCall\",\"id\":\"c\",\"name\":\"bash\",\"arguments\":{\"command\":\"x\"}}]}}\n"), 40)
	f.Add([]byte("{\"type\":\"compaction\",\"id\":\"1\",\"summary\":\"s\"}{\"type\":\"message\",\"id\":\"2\",\"message\":{\"role\":\"bashExecution\"}}"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		store := memory.New(blobstore.Verified)
		p := conversation.NewProjector(store, conversation.ProjectorOptions{})
		for _, part := range [][]byte{data[:min(len(data), max(0, cut))], data} {
			got, err := p.Project(t.Context(), logOf(part))
			if err != nil {
				t.Fatal(err)
			}
			s, err := conversation.Load(t.Context(), store, got.Root, conversation.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r, err := s.WriteLog(t.Context(), &out, conversation.RestoreOptions{})
			if err != nil || !r.Exact || !bytes.Equal(out.Bytes(), part) {
				t.Fatalf("%q came back as %q: %+v, %v", part, out.Bytes(), r, err)
			}
			s.Message.ProtoReflect().SetUnknown(nil)
			bare, err := proto.Marshal(s.Message)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := conversation.New(bare, store, conversation.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, plain)
		}
	})
}
