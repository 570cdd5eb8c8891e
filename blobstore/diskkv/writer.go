package diskkv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// errReplaced means that the file under the name is another than the one that was
// written to. Nothing is acknowledged then.
var errReplaced = errors.New("the file was replaced by another while it was written to")

// Limits of what goes into one transaction.
const (
	maxJobs  = 1024
	maxBytes = 8 << 20
)

// writer is the one connection of a store that writes. Those who want to write queue
// up, and whose turn it is writes for all who are there: the more there are, the fewer
// transactions, and syncs, each of them costs. There is no goroutine to be woken, nor
// to be ended.
type writer struct {
	conn  *conn
	check func() error // after a commit: whether it counts
	turn  chan struct{}

	untidy bool // a transaction may be left; who has the turn knows

	mu    sync.Mutex
	queue []*job // guarded by mu

	dirty atomic.Bool // something was acknowledged that no sync followed
}

type job struct {
	weight int
	do     func(c *conn) error
	err    error
	done   chan struct{} // closed when err is final
}

func (j *job) isDone() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func newWriter(c *conn, check func() error) *writer {
	return &writer{conn: c, check: check, turn: make(chan struct{}, 1)}
}

// do has f called in a transaction and returns when that is committed. An error means
// that nothing of f is stored, or, when it came from the disk at the very end, all of
// it. f may be called more than once, and never is when the
// context ended before its turn came.
func (w *writer) do(ctx context.Context, weight int, f func(c *conn) error) error {
	j := &job{weight: weight, do: f, done: make(chan struct{})}
	w.mu.Lock()
	w.queue = append(w.queue, j)
	w.mu.Unlock()
	for {
		select {
		case <-j.done:
			return j.err
		case w.turn <- struct{}{}:
			var err error
			if !j.isDone() {
				err = w.next(ctx)
			}
			<-w.turn
			if err != nil && w.withdraw(j) {
				return err
			}
		case <-ctx.Done():
			if w.withdraw(j) {
				return ctx.Err()
			}
			<-j.done
			return j.err
		}
	}
}

// withdraw takes a job out of the queue, if it is still there.
func (w *writer) withdraw(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, j)
	if i < 0 {
		return false
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	return true
}

// next writes what is first in the queue. An error is about the caller's context, or
// about the lock of the file, and no job was touched.
func (w *writer) next(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	n, weight := 0, 0
	for n < len(w.queue) && n < maxJobs && (n == 0 || weight+w.queue[n].weight <= maxBytes) {
		weight += w.queue[n].weight
		n++
	}
	jobs := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	w.mu.Unlock()

	err := w.commit(jobs)
	switch {
	case err == nil:
	case len(jobs) == 1 || errors.Is(err, errReplaced):
		for _, j := range jobs {
			j.err = err
		}
	default:
		// One of them spoilt it for all: each gets a transaction, and an error, of its own.
		var busy error // and is not waited for again and again
		for _, j := range jobs {
			if j.err = busy; busy != nil {
				continue
			}
			if j.err = w.begin(context.Background()); j.err == nil {
				j.err = w.commit([]*job{j})
			} else if errors.Is(j.err, ErrBusy) {
				busy = j.err
			}
		}
	}
	for _, j := range jobs {
		close(j.done)
	}
	return nil
}

// begin begins a transaction.
func (w *writer) begin(ctx context.Context) error {
	if err := w.tidy(); err != nil {
		return err
	}
	_, err := w.conn.exec(ctx, "BEGIN IMMEDIATE")
	w.untidy = err != nil && !errors.Is(err, ErrBusy)
	return err
}

// tidy ends a transaction that could not be ended when it failed.
func (w *writer) tidy() error {
	if !w.untidy {
		return nil
	}
	return w.rollback()
}

// commit runs jobs in the transaction that was begun. On an error nothing of them is
// stored.
func (w *writer) commit(jobs []*job) error {
	bg := context.Background() // what was begun is not left half done
	for _, j := range jobs {
		if err := j.do(w.conn); err != nil {
			return errors.Join(err, w.rollback())
		}
	}
	if _, err := w.conn.exec(bg, "COMMIT"); err != nil {
		return errors.Join(fmt.Errorf("committing: %w", err), w.rollback())
	}
	w.dirty.Store(true)
	return w.check()
}

// rollback ends a transaction, unless SQLite did so itself.
func (w *writer) rollback() error {
	_, err := w.conn.exec(context.Background(), "ROLLBACK")
	if codeOf(err) == codeError { // no transaction is active
		err = nil
	}
	w.untidy = err != nil
	return err
}

// sync makes what was committed so far survive power loss: a commit that syncs the log
// syncs what is before it in there, and what was brought from the log into the file
// was synced by that.
func (w *writer) sync(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.turn }()
	if !w.dirty.Load() {
		return nil
	}
	if err := w.tidy(); err != nil {
		return err
	}
	bg := context.Background()
	if _, err := w.conn.exec(bg, "PRAGMA synchronous = FULL"); err != nil {
		return err
	}
	err := w.begin(ctx)
	if err == nil {
		err = w.commit([]*job{{do: touch}})
	}
	if _, rerr := w.conn.exec(bg, "PRAGMA synchronous = NORMAL"); err == nil {
		err = rerr
	}
	if err == nil {
		w.dirty.Store(false)
	}
	return err
}
