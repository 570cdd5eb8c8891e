package conversation

import (
	"context"
	"fmt"

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
	done  map[blobref.Ref]int // stored, or in batch: for which state
	state int                 // that is being made; one stored for another may have been deleted since
	batch []blob
	bytes int
	sent  []blob // that the store works on
	under chan error
	count int // stored, of all
	total int64
}

type blob struct {
	ref  blobref.Ref
	data []byte
	old  bool // it was stored for another state, so that it may be there
	had  bool // it was there
}

func newWriter(store blobstore.Store) *writer {
	return &writer{store: store, done: map[blobref.Ref]int{}}
}

// put takes data, which is the writer's from then on.
func (w *writer) put(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	state, done := w.done[ref]
	if done && state == w.state {
		return ref, nil
	}
	w.done[ref] = w.state
	w.batch = append(w.batch, blob{ref: ref, data: data, old: done})
	if w.bytes += len(data); len(w.batch) >= batchBlobs || w.bytes >= batchBytes {
		return ref, w.flush(ctx)
	}
	return ref, nil
}

// has reports whether the blob was stored for this state.
func (w *writer) has(ref blobref.Ref) bool {
	state, done := w.done[ref]
	return done && state == w.state
}

// flush hands what put has taken to the store, which works on it while the next batch is
// made. It returns what became of the batch before.
func (w *writer) flush(ctx context.Context) error {
	batch := w.batch
	w.batch, w.bytes = nil, 0
	if err := w.wait(); err != nil {
		w.forget(batch)
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	w.under = make(chan error, 1)
	w.sent = batch
	go func(done chan<- error) { done <- w.storeBatch(ctx, batch) }(w.under)
	return nil
}

// sync returns when all that put has taken is stored.
func (w *writer) sync(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.wait()
}

// wait waits for the batch that is under way. After an error none of it counts as
// stored.
func (w *writer) wait() error {
	if w.under == nil {
		return nil
	}
	err := <-w.under
	batch := w.sent
	w.under, w.sent = nil, nil
	if err != nil {
		w.forget(batch)
		return err
	}
	for _, b := range batch {
		if !b.had {
			w.count, w.total = w.count+1, w.total+int64(len(b.data))
		}
	}
	return nil
}

func (w *writer) forget(batch []blob) {
	for _, b := range batch {
		delete(w.done, b.ref)
	}
}

// storeBatch stores a batch.
func (w *writer) storeBatch(ctx context.Context, batch []blob) error {
	errs := make([]error, len(batch))
	parallel(min(writeParallel, (len(batch)+7)/8), len(batch), func(i int) {
		if batch[i].old {
			if _, err := blobstore.Stat(ctx, w.store, batch[i].ref); err == nil {
				batch[i].had = true
				return
			}
		}
		if err := w.store.Set(ctx, batch[i].ref, batch[i].data); err != nil {
			errs[i] = fmt.Errorf("storing blob %s: %w", batch[i].ref.Hex(), err)
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
