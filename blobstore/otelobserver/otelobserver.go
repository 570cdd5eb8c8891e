// Package otelobserver tells OpenTelemetry what blob stores and their layers do.
//
// Of each operation the histogram agent_kv.<layer>.<op>.duration_ms takes the
// duration in milliseconds, with fractions and with the attribute outcome: ok,
// not_found, cancelled (the caller's context ended) or error. Events are counted
// in counters of the name that the layer gives, agent_kv.cached.get_blob.results
// for one, with the one attribute that the layer gives, cache_type there. A
// traced operation is a span agent_kv.<layer>.<op>, below that of the caller, with
// the error as its status; an absent blob is an answer and no error.
//
// The names are those that agents of others use for the same layers, so that
// their dashboards serve. Only the API of OpenTelemetry is imported: which SDK
// records, if any, is the program's choice.
package otelobserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentrun/agentrun/blobstore"
)

// scope names what records, to the SDK.
const scope = "github.com/agentrun/agentrun/blobstore"

// layers and ops are those of this module. Their histograms are made at once,
// so that a meter that refuses one says so early.
var (
	layers = []string{"in_memory", "cached", "encrypted", "writethrough", "retry", "controlled", "remote"}
	ops    = []string{"get_blob", "set_blob", "set_blob_locally_only", "flush"}
)

// bounds are those of the buckets, in milliseconds: a cache answers within a
// microsecond, a disk within milliseconds, and a remote that is tried again and
// again within minutes.
var bounds = []float64{
	0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500,
	1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000,
}

// Observer is a blobstore.Observer. Safe for concurrent use, by any number of
// stores; it keeps one instrument for each name that it has seen, and the names
// come from the code of layers, never from data.
type Observer struct {
	meter  metric.Meter // nil: nothing is measured
	tracer trace.Tracer // nil: nothing is traced

	durations sync.Map // of blobstore.Op: *duration
	counters  sync.Map // of event: *counter
}

var _ blobstore.Observer = (*Observer)(nil)

// duration is the histogram of one operation and the names that go with it.
type duration struct {
	span      string
	histogram metric.Float64Histogram
}

type event struct{ counter, label, value string }

type counter struct {
	counter metric.Int64Counter
	label   []metric.AddOption
}

// New returns an observer. Without a meter provider nothing is measured, without
// a tracer provider nothing is traced. An error names the instrument that the
// meter refused.
func New(meters metric.MeterProvider, tracers trace.TracerProvider) (*Observer, error) {
	o := new(Observer)
	if tracers != nil {
		o.tracer = tracers.Tracer(scope)
	}
	if meters != nil {
		o.meter = meters.Meter(scope)
	}
	for _, layer := range layers {
		for _, name := range ops {
			op := blobstore.Op{Layer: layer, Name: name}
			d, err := o.newDuration(op)
			if err != nil {
				return nil, err
			}
			o.durations.Store(op, d)
		}
	}
	return o, nil
}

func (o *Observer) newDuration(op blobstore.Op) (*duration, error) {
	d := &duration{span: "agent_kv." + op.Layer + "." + op.Name, histogram: noop.Float64Histogram{}}
	if o.meter == nil {
		return d, nil
	}
	h, err := o.meter.Float64Histogram(d.span+".duration_ms",
		metric.WithUnit("ms"),
		metric.WithDescription("how long "+op.Name+" of the layer "+op.Layer+" took"),
		metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		return d, fmt.Errorf("making the histogram %s.duration_ms: %w", d.span, err)
	}
	d.histogram = h
	return d, nil
}

// duration returns what belongs to op. A layer of someone else brings names of
// its own; one that the meter refuses is not measured.
func (o *Observer) duration(op blobstore.Op) *duration {
	if d, ok := o.durations.Load(op); ok {
		return d.(*duration)
	}
	d, _ := o.newDuration(op)
	known, _ := o.durations.LoadOrStore(op, d)
	return known.(*duration)
}

// Began begins a span.
func (o *Observer) Began(ctx context.Context, op blobstore.Op) context.Context {
	if o.tracer == nil {
		return ctx
	}
	ctx, _ = o.tracer.Start(ctx, o.duration(op).span)
	return ctx
}

// Ended records the duration and ends the span.
func (o *Observer) Ended(ctx context.Context, op blobstore.Op, took time.Duration, err error) {
	how := outcomeOf(ctx, err)
	if o.meter != nil {
		o.duration(op).histogram.Record(ctx, float64(took)/float64(time.Millisecond), outcomes[how]...)
	}
	if o.tracer == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if how == failed || how == cancelled {
		span.SetStatus(codes.Error, err.Error())
	}
	span.SetAttributes(attribute.String("outcome", how.String()))
	span.End()
}

// Counted adds one to the counter.
func (o *Observer) Counted(ctx context.Context, name, label, value string) {
	if o.meter == nil {
		return
	}
	e := event{name, label, value}
	known, ok := o.counters.Load(e)
	if !ok {
		known, _ = o.counters.LoadOrStore(e, o.newCounter(e))
	}
	c := known.(*counter)
	c.counter.Add(ctx, 1, c.label...)
}

// newCounter makes the counter of e, or one that counts nothing where the meter
// refuses it.
func (o *Observer) newCounter(e event) *counter {
	c := &counter{
		counter: noop.Int64Counter{},
		label:   []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attribute.String(e.label, e.value)))},
	}
	if made, err := o.meter.Int64Counter(e.counter, metric.WithUnit("{event}")); err == nil {
		c.counter = made
	}
	return c
}

// outcome is how an operation ended.
type outcome int

const (
	ok outcome = iota
	notFound
	cancelled
	failed
)

func (o outcome) String() string {
	return [...]string{ok: "ok", notFound: "not_found", cancelled: "cancelled", failed: "error"}[o]
}

// outcomes are the attributes of a record, made once.
var outcomes = func() (made [failed + 1][]metric.RecordOption) {
	for how := range made {
		set := attribute.NewSet(attribute.String("outcome", outcome(how).String()))
		made[how] = []metric.RecordOption{metric.WithAttributeSet(set)}
	}
	return made
}()

func outcomeOf(ctx context.Context, err error) outcome {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, blobstore.ErrNotFound):
		return notFound
	case ctx.Err() != nil:
		return cancelled
	}
	return failed
}
