package otelobserver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/otelobserver"
)

// read returns the metrics that have data, by name.
func read(t *testing.T, reader sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// counts returns how often each outcome was recorded in a histogram.
func counts(t *testing.T, m metricdata.Metrics) map[string]uint64 {
	t.Helper()
	h, ok := m.Data.(metricdata.Histogram[float64])
	if !ok {
		t.Fatalf("%s is a %T, want a histogram", m.Name, m.Data)
	}
	found := make(map[string]uint64)
	for _, p := range h.DataPoints {
		how, _ := p.Attributes.Value("outcome")
		found[how.AsString()] += p.Count
	}
	return found
}

func TestEveryOperationIsMeasuredWithItsOutcome(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(blobstore.Verified, memory.Observed(o))
	data := []byte("bytes")
	ref := blobref.Of(data)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		_, _ = store.Get(ctx, ref)
		_ = store.Set(ctx, ref, data)
		_ = store.Set(ctx, blobref.Of([]byte("other")), data)
		_, _ = store.Get(ctx, ref)
		_ = store.SetLocal(ctx, ref, data)
		_ = store.Flush(ctx)
	}
	got := read(t, reader)
	want := map[string]map[string]uint64{
		"agent_kv.in_memory.get_blob.duration_ms":              {"not_found": 1, "ok": 1, "cancelled": 2},
		"agent_kv.in_memory.set_blob.duration_ms":              {"ok": 1, "error": 1, "cancelled": 2},
		"agent_kv.in_memory.set_blob_locally_only.duration_ms": {"ok": 1, "cancelled": 1},
		"agent_kv.in_memory.flush.duration_ms":                 {"ok": 2},
	}
	if len(got) != len(want) {
		t.Errorf("recorded %v, want nothing but what happened: %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for name, outcomes := range want {
		m, ok := got[name]
		if !ok {
			t.Errorf("%s is not recorded", name)
			continue
		}
		if found := counts(t, m); !maps.Equal(found, outcomes) {
			t.Errorf("%s: outcomes %v, want %v", name, found, outcomes)
		}
		if m.Unit != "ms" {
			t.Errorf("%s is in %q, want ms", name, m.Unit)
		}
	}
}

func TestADurationIsInMilliseconds(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Ended(t.Context(), blobstore.Op{Layer: "remote", Name: "get_blob"}, 1500*time.Microsecond, nil)
	h := read(t, reader)["agent_kv.remote.get_blob.duration_ms"].Data.(metricdata.Histogram[float64])
	if sum := h.DataPoints[0].Sum; sum != 1.5 {
		t.Errorf("1500 µs were recorded as %v", sum)
	}
}

func TestEventsAreCountedByTheirLabel(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"hit", "miss", "hit", "hit"} {
		o.Counted(t.Context(), "agent_kv.cached.get_blob.results", "cache_type", value)
	}
	sum := read(t, reader)["agent_kv.cached.get_blob.results"].Data.(metricdata.Sum[int64])
	got := make(map[attribute.Set]int64)
	for _, p := range sum.DataPoints {
		got[p.Attributes] = p.Value
	}
	want := map[attribute.Set]int64{
		attribute.NewSet(attribute.String("cache_type", "hit")):  3,
		attribute.NewSet(attribute.String("cache_type", "miss")): 1,
	}
	if !sum.IsMonotonic || !maps.Equal(got, want) {
		t.Errorf("counted %v (monotonic: %v), want %v", got, sum.IsMonotonic, want)
	}
}

func TestANameThatOnlyALayerOfSomeoneElseHasIsMeasuredToo(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Ended(t.Context(), blobstore.Op{Layer: "theirs", Name: "get_blob"}, time.Second, nil)
	if _, ok := read(t, reader)["agent_kv.theirs.get_blob.duration_ms"]; !ok {
		t.Error("it is not recorded")
	}
	// The API wants names that begin with a letter; the SDK reports others.
	o.Counted(t.Context(), "0 no name", "label", "value")
	o.Ended(t.Context(), blobstore.Op{Layer: "no layer!", Name: "?"}, time.Second, nil)
}

func TestATracedOperationIsASpanBelowThatOfItsCaller(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	o, err := otelobserver.New(nil, provider)
	if err != nil {
		t.Fatal(err)
	}
	ctx, parent := provider.Tracer("test").Start(t.Context(), "caller")
	boom := errors.New("the disk is gone")
	for _, cause := range []error{nil, fmt.Errorf("getting: %w", blobstore.ErrNotFound), boom} {
		ctx, span := blobstore.Begin(ctx, o, blobstore.Op{Layer: "cached", Name: "get_blob"})
		if inner := trace.SpanContextFromContext(ctx); !inner.IsValid() || inner.SpanID() == parent.SpanContext().SpanID() {
			t.Error("the operation goes on with the span of its caller, want one of its own")
		}
		span.End(cause)
	}
	if !parent.IsRecording() {
		t.Fatal("the span of the caller was ended")
	}
	want := []struct {
		outcome string
		status  sdktrace.Status
	}{
		{"ok", sdktrace.Status{}},
		{"not_found", sdktrace.Status{}},
		{"error", sdktrace.Status{Code: codes.Error, Description: boom.Error()}},
	}
	ended := spans.Ended()
	if len(ended) != len(want) {
		t.Fatalf("%d spans ended, want %d", len(ended), len(want))
	}
	for i, s := range ended {
		attributes := attribute.NewSet(s.Attributes()...)
		how, _ := attributes.Value("outcome")
		if s.Name() != "agent_kv.cached.get_blob" || s.Parent().SpanID() != parent.SpanContext().SpanID() ||
			how.AsString() != want[i].outcome || s.Status() != want[i].status {
			t.Errorf("span %d is %s below %s, outcome %s, status %v; want %v", i, s.Name(), s.Parent().SpanID(), how.AsString(), s.Status(), want[i])
		}
	}
}

func TestWithoutProvidersNothingHappensToTheSpanOfTheCaller(t *testing.T) {
	o, err := otelobserver.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	ctx, parent := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "caller")
	inner, span := blobstore.Begin(ctx, o, blobstore.Op{Layer: "cached", Name: "get_blob"})
	if inner != ctx {
		t.Error("the context changed")
	}
	span.End(errors.New("failed"))
	o.Counted(ctx, "agent_kv.cached.get_blob.results", "cache_type", "hit")
	if !parent.IsRecording() || len(spans.Ended()) != 0 {
		t.Error("the span of the caller was ended")
	}
}
