package conversation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
)

// failing is a store in which one Set fails.
type failing struct {
	*memory.Store
	left atomic.Int64
}

var errDisk = errors.New("disk on fire")

func (f *failing) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if f.left.Add(-1) == 0 {
		return errDisk
	}
	return f.Store.Set(ctx, ref, data)
}

func manyTurns(n int) []byte {
	data := []byte(`{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}` + "\n")
	parent := "null"
	for i := range n {
		data = fmt.Appendf(data, `{"type":"message","id":"u%d","parentId":%s,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"question %[1]d","timestamp":1}}
{"type":"message","id":"a%[1]d","parentId":"u%[1]d","timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"assistant","content":[{"type":"text","text":"answer %[1]d"}],"stopReason":"stop","timestamp":1}}
`, i, parent)
		parent = fmt.Sprintf(`"a%d"`, i)
	}
	return data
}

func TestAFailedProjectionNamesNothingAndTheNextOneIsWhole(t *testing.T) {
	data := manyTurns(100)
	half := bytes.Index(data, []byte(`{"type":"message","id":"u50"`))
	for n := int64(1); ; n += 37 {
		store := &failing{Store: memory.New(blobstore.Verified)}
		p := conversation.NewProjector(store, conversation.ProjectorOptions{})
		store.left.Store(n)
		failed := false
		for _, part := range [][]byte{data[:half], data} {
			got, err := p.Project(t.Context(), logOf(part))
			if errors.Is(err, errDisk) {
				failed = true
				got, err = p.Project(t.Context(), logOf(part))
			}
			if err != nil {
				t.Fatal(err)
			}
			for ref, err := range conversation.Walk(t.Context(), store, got.Root, conversation.Limits{}) {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := store.Get(t.Context(), ref); err != nil {
					t.Fatalf("write %d fails: %v", n, err)
				}
			}
			if back, r := restore(t, load(t, store, got.Root)); !r.Exact || !bytes.Equal(back, part) {
				t.Fatalf("write %d fails: %+v", n, r)
			}
		}
		if !failed {
			return
		}
	}
}

func TestARewrittenLogIsReadAnew(t *testing.T) {
	store := memory.New(blobstore.Verified)
	p := conversation.NewProjector(store, conversation.ProjectorOptions{})
	long, short := manyTurns(30), manyTurns(20)
	renamed := bytes.Replace(long, []byte(`"cwd":"/w"`), []byte(`"cwd":"/v"`), 1)
	for _, data := range [][]byte{long, renamed, short, nil, long} {
		got, err := p.Project(t.Context(), logOf(data))
		if err != nil {
			t.Fatal(err)
		}
		if back, r := restore(t, load(t, store, got.Root)); !r.Exact || !bytes.Equal(back, data) {
			t.Fatalf("%+v", r)
		}
	}
}

// A byte that changes in a store that does not look is found, or the log is the same.
func TestFlippedBitsAreFoundOrHarmless(t *testing.T) {
	data := manyTurns(70)
	from := memory.New(blobstore.Verified)
	root := project(t, from, data).Root
	var refs []blobref.Ref
	for ref, err := range conversation.Walk(t.Context(), from, root, conversation.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		ref := refs[random.IntN(len(refs))]
		blob, err := from.Get(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		blob[random.IntN(len(blob))] ^= 1 << random.IntN(8)
		store := flipped{from, ref, blob}
		s, err := conversation.Load(t.Context(), store, root, conversation.Limits{})
		if err != nil {
			continue // found
		}
		var out bytes.Buffer
		r, err := s.WriteLog(t.Context(), &out, conversation.RestoreOptions{ID: "s"})
		if err == nil && r.Exact && !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("blob %v changed, and nobody saw it", ref)
		}
		readAll(t, s)
	}
}

// flipped is a store in which one blob is another one.
type flipped struct {
	*memory.Store
	ref  blobref.Ref
	data []byte
}

func (f flipped) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if ref == f.ref {
		return bytes.Clone(f.data), nil
	}
	return f.Store.Get(ctx, ref)
}
