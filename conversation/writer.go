package conversation

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Blobs are handed to the store in batches, which it takes from several goroutines: a
// store that waits for its disk or its network is then asked for much at once.
const (
	batchBlobs    = 256
	batchBytes    = 4 << 20
	writeParallel = 8
)

// writer stores blobs under their hash, each once. It is not safe for concurrent use.
type writer struct {
	store blobstore.Store
	done  map[blobref.Ref]struct{} // stored, or in batch
	batch []blob
	bytes int
	count int // stored, of all
	total int64
}

type blob struct {
	ref  blobref.Ref
	data []byte
}

func newWriter(store blobstore.Store) *writer {
	return &writer{store: store, done: map[blobref.Ref]struct{}{}}
}

// put takes data, which is the writer's from then on.
func (w *writer) put(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	if _, done := w.done[ref]; done {
		return ref, nil
	}
	w.done[ref] = struct{}{}
	w.batch = append(w.batch, blob{ref, data})
	if w.bytes += len(data); len(w.batch) >= batchBlobs || w.bytes >= batchBytes {
		return ref, w.flush(ctx)
	}
	return ref, nil
}

// has reports whether the blob was stored by this writer.
func (w *writer) has(ref blobref.Ref) bool {
	_, done := w.done[ref]
	return done
}

// flush stores what put has taken. After an error none of the batch counts as stored.
func (w *writer) flush(ctx context.Context) error {
	batch := w.batch
	w.batch, w.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	n := min(writeParallel, (len(batch)+7)/8)
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for k := i; k < len(batch) && errs[i] == nil; k += n {
				if err := w.store.Set(ctx, batch[k].ref, batch[k].data); err != nil {
					errs[i] = fmt.Errorf("storing blob %s: %w", batch[k].ref.Hex(), err)
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			for _, b := range batch {
				delete(w.done, b.ref)
			}
			return err
		}
	}
	w.count += len(batch)
	for _, b := range batch {
		w.total += int64(len(b.data))
	}
	return nil
}
