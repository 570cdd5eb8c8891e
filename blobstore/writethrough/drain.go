package writethrough

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
)

const (
	// pollOthers is how often a process that sends, or waits, looks at what others
	// did with the queue. There is no event for it that all file systems have.
	pollOthers = 250 * time.Millisecond

	// pollSender is how often a process that does not send looks whether it may.
	pollSender = time.Second

	// firstPause and maxPause bound how long the remote is left alone after a
	// failure. The pause doubles with each, and varies by a quarter, so that many
	// machines do not come back at once.
	firstPause = 200 * time.Millisecond
	maxPause   = 30 * time.Second
)

// drain sends what is queued until the context ends, and waits for what it began.
func (s *Store) drain(ctx context.Context) {
	d := &drain{Store: s, slots: make(chan struct{}, s.opts.Workers)}
	defer d.flights.Wait()
	for ctx.Err() == nil {
		wait := pollSender
		if d.maySend(ctx) {
			wait = d.send(ctx)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.queue.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

type drain struct {
	*Store
	sends   bool
	slots   chan struct{} // an element for each flight
	flights sync.WaitGroup

	mu    sync.Mutex
	pause time.Duration // the last one; 0 after a success; guarded by mu
	until time.Time     // when it is over; guarded by mu
}

// maySend reports whether this process is the one that sends.
func (d *drain) maySend(ctx context.Context) bool {
	if d.sends {
		return true
	}
	ok, err := d.sender.TryLock()
	if err != nil {
		d.report(fmt.Errorf("finding out who sends: %w", err))
	}
	if !ok || err != nil {
		return false
	}
	d.sends = true
	// What another process parked may go from here.
	if err := d.log.Update(ctx, d.queue.parkedRecords); err != nil && ctx.Err() == nil {
		d.report(fmt.Errorf("reading the queue: %w", err))
	}
	return true
}

// send begins as many flights as it may and returns when to come back at the latest.
func (d *drain) send(ctx context.Context) time.Duration {
	if err := d.log.CatchUp(ctx); err != nil && ctx.Err() == nil {
		d.report(fmt.Errorf("reading the queue: %w", err))
	}
	for {
		pause, careful := d.paused()
		switch {
		case pause > 0:
			return pause
		case careful && len(d.slots) > 0:
			return pollOthers // one attempt tells whether the remote is back
		}
		select {
		case d.slots <- struct{}{}:
		default:
			return pollOthers // a flight that lands wakes us
		}
		fctx, cancel := context.WithCancel(ctx)
		f := d.queue.next(cancel)
		if f == nil {
			cancel()
			<-d.slots
			return pollOthers
		}
		d.flights.Go(func() {
			defer cancel()
			d.fly(ctx, fctx, f)
			<-d.slots
			d.queue.wakeUp()
		})
	}
}

// paused returns how long the remote is still left alone, and whether it failed last.
func (d *drain) paused() (rest time.Duration, careful bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.until), d.pause > 0
}

// failed lets the remote rest for a while.
func (d *drain) failed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Until(d.until) > 0 {
		return // a flight of the same failure
	}
	d.pause = min(max(2*d.pause, firstPause), maxPause)
	rest := d.pause + time.Duration(rand.Int64N(int64(d.pause)/2)) - d.pause/4
	d.until = time.Now().Add(max(rest, blobstore.RetryAfter(err)))
}

func (d *drain) worked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause, d.until = 0, time.Time{}
}

// fly sends one blob, within fctx, and writes down how it ended, within ctx.
func (d *drain) fly(ctx, fctx context.Context, f *flight) {
	err := d.deliver(fctx, f)
	code, permanent := permanent(err)
	switch {
	case err == nil:
		d.worked()
		d.queue.failure(nil)
		d.writeDown(ctx, f, idlog.Record{Kind: idlog.Done, Ref: f.ref})
	case fctx.Err() != nil: // closed, or deleted meanwhile
	case permanent:
		d.report(err)
		d.queue.refused(f, err)
		d.writeDown(ctx, f, idlog.Record{Kind: idlog.Parked, Code: code, Ref: f.ref})
	default:
		d.failed(err)
		d.queue.failure(err)
		d.report(fmt.Errorf("%w (it stays queued)", err))
	}
	// Before the flight has landed, so that no other one of this blob is in the air.
	if d.queue.deleted(f) {
		d.undo(ctx, f.ref)
	}
	d.queue.landed(f)
}

func (d *drain) writeDown(ctx context.Context, f *flight, r idlog.Record) {
	err := d.log.Update(ctx, func() []idlog.Record {
		if !d.queue.current(f) {
			return nil // it was stored or deleted again, and is sent again
		}
		return []idlog.Record{r}
	})
	if err != nil && ctx.Err() == nil {
		d.failed(err)
		d.report(fmt.Errorf("writing down that %s was sent (it will be asked for again): %w", f.ref, err))
	}
	if err := d.log.Compact(ctx); err != nil && ctx.Err() == nil {
		d.report(fmt.Errorf("compacting the queue: %w", err))
	}
}

// undo deletes from the remote what another process deleted while it was sent.
func (d *drain) undo(ctx context.Context, ref blobref.Ref) {
	err := blobstore.Delete(ctx, d.remote, ref)
	if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
		d.report(fmt.Errorf("deleting %s from the remote store, where it arrived while it was deleted: %w", ref, err))
	}
}

// deliver brings one blob to the remote.
func (s *Store) deliver(ctx context.Context, f *flight) error {
	if f.ask {
		has, err := s.remoteHas(ctx, f.ref)
		if has {
			return nil
		}
		if errors.Is(err, blobstore.ErrUnavailable) {
			return fmt.Errorf("asking the remote store for %s: %w", f.ref, err)
		}
	}
	err := s.upload(ctx, f.ref)
	if s.mode == blobstore.Verified && missing(err) {
		// The local copy is gone or damaged. When the remote has the blob, it is
		// healed from there, and has arrived as well.
		if _, _, ferr := s.fetch(ctx, f.ref); ferr == nil {
			return nil
		} else if !missing(ferr) {
			return fmt.Errorf("sending %s to the remote store: %w", f.ref, ferr)
		}
	}
	if err != nil {
		return fmt.Errorf("sending %s to the remote store: %w", f.ref, err)
	}
	return nil
}

// missing reports that a store has not the bytes of a blob, or not any more.
func missing(err error) bool {
	return errors.Is(err, blobstore.ErrNotFound) || errors.Is(err, blobstore.ErrCorrupt)
}

// remoteHas reports that the remote certainly has the blob, as far as it can be asked:
// a write that was cut off there has another size.
func (s *Store) remoteHas(ctx context.Context, ref blobref.Ref) (bool, error) {
	if s.mode == blobstore.Opaque {
		return false, nil // it may have other bytes
	}
	there, err := blobstore.Stat(ctx, s.remote, ref)
	if err != nil {
		return false, err
	}
	here, err := blobstore.Stat(ctx, s.local, ref)
	return err == nil && here.Size == there.Size, err
}

func (s *Store) upload(ctx context.Context, ref blobref.Ref) error {
	if sent, err := s.uploadStream(ctx, ref); sent || err != nil {
		return err
	}
	data, err := s.local.Get(ctx, ref)
	if err != nil {
		return err
	}
	return s.remote.Set(ctx, ref, data)
}

// await waits for done. It looks at the queue meanwhile, for another process may be the
// one that sends.
func (s *Store) await(ctx context.Context, done <-chan struct{}) error {
	ticker := time.NewTicker(pollOthers)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return errClosed
		case <-ticker.C:
			if err := s.log.CatchUp(ctx); err != nil {
				return err
			}
		}
	}
}

var errClosed = errors.New("the writethrough store was closed")

// Reconcile queues every blob that the local store has and the remote has not, and
// returns how many these are. It is for a queue that was damaged, or lost, and ends
// ErrQueueDamaged. Nothing tells it which blobs came by SetLocal: they are sent too.
// In mode Opaque, where the remote may have other bytes, that is all local blobs.
// Both stores must be able to list or to describe blobs, else the error matches
// blobstore.ErrUnsupported.
func (s *Store) Reconcile(ctx context.Context) (int, error) {
	if err := s.log.CatchUp(ctx); err != nil {
		return 0, fmt.Errorf("comparing the stores: %w", err)
	}
	n := 0
	for info, err := range blobstore.Walk(ctx, s.local) {
		if err != nil {
			return n, fmt.Errorf("comparing the stores: %w", err)
		}
		if has, _ := s.remoteHas(ctx, info.Ref); has {
			continue // what cannot be asked for is sent
		}
		if err := s.enqueue(ctx, info.Ref); err != nil {
			return n, fmt.Errorf("comparing the stores: %w", err)
		}
		n++
	}
	err := s.log.Update(ctx, func() []idlog.Record { return []idlog.Record{{Kind: idlog.Reconciled}} })
	if err != nil {
		return n, fmt.Errorf("comparing the stores: %w", err)
	}
	return n, nil
}

// Left returns how many blobs have left the queue since New: they arrived, sent by this
// process or another one, or were deleted.
func (s *Store) Left() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.left
}

// Queued returns how many blobs wait for the remote, those that cannot go included.
func (s *Store) Queued() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.pending)
}
