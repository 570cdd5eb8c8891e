package writethrough

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
)

// ErrQueueDamaged means that records of the queue were damaged beyond reading, so
// that it is not known whether all blobs reach the remote. Reconcile heals it.
var ErrQueueDamaged = errors.New("the queue of blobs for the remote store was damaged; compare the stores, with Reconcile or agentrun blobs sync --all (it sends all local blobs that the remote has not)")

// UndeliveredError is returned by Flush for blobs that cannot go to the remote as
// things are. They stay queued and are tried again by the next Flush, by a Set of the
// same blob, and when the queue is opened again.
type UndeliveredError struct {
	Refs []blobref.Ref
	Errs []error // why, in the order of Refs
}

// Error names the first few.
func (e *UndeliveredError) Error() string {
	const shown = 3
	var b strings.Builder
	fmt.Fprintf(&b, "%d blobs cannot go to the remote store: ", len(e.Refs))
	for i, ref := range e.Refs {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(e.Refs)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %v", ref, e.Errs[i])
	}
	if slices.ContainsFunc(e.Errs, missing) {
		b.WriteString("; what is gone or damaged here goes there once its bytes are stored again (agentrun blobs put)")
	}
	return b.String()
}

// Unwrap returns the reasons.
func (e *UndeliveredError) Unwrap() []error { return e.Errs }

// reasons are why a blob is parked, by the code that is on disk for processes that did
// not see the error itself. A code keeps its meaning; 0 is any other reason.
var reasons = [...]error{
	0: errors.New("the remote store refuses it"),
	1: blobstore.ErrCorrupt,
	2: blobstore.ErrNotFound,
	3: blobstore.ErrMismatch,
	4: blobstore.ErrTooLarge,
	5: blobstore.ErrUnsupported,
	6: blobstore.ErrReadOnly,
	7: blobstore.ErrMode,
	8: blobref.ErrInvalid,
	9: blobstore.ErrNotLocal,
}

// permanent reports whether trying again is of no use until somebody does something,
// and the code of the reason.
func permanent(err error) (code byte, ok bool) {
	for code, reason := range reasons {
		if code > 0 && errors.Is(err, reason) {
			return byte(code), true
		}
	}
	return 0, false
}

// queue is what is known of the log: which blobs have to go. It is an idlog.State.
type queue struct {
	verified bool

	mu      sync.Mutex // guards all below
	pending map[blobref.Ref]*entry
	parked  int           // entries that are parked
	left    int           // entries that went because the remote has them, or that were deleted
	ready   []blobref.Ref // first in, first out; entries that changed since are skipped
	flights map[blobref.Ref]*flight
	seq     uint64
	damaged int
	failed  error                    // of the last flight, nil when it arrived
	arrived map[blobref.Ref]struct{} // a bounded memory of what the remote has
	waiters map[*waiter]struct{}
	room    chan struct{} // closed and replaced when an entry goes
	wake    chan struct{} // has one element when there is something for the drain
}

// maxArrived bounds the memory of what the remote has to some MiB. When it is full it
// starts anew, at the cost of sending some blob again.
const maxArrived = 1 << 16

// entry is a blob that has to go.
type entry struct {
	ref    blobref.Ref
	seq    uint64 // of the last time it was queued
	ask    bool   // the remote may have it: ask before sending
	parked error  // why it cannot go, or nil
}

// flight is an upload that runs.
type flight struct {
	ref    blobref.Ref
	seq    uint64 // of the entry when it began
	ask    bool
	gone   bool          // the blob was deleted meanwhile; guarded by queue.mu
	err    error         // why it cannot arrive; guarded by queue.mu
	cancel func()        // ends it early
	done   chan struct{} // closed at its end
}

// waiter waits for blobs to arrive or to be parked.
type waiter struct {
	left  map[blobref.Ref]struct{}
	undel UndeliveredError
	done  chan struct{} // closed when nothing is left
}

func newQueue(mode blobstore.Mode) *queue {
	return &queue{
		verified: mode == blobstore.Verified,
		pending:  make(map[blobref.Ref]*entry),
		flights:  make(map[blobref.Ref]*flight),
		arrived:  make(map[blobref.Ref]struct{}),
		waiters:  make(map[*waiter]struct{}),
		room:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
	}
}

// Apply follows the log.
func (q *queue) Apply(reset bool, records []idlog.Record, damaged int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.damaged += damaged
	if reset {
		q.damaged = damaged
		q.reset(records)
	}
	for _, r := range records {
		switch r.Kind {
		case idlog.Queued:
			q.add(r.Ref, reset)
		case idlog.Done:
			if _, waits := q.pending[r.Ref]; waits && !reset {
				q.left++
			}
			q.finish(r.Ref)
			if len(q.arrived) >= maxArrived {
				clear(q.arrived)
			}
			q.arrived[r.Ref] = struct{}{}
		case idlog.Deleted:
			q.finish(r.Ref)
			delete(q.arrived, r.Ref)
			if f := q.flights[r.Ref]; f != nil {
				f.gone = true
				f.cancel()
			}
		case idlog.Parked:
			q.park(r.Ref, q.why(r))
		case idlog.Damaged:
			q.damaged++
		case idlog.Reconciled:
			q.damaged = 0
		}
	}
}

// why returns the reason why a blob is parked: the error itself where this process saw
// it.
func (q *queue) why(r idlog.Record) error {
	if f := q.flights[r.Ref]; f != nil && f.err != nil {
		return f.err
	}
	code := 0
	if int(r.Code) < len(reasons) {
		code = int(r.Code)
	}
	return fmt.Errorf("sending %s to the remote store: %w", r.Ref, reasons[code])
}

// reset forgets what the log does not say any more.
func (q *queue) reset(records []idlog.Record) {
	still := make(map[blobref.Ref]bool)
	for _, r := range records {
		switch r.Kind {
		case idlog.Queued:
			still[r.Ref] = true
		case idlog.Done, idlog.Deleted:
			delete(still, r.Ref)
		}
	}
	for ref := range q.pending {
		if !still[ref] {
			q.finish(ref)
			q.left++
		}
	}
}

func (q *queue) add(ref blobref.Ref, old bool) {
	q.seq++
	e, ok := q.pending[ref]
	if !ok {
		_, arrived := q.arrived[ref]
		e = &entry{ref: ref, ask: old || arrived}
		q.pending[ref] = e
		q.push(ref)
	} else if e.parked != nil {
		e.parked, e.ask = nil, true
		q.parked--
		q.push(ref)
	}
	e.seq = q.seq
}

func (q *queue) push(ref blobref.Ref) {
	q.ready = append(q.ready, ref)
	q.wakeUp()
}

func (q *queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) finish(ref blobref.Ref) {
	e, ok := q.pending[ref]
	if !ok {
		return
	}
	delete(q.pending, ref)
	if e.parked != nil {
		q.parked--
	}
	q.settled(ref, nil)
}

func (q *queue) park(ref blobref.Ref, why error) {
	e, ok := q.pending[ref]
	if !ok {
		return
	}
	if e.parked == nil {
		q.parked++
	}
	e.parked = why
	q.settled(ref, why)
}

// settled tells those who wait.
func (q *queue) settled(ref blobref.Ref, why error) {
	for w := range q.waiters {
		if _, waits := w.left[ref]; !waits {
			continue
		}
		delete(w.left, ref)
		if why != nil {
			w.undel.Refs, w.undel.Errs = append(w.undel.Refs, ref), append(w.undel.Errs, why)
		}
		if len(w.left) == 0 {
			delete(q.waiters, w)
			close(w.done)
		}
	}
	close(q.room)
	q.room = make(chan struct{})
}

// Live returns the records of the present state.
func (q *queue) Live() []idlog.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	entries := slices.SortedFunc(maps.Values(q.pending), func(a, b *entry) int { return int(int64(a.seq) - int64(b.seq)) })
	records := make([]idlog.Record, 0, len(entries)+1)
	for _, e := range entries {
		records = append(records, idlog.Record{Kind: idlog.Queued, Ref: e.ref})
		if e.parked != nil {
			code, _ := permanent(e.parked)
			records = append(records, idlog.Record{Kind: idlog.Parked, Code: code, Ref: e.ref})
		}
	}
	if q.damaged > 0 {
		records = append(records, idlog.Record{Kind: idlog.Damaged})
	}
	return records
}

// queued reports whether the blob will go without being queued again.
func (q *queue) queued(ref blobref.Ref) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pending[ref]
	return e != nil && e.parked == nil && q.verified && q.flights[ref] == nil
}

// next takes the blob that has waited longest, and nil when there is none.
func (q *queue) next(cancel func()) *flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 {
		ref := q.ready[0]
		q.ready = q.ready[1:]
		e := q.pending[ref]
		if e == nil || e.parked != nil || q.flights[ref] != nil {
			continue // what flies is looked at again when it lands
		}
		f := &flight{ref: ref, seq: e.seq, ask: e.ask, cancel: cancel, done: make(chan struct{})}
		q.flights[ref] = f
		return f
	}
	q.ready = nil // its memory, too
	return nil
}

// landed ends a flight. What still has to go is put behind all others.
func (q *queue) landed(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.flights, f.ref)
	close(f.done)
	if e := q.pending[f.ref]; e != nil && e.parked == nil {
		e.ask = true
		q.push(f.ref)
	}
}

// current reports whether the outcome of a flight is that of its blob: it is still
// queued, was not deleted meanwhile, and not stored again, for the flight may have had
// other bytes.
func (q *queue) current(f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pending[f.ref]
	return e != nil && e.seq == f.seq
}

// deleted reports whether the blob was deleted while it flew.
func (q *queue) deleted(f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return f.gone
}

// wait returns a waiter for all that is queued, which the caller forgets later.
func (q *queue) wait() *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiter(q.pending)
}

// waiter is called with q.mu held.
func (q *queue) waiter(entries map[blobref.Ref]*entry) *waiter {
	w := &waiter{left: make(map[blobref.Ref]struct{}, len(entries)), done: make(chan struct{})}
	for ref, e := range entries {
		if e.parked == nil {
			w.left[ref] = struct{}{}
		} else {
			w.undel.Refs, w.undel.Errs = append(w.undel.Refs, ref), append(w.undel.Errs, e.parked)
		}
	}
	if len(w.left) == 0 {
		close(w.done)
	} else {
		q.waiters[w] = struct{}{}
	}
	return w
}

// forget ends a wait, and returns how many blobs have not arrived.
func (q *queue) forget(w *waiter) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiters, w)
	return len(w.left)
}

// parkedRecords returns the records that let parked blobs be tried again.
func (q *queue) parkedRecords() []idlog.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	var records []idlog.Record
	for ref, e := range q.pending {
		if e.parked != nil {
			records = append(records, idlog.Record{Kind: idlog.Queued, Ref: ref})
		}
	}
	return records
}

// full returns nil when fewer than limit blobs wait, else a channel that is closed
// when that may have changed.
func (q *queue) full(limit int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending)-q.parked <= limit {
		return nil
	}
	return q.room
}

// waits reports whether the blob is queued, parked ones included.
func (q *queue) waits(ref blobref.Ref) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pending[ref] != nil
}

// landing waits until no flight of the blob is in the air.
func (q *queue) landing(ctx context.Context, ref blobref.Ref) error {
	q.mu.Lock()
	f := q.flights[ref]
	q.mu.Unlock()
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused notes why a flight cannot arrive, for the record that parks the blob.
func (q *queue) refused(f *flight, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.err = why
}

// failure remembers why the last flight failed, for those who wait in vain.
func (q *queue) failure(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = err
}

// lastFailure describes the last failure, if nothing arrived since.
func (q *queue) lastFailure() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed == nil {
		return ""
	}
	return fmt.Sprintf("; the last attempt failed: %v", q.failed)
}

func (q *queue) damage() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.damaged
}
