package blobstore

import (
	"context"
	"time"
)

// Op is one kind of operation of one layer. Its duration is recorded as
// agent_kv.<Layer>.<Name>.duration_ms.
type Op struct {
	Layer string // in_memory, cached, encrypted, writethrough, retry, controlled, remote
	Name  string // get_blob, set_blob, set_blob_locally_only, flush
}

// Observer is told what stores and layers do. Its methods are called on the way
// of every operation, concurrently, and must not block. A store that was given
// none observes nothing and takes no time for it.
type Observer interface {
	// Began is called when an operation begins. The operation goes on with the
	// context that it returns, in which a span may be.
	Began(ctx context.Context, op Op) context.Context

	// Ended is called once for each Began, with the context that it returned.
	Ended(ctx context.Context, op Op, took time.Duration, err error)

	// Counted is called for one event of a counter that has one label.
	Counted(ctx context.Context, counter, label, value string)
}

// Span is an operation that began.
type Span struct {
	observer Observer
	ctx      context.Context
	op       Op
	began    time.Time
}

// Begin tells o, unless it is nil, that an operation begins. The caller goes on
// with the context that it returns and calls End once.
func Begin(ctx context.Context, o Observer, op Op) (context.Context, Span) {
	if o == nil {
		return ctx, Span{}
	}
	ctx = o.Began(ctx, op)
	return ctx, Span{observer: o, ctx: ctx, op: op, began: time.Now()}
}

// End tells the observer how the operation ended.
func (s Span) End(err error) {
	if s.observer != nil {
		s.observer.Ended(s.ctx, s.op, time.Since(s.began), err)
	}
}

// SpanContext names the span that a request is part of, as agent.v1 carries it from
// one process to another. The zero value names none.
type SpanContext struct {
	TraceID string // 32 hexadecimal digits
	SpanID  string // 16 hexadecimal digits
	Flags   uint32 // of the trace, as W3C Trace Context has them: 1 is sampled
	State   string // of the trace, in the form of the tracestate header; may be empty
}

// Propagator is an Observer whose spans go on in other processes. Stores that
// speak to another process use it where their Observer has it.
type Propagator interface {
	// SpanContext returns the span of ctx, and false where there is none.
	SpanContext(ctx context.Context) (SpanContext, bool)

	// WithRemoteSpan returns a context whose operations are part of the span that
	// another process named. What it named is unchecked: a Propagator returns ctx
	// as it is when it can make nothing of it.
	WithRemoteSpan(ctx context.Context, remote SpanContext) context.Context
}
