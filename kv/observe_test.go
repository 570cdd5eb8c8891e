package kv_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/kv"
)

// spans is an Observer whose spans go on in other processes: it counts operations by
// their name and the span above them.
type spans struct {
	mu   sync.Mutex
	seen map[string]int // guarded by mu
}

type spanKey struct{}

func (s *spans) Began(ctx context.Context, _ blobstore.Op) context.Context { return ctx }

func (s *spans) Ended(ctx context.Context, op blobstore.Op, _ time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	span, _ := ctx.Value(spanKey{}).(blobstore.SpanContext)
	name := op.Layer + "." + op.Name + " " + span.TraceID + "/" + span.SpanID + span.State
	if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
		name += " failed"
	}
	s.seen[name]++
}

func (s *spans) Counted(context.Context, string, string, string) {}

func (s *spans) SpanContext(ctx context.Context) (blobstore.SpanContext, bool) {
	span, ok := ctx.Value(spanKey{}).(blobstore.SpanContext)
	return span, ok
}

func (s *spans) WithRemoteSpan(ctx context.Context, span blobstore.SpanContext) context.Context {
	return context.WithValue(ctx, spanKey{}, span)
}

func TestObserversAreToldAndSpansGoAcross(t *testing.T) {
	o := &spans{seen: make(map[string]int)}
	r, _ := pair(t, memory.New(blobstore.Verified), kv.ControlledOptions{Observer: o}, kv.RemoteOptions{Observer: o})
	traced := context.WithValue(t.Context(), spanKey{}, blobstore.SpanContext{TraceID: "trace", SpanID: "span", Flags: 1, State: " state"})
	data := []byte("data")
	if err := errors.Join(r.Set(traced, blobref.Of(data), data), r.Set(t.Context(), blobref.Of(nil), nil)); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{traced, t.Context()} {
		if _, err := r.Get(ctx, blobref.Of(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Set(t.Context(), blobref.Of(data), nil); !errors.Is(err, blobstore.ErrMismatch) {
		t.Fatal(err)
	}
	want := map[string]int{
		"remote.set_blob trace/span state":     1,
		"controlled.set_blob trace/span state": 1,
		"remote.set_blob /":                    1,
		"controlled.set_blob /":                1,
		"remote.get_blob trace/span state":     1,
		"controlled.get_blob trace/span state": 1,
		"remote.get_blob /":                    1,
		"controlled.get_blob /":                1,
		"remote.set_blob / failed":             1,
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !maps.Equal(o.seen, want) {
		t.Errorf("observed %v, want %v", o.seen, want)
	}
}

// FuzzControlled answers whatever is asked, and each request at most once.
func FuzzControlled(f *testing.F) {
	f.Add([]byte{0x08, 0x07, 0x12, 0x00}, []byte{0x1a, 0x03, 0x0a, 0x01, 0x78})
	f.Add([]byte{0x12, 0x22, 0x0a, 0x20}, []byte{0xff})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a := newAsker(t, memory.New(blobstore.Opaque), kv.ControlledOptions{})
		a.sendBytes(first)
		a.sendBytes(second)
		last := uint32(4711)
		a.send(&agentv1.KvServerMessage{Id: last, Message: &agentv1.KvServerMessage_GetBlobArgs{}})
		for answers := 1; ; answers++ {
			got := a.answer()
			if got.GetMessage() == nil || answers > 3 {
				t.Fatalf("answer %d is %v", answers, got)
			}
			if got.GetId() == last {
				return
			}
		}
	})
}
