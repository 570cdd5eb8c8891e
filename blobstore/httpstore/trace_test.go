package httpstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/otelobserver"
)

// spanned remembers the span of which the last Get was a part.
type spanned struct {
	*memory.Store
	last atomic.Pointer[trace.SpanContext]
}

func (s *spanned) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	span := trace.SpanContextFromContext(ctx)
	s.last.Store(&span)
	return s.Store.Get(ctx, ref)
}

func TestASpanGoesOnAtTheServer(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	observer, err := otelobserver.New(nil, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	if err != nil {
		t.Fatal(err)
	}
	below := &spanned{Store: memory.New(blobstore.Verified)}
	ref, err := below.PutBytes(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, below, httpstore.Options{Observer: observer}, httpstore.HandlerOptions{Propagator: observer})
	if _, err := s.Get(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	asked := spans.Ended()[0].SpanContext()
	if got := below.last.Load(); got.TraceID() != asked.TraceID() || got.SpanID() != asked.SpanID() || !got.IsRemote() {
		t.Errorf("the server works within %+v, the client asked within %+v", got, asked)
	}
	// Who does not trace names no span, and who is not to be believed is not.
	for _, plain := range []blobstore.Store{
		serve(t, below, httpstore.Options{}, httpstore.HandlerOptions{Propagator: observer}),
		serve(t, below, httpstore.Options{Observer: observer}, httpstore.HandlerOptions{}),
	} {
		if _, err := plain.Get(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if got := below.last.Load(); got.IsValid() {
			t.Errorf("the server works within %+v", got)
		}
	}
	if _, err := s.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatal(err)
	}
}
