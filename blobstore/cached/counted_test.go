package cached_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// counter counts what is counted.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (*counter) Began(ctx context.Context, _ blobstore.Op) context.Context { return ctx }

func (o *counter) Ended(_ context.Context, op blobstore.Op, _ time.Duration, _ error) {
	o.add(op.Layer + "." + op.Name)
}

func (o *counter) Counted(_ context.Context, name, label, value string) {
	o.add(name + "{" + label + "=" + value + "}")
}

func (o *counter) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[what]++
}

func TestEachGetIsCountedByWhereItWasServedFrom(t *testing.T) {
	o := &counter{counts: make(map[string]int)}
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{AbsentFor: time.Hour, Observer: o})
	ref, absent := b.put(t, []byte("there")), blobref.Of([]byte("absent"))
	want(t, c, ref, []byte("there"))
	for range 4 {
		want(t, c, ref, []byte("there"))
	}
	wantAbsent(t, c, absent) // found out
	wantAbsent(t, c, absent) // remembered
	_ = c.Set(t.Context(), ref, []byte("there"))
	_ = c.SetLocal(t.Context(), ref, []byte("there"))
	_ = c.Flush(t.Context())
	expected := map[string]int{
		"agent_kv.cached.get_blob.results{cache_type=hit}":    4,
		"agent_kv.cached.get_blob.results{cache_type=miss}":   1,
		"agent_kv.cached.get_blob.results{cache_type=absent}": 2,
		"cached.get_blob":              7,
		"cached.set_blob":              1,
		"cached.set_blob_locally_only": 1,
		"cached.flush":                 1,
	}
	if !maps.Equal(o.counts, expected) {
		t.Errorf("counted %v, want %v", o.counts, expected)
	}
}
