package otelobserver_test

import (
	"context"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/otelobserver"
)

func tracing(t testing.TB) (*otelobserver.Observer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	o, err := otelobserver.New(nil, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	if err != nil {
		t.Fatal(err)
	}
	return o, spans
}

func TestASpanGoesOnInAnotherProcess(t *testing.T) {
	here, spansHere := tracing(t)
	there, spansThere := tracing(t)

	ctx, span := blobstore.Begin(t.Context(), here, blobstore.Op{Layer: "remote", Name: "get_blob"})
	sent, ok := here.SpanContext(ctx)
	if !ok || len(sent.TraceID) != 32 || len(sent.SpanID) != 16 || sent.Flags != 1 {
		t.Fatalf("SpanContext = %+v, %v", sent, ok)
	}
	_, remote := blobstore.Begin(there.WithRemoteSpan(t.Context(), sent), there, blobstore.Op{Layer: "controlled", Name: "get_blob"})
	remote.End(nil)
	span.End(nil)

	asked, answered := spansHere.Ended()[0].SpanContext(), spansThere.Ended()[0]
	if answered.SpanContext().TraceID() != asked.TraceID() || answered.Parent().SpanID() != asked.SpanID() || !answered.Parent().IsRemote() {
		t.Errorf("the span there is %+v below %+v, want it below %+v", answered.SpanContext(), answered.Parent(), asked)
	}
}

func TestWhereNoSpanIsNoneIsNamed(t *testing.T) {
	o, _ := tracing(t)
	if sent, ok := o.SpanContext(t.Context()); ok {
		t.Errorf("SpanContext = %+v", sent)
	}
	silent, err := otelobserver.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, _ := blobstore.Begin(t.Context(), o, blobstore.Op{Layer: "remote", Name: "get_blob"})
	if sent, ok := silent.SpanContext(ctx); ok {
		t.Errorf("an observer that does not trace names %+v", sent)
	}
	sent, _ := o.SpanContext(ctx)
	if got := silent.WithRemoteSpan(context.Background(), sent); got != context.Background() {
		t.Error("an observer that does not trace changes the context")
	}
}

// FuzzWithRemoteSpan holds what another process sends to: a context without a
// span, or one with a valid span that says the same again.
func FuzzWithRemoteSpan(f *testing.F) {
	id, span := strings.Repeat("a1", 16), strings.Repeat("b2", 8)
	for _, seed := range []blobstore.SpanContext{
		{TraceID: id, SpanID: span, Flags: 1, State: "a=b,c=d"},
		{TraceID: id, SpanID: span, Flags: 0xffffffff, State: "no state"},
		{TraceID: strings.ToUpper(id), SpanID: span},
		{TraceID: strings.Repeat("0", 32), SpanID: span},
		{TraceID: id + "00", SpanID: span},
		{},
	} {
		f.Add(seed.TraceID, seed.SpanID, seed.Flags, seed.State)
	}
	o, _ := tracing(f)
	f.Fuzz(func(t *testing.T, traceID, spanID string, flags uint32, state string) {
		ctx := o.WithRemoteSpan(t.Context(), blobstore.SpanContext{TraceID: traceID, SpanID: spanID, Flags: flags, State: state})
		if ctx == t.Context() {
			return
		}
		got, ok := o.SpanContext(ctx)
		if !ok || got.TraceID != traceID || got.SpanID != spanID || got.Flags != flags&0xff {
			t.Errorf("%+v, %v came of %q %q %x %q", got, ok, traceID, spanID, flags, state)
		}
		if again := o.WithRemoteSpan(t.Context(), got); !trace.SpanContextFromContext(again).Equal(trace.SpanContextFromContext(ctx)) {
			t.Errorf("%+v does not survive being sent", got)
		}
	})
}
