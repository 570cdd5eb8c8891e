package otelobserver

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/agentrun/agentrun/blobstore"
)

var _ blobstore.Propagator = (*Observer)(nil)

// SpanContext returns the span of ctx; false where there is none, or where the
// observer does not trace.
func (o *Observer) SpanContext(ctx context.Context) (blobstore.SpanContext, bool) {
	span := trace.SpanContextFromContext(ctx)
	if o.tracer == nil || !span.IsValid() {
		return blobstore.SpanContext{}, false
	}
	return blobstore.SpanContext{
		TraceID: span.TraceID().String(),
		SpanID:  span.SpanID().String(),
		Flags:   uint32(span.TraceFlags()),
		State:   span.TraceState().String(),
	}, true
}

// WithRemoteSpan returns a context below the span that another process named. What
// is no valid name of a span (see blobstore.SpanContext) leaves ctx as it is; a
// state that is none is left out, as W3C Trace Context asks.
func (o *Observer) WithRemoteSpan(ctx context.Context, remote blobstore.SpanContext) context.Context {
	if o.tracer == nil {
		return ctx
	}
	span, ok := parse(remote)
	if !ok {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, span)
}

// parse validates what another process sent.
func parse(remote blobstore.SpanContext) (trace.SpanContext, bool) {
	traceID, err := trace.TraceIDFromHex(remote.TraceID)
	if err != nil {
		return trace.SpanContext{}, false
	}
	spanID, err := trace.SpanIDFromHex(remote.SpanID)
	if err != nil {
		return trace.SpanContext{}, false
	}
	state, err := trace.ParseTraceState(remote.State)
	if err != nil {
		state = trace.TraceState{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    traceID,
		SpanID:     spanID,
		TraceFlags: trace.TraceFlags(remote.Flags & 0xff), // more is not defined
		TraceState: state,
		Remote:     true,
	}), true
}
