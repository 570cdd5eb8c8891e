// Package blobstack_test measures the layers that stand around a blob store,
// each beside the work that nobody can save.
//
//	go test -run '^$' -bench . ./bench/blobstack
package blobstack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// blobs returns n blobs of size bytes and their references.
func blobs(n, size int) ([][]byte, []blobref.Ref) {
	data, refs := make([][]byte, n), make([]blobref.Ref, n)
	for i := range data {
		data[i] = make([]byte, size)
		copy(data[i], fmt.Sprint(i))
		refs[i] = blobref.Of(data[i])
	}
	return data, refs
}

// BenchmarkCachedGet gets blobs of 1 KiB that are kept, by 1 and by 8 goroutines;
// must be within 1 µs, and 8 goroutines must not get fewer a second than one. The
// limit is a copy of the blob. The peer is a cache of otter with the same copy.
func BenchmarkCachedGet(b *testing.B) {
	const count, size = 10_000, 1 << 10
	data, refs := blobs(count, size)
	ctx := context.Background()

	c := cached.New(memory.New(blobstore.Verified), cached.Options{MaxBytes: 64 << 20})
	peer := otter.Must(&otter.Options[blobref.Ref, []byte]{
		MaximumWeight: 64 << 20,
		Weigher:       func(_ blobref.Ref, data []byte) uint32 { return uint32(len(data)) + 256 },
	})
	for i, ref := range refs {
		if err := c.Set(ctx, ref, data[i]); err != nil {
			b.Fatal(err)
		}
		peer.Set(ref, slices.Clone(data[i]))
	}
	peer.CleanUp()

	for _, way := range []struct {
		name string
		get  func(i int) ([]byte, error)
	}{
		{"ours", func(i int) ([]byte, error) { return c.Get(ctx, refs[i]) }},
		{"otter", func(i int) ([]byte, error) {
			found, ok := peer.GetIfPresent(refs[i])
			if !ok {
				return nil, blobstore.ErrNotFound
			}
			return append(make([]byte, 0, len(found)), found...), nil
		}},
		{"limit=copy", func(i int) ([]byte, error) { return append(make([]byte, 0, size), data[i]...), nil }},
	} {
		for _, goroutines := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", way.name, goroutines), func(b *testing.B) {
				inParallel(b, goroutines, func(i int) {
					if got, err := way.get(i * 7919 % count); err != nil || len(got) != size {
						b.Error(len(got), err)
					}
				})
			})
		}
	}
}

// inParallel has goroutines do b.N calls together, and reports the time of one
// call as wall time over calls.
func inParallel(b *testing.B, goroutines int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	began := time.Now()
	for range goroutines {
		workers.Go(func() {
			const batch = 64 // so that the counter is not what is measured
			for {
				end := int(next.Add(batch))
				for i := end - batch; i < min(end, b.N); i++ {
					do(i)
				}
				if end >= b.N {
					return
				}
			}
		})
	}
	workers.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "get/s")
}

// BenchmarkCachedMiss gets blobs of 1 KiB, few of them often and most of them
// seldom (Zipf), where a tenth of them fit, by 8 goroutines, beside otter with the
// same loads and copies. The store below is memory, so that what shows is the
// cache; hit-% is the share that it served itself.
func BenchmarkCachedMiss(b *testing.B) {
	const count, size = 50_000, 1 << 10
	data, refs := blobs(count, size)
	ctx := context.Background()
	inner := memory.New(blobstore.Verified)
	for i, ref := range refs {
		if err := inner.Set(ctx, ref, data[i]); err != nil {
			b.Fatal(err)
		}
	}
	order := make([]blobref.Ref, 1<<20)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 10, count-1)
	for i := range order {
		order[i] = refs[zipf.Uint64()]
	}
	const room = count / 10 * (size + 256)

	b.Run("ours", func(b *testing.B) {
		below := &countingStore{Store: inner}
		c := cached.New(below, cached.Options{MaxBytes: room})
		inParallel(b, 8, func(i int) {
			if _, err := c.Get(ctx, order[i%len(order)]); err != nil {
				b.Error(err)
			}
		})
		b.ReportMetric(100*(1-float64(below.gets.Load())/float64(b.N)), "hit-%")
	})
	b.Run("otter", func(b *testing.B) {
		peer := otter.Must(&otter.Options[blobref.Ref, []byte]{
			MaximumWeight: room,
			Weigher:       func(_ blobref.Ref, data []byte) uint32 { return uint32(len(data)) + 256 },
		})
		below := &countingStore{Store: inner}
		load := otter.LoaderFunc[blobref.Ref, []byte](func(ctx context.Context, ref blobref.Ref) ([]byte, error) {
			data, err := below.Get(ctx, ref)
			if err == nil && !ref.Verify(data) {
				err = blobstore.ErrCorrupt
			}
			return data, err
		})
		inParallel(b, 8, func(i int) {
			found, err := peer.Get(ctx, order[i%len(order)], load)
			if err != nil {
				b.Error(err)
			}
			_ = append(make([]byte, 0, len(found)), found...)
		})
		b.ReportMetric(100*(1-float64(below.gets.Load())/float64(b.N)), "hit-%")
	})
}

// countingStore counts what reaches it.
type countingStore struct {
	blobstore.Store
	gets atomic.Int64
}

func (s *countingStore) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	s.gets.Add(1)
	return s.Store.Get(ctx, ref)
}
