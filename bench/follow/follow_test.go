// Package follow benchmarks how long an entry takes to a follower, beside how long the
// kernel takes to tell of a bare write. Both count from before the write: a reader may
// have it before the call returns, and a clock that starts then would show nothing.
package follow

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/agentrun/agentrun/follow"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// pause is between two writes: entries that come at once share their events.
const pause = 2 * time.Millisecond

// report reports percentiles in microseconds.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(p float64) float64 {
		return float64(took[min(int(p*float64(len(took))), len(took)-1)]) / float64(time.Microsecond)
	}
	b.ReportMetric(at(0.5), "p50-us")
	b.ReportMetric(at(0.99), "p99-us")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkFollowLatency(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush})
	if err != nil {
		b.Fatal(err)
	}
	s, err := m.Create(ctx, b.TempDir(), session.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	body := entry.MessageBody{Message: json.RawMessage(`{"role":"user","content":"an entry","timestamp":1}`)}
	if _, err := s.Append(ctx, body); err != nil {
		b.Fatal(err)
	}
	view, err := m.View(ctx, s.Path())
	if err != nil {
		b.Fatal(err)
	}
	defer view.Close()
	wrote, seen := make(chan time.Time, 1), make(chan struct{}, 1)
	go func() { // writes when what came before was seen
		for range seen {
			time.Sleep(pause)
			at := time.Now()
			if _, err := s.Append(ctx, body); err != nil {
				b.Error(err)
			}
			wrote <- at
		}
	}()
	defer close(seen)
	took := make([]time.Duration, 0, b.N)
	first := true
	for _, err := range follow.Session(ctx, view, follow.Options{Artifacts: true}) {
		if err != nil {
			b.Fatal(err)
		}
		if now := time.Now(); !first {
			took = append(took, now.Sub(<-wrote))
		}
		if first = false; len(took) == b.N {
			break
		}
		seen <- struct{}{}
	}
	report(b, took)
}

// BenchmarkKernelLatency is the limit: from a write to the event about it.
func BenchmarkKernelLatency(b *testing.B) {
	dir := b.TempDir()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := w.Add(dir); err != nil {
		b.Fatal(err)
	}
	took := make([]time.Duration, 0, b.N)
	for range b.N {
		time.Sleep(pause)
		at := time.Now()
		if _, err := f.WriteString("a line\n"); err != nil {
			b.Fatal(err)
		}
		<-w.Events
		took = append(took, time.Since(at))
	}
	report(b, took)
}
