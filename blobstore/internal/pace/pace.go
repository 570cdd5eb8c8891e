// Package pace gives up transfers that stall: nothing moves for a while, or so little
// that a peer that sends a byte now and then could hold on for ever.
package pace

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// What is waited for where nothing else is said.
const (
	DefaultGrace = 30 * time.Second
	DefaultRate  = 16 << 10
)

// ErrTooSlow is the cause for which the context of a transfer ends.
var ErrTooSlow = errors.New("the other side stalls, or is slower than what is waited for")

// Limits say when a transfer is given up.
type Limits struct {
	Grace time.Duration // how long nothing may move
	Rate  int64         // bytes a second that have to move on the average, after Grace
}

// Fill puts defaults in the place of zeros.
func (l *Limits) Fill() {
	if l.Grace <= 0 {
		l.Grace = DefaultGrace
	}
	if l.Rate <= 0 {
		l.Rate = DefaultRate
	}
}

// Deadline is when a transfer that began at a time and has moved bytes until now is
// given up, unless more moves.
func (l Limits) Deadline(began, now time.Time, moved int64) time.Time {
	idle := now.Add(l.Grace)
	// In seconds, where the product would overflow for sizes that a peer claims.
	average := began.Add(l.Grace + time.Duration(moved/l.Rate)*time.Second)
	if average.Before(idle) {
		return average
	}
	return idle
}

// Watch ends a context when what it is for does not move fast enough. Its methods may
// be called concurrently.
type Watch struct {
	limits Limits
	began  time.Time
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	bytes int64       // guarded by mu
}

// New begins to watch. The transfer goes on with the context that it returns, and Stop
// ends both.
func New(ctx context.Context, l Limits) (context.Context, *Watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Watch{
		limits: l, began: time.Now(), cancel: cancel,
		timer: time.AfterFunc(l.Grace, func() { cancel(ErrTooSlow) }),
	}
}

// Moved says that n bytes have moved.
func (w *Watch) Moved(n int) {
	if n <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(n)
	now := time.Now()
	w.timer.Reset(w.limits.Deadline(w.began, now, w.bytes).Sub(now))
}

// Stop ends the watch and the context.
func (w *Watch) Stop() {
	w.mu.Lock()
	w.timer.Stop()
	w.mu.Unlock()
	w.cancel(nil)
}

// Upload is a body on its way out. It keeps the error of what it reads.
type Upload struct {
	io.Reader
	Watch *Watch

	mu  sync.Mutex
	err error // guarded by mu
}

func (u *Upload) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	u.Watch.Moved(n)
	if err != nil && err != io.EOF {
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
	return n, err
}

// Err is the error of what was read, nil without one.
func (u *Upload) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Download is a body on its way in. Close ends the watch.
type Download struct {
	io.ReadCloser
	Watch *Watch
	Ctx   context.Context // of the watch: an error is told by its cause
}

func (d *Download) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	d.Watch.Moved(n)
	if err != nil && err != io.EOF {
		if cause := context.Cause(d.Ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close closes the body.
func (d *Download) Close() error {
	err := d.ReadCloser.Close()
	d.Watch.Stop()
	return err
}
