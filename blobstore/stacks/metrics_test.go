package stacks_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/otelobserver"
)

// names are all metrics that the descriptions of the design name. Dashboards of
// others look for exactly these.
var names = []string{
	"agent_kv.cached.flush.duration_ms",
	"agent_kv.cached.get_blob.duration_ms",
	"agent_kv.cached.get_blob.results",
	"agent_kv.cached.set_blob.duration_ms",
	"agent_kv.controlled.get_blob.duration_ms",
	"agent_kv.controlled.set_blob.duration_ms",
	"agent_kv.encrypted.get_blob.duration_ms",
	"agent_kv.encrypted.set_blob.duration_ms",
	"agent_kv.in_memory.get_blob.duration_ms",
	"agent_kv.in_memory.set_blob.duration_ms",
	"agent_kv.remote.get_blob.duration_ms",
	"agent_kv.remote.set_blob.duration_ms",
	"agent_kv.retry.flush.duration_ms",
	"agent_kv.retry.get_blob.duration_ms",
	"agent_kv.retry.set_blob.duration_ms",
	"agent_kv.retry.set_blob_locally_only.duration_ms",
	"agent_kv.writethrough.flush.duration_ms",
	"agent_kv.writethrough.get_blob.duration_ms",
	"agent_kv.writethrough.set_blob.duration_ms",
}

// grid are the names that a histogram may have beyond those: the same operations of
// the same layers.
var grid = regexp.MustCompile(`^agent_kv\.(in_memory|cached|encrypted|writethrough|retry|controlled|remote)\.(get_blob|set_blob|set_blob_locally_only|flush)\.duration_ms$`)

// TestTheListOfNamesIsThatOfTheDescriptions compares it with every file of the
// folder seeds beside the real inputs (AGENTRUN_TEST_DATA, or shared/data above the
// working directory).
func TestTheListOfNamesIsThatOfTheDescriptions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(seeds(t), "*.md"))
	if err != nil || len(files) == 0 {
		t.Skipf("the descriptions are absent: %s has no *.md (%v)", seeds(t), err)
	}
	found := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bagent_kv\.[a-z_.]*[a-z_]`).FindAll(text, -1) {
			found[string(name)] = true
		}
	}
	t.Logf("%d names in %d files", len(found), len(files))
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, names) {
		t.Errorf("the descriptions name\n%q, the list is\n%q", got, names)
	}
}

func seeds(t *testing.T) string {
	t.Helper()
	if data := os.Getenv("AGENTRUN_TEST_DATA"); data != "" {
		return filepath.Join(filepath.Dir(filepath.Clean(data)), "seeds")
	}
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		dir := filepath.Join(at, "shared", "seeds")
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	t.Skip("the descriptions are absent: no shared/seeds above the working directory, and AGENTRUN_TEST_DATA is not set")
	return ""
}

// TestEveryNameIsRecordedByTheLayerItself has the whole stack work, with a real
// stream to a real store, and looks at what an SDK of OpenTelemetry has collected.
func TestEveryNameIsRecordedByTheLayerItself(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := parts{t: t, observer: o}
	far := p.memory(opaque)
	retried := p.retry(p.remote(far))
	store := p.cached(p.encrypted(p.writethrough(p.memory(opaque), retried)))
	work(t, store)
	// Another machine has nothing of its own yet: what it gets comes over the stream.
	other := p.all(p.memory(opaque), p.remote(far))
	if data, err := other.Get(t.Context(), blobref.Of([]byte("bytes"))); err != nil || string(data) != "bytes" {
		t.Fatalf("Get on another machine = %q, %v", data, err)
	}
	// What stays on this machine never comes to a layer in front of a remote, which
	// refuses it; that is an operation too.
	if err := retried.SetLocal(t.Context(), blobref.Of(nil), nil); err == nil {
		t.Error("a remote store stored something on this machine")
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	recorded := make(map[string]bool)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			recorded[m.Name] = true
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				if m.Unit != "ms" || !grid.MatchString(m.Name) {
					t.Errorf("there is a histogram %s in %q", m.Name, m.Unit)
				}
			case metricdata.Sum[int64]:
				if m.Name != "agent_kv.cached.get_blob.results" {
					t.Errorf("there is a counter %s", m.Name)
				}
				wantCacheTypes(t, data)
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	for _, name := range names {
		if !recorded[name] {
			t.Errorf("%s is not recorded", name)
		}
	}
}

// work does everything once that a layer measures.
func work(t *testing.T, store blobstore.Store) {
	t.Helper()
	ctx, data := t.Context(), []byte("bytes")
	ref := blobref.Of(data)
	if err := store.Set(ctx, ref, data); err != nil {
		t.Fatal(err)
	}
	if err := store.SetLocal(ctx, blobref.Of([]byte("stays")), []byte("stays")); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Get(ctx, ref); err != nil || !bytes.Equal(got, data) { // from the cache
		t.Fatalf("Get = %q, %v", got, err)
	}
	if _, err := store.Get(ctx, blobref.Of([]byte("absent"))); err == nil {
		t.Fatal("an absent blob is there")
	}
	if err := store.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func wantCacheTypes(t *testing.T, sum metricdata.Sum[int64]) {
	t.Helper()
	got := make(map[string]int64)
	for _, point := range sum.DataPoints {
		value, ok := point.Attributes.Value("cache_type")
		if !ok || point.Attributes.Len() != 1 {
			t.Errorf("a count has the attributes %v, want cache_type alone", point.Attributes.Encoded(nil))
		}
		got[value.AsString()] = point.Value
	}
	if want := map[string]int64{"hit": 1, "miss": 1, "absent": 1}; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// TestOneGetIsOneTrace follows a Get from the cache of one process to the store of
// another: each span is below the one that asked.
func TestOneGetIsOneTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	o, err := otelobserver.New(nil, provider)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("bytes")
	p := parts{t: t, observer: o}
	far := p.memory(verified)
	if err := far.Set(t.Context(), blobref.Of(data), data); err != nil {
		t.Fatal(err)
	}
	store := p.cached(p.retry(p.remote(far)))
	spans.Reset()
	if _, err := store.Get(t.Context(), blobref.Of(data)); err != nil {
		t.Fatal(err)
	}
	var parent trace.SpanID
	bySpan := make(map[string]sdktrace.ReadOnlySpan)
	for _, span := range spans.Ended() {
		bySpan[span.Name()] = span
	}
	for _, name := range []string{
		"agent_kv.cached.get_blob", "agent_kv.retry.get_blob", "agent_kv.remote.get_blob",
		"agent_kv.controlled.get_blob", "agent_kv.in_memory.get_blob",
	} {
		span, ok := bySpan[name]
		if !ok {
			t.Fatalf("there is no span %s: %v", name, slices.Sorted(maps.Keys(bySpan)))
		}
		if span.Parent().SpanID() != parent {
			t.Errorf("%s is below %v, want %v", name, span.Parent().SpanID(), parent)
		}
		parent = span.SpanContext().SpanID()
	}
}
