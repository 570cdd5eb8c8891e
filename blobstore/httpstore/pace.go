package httpstore

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

var errTooSlow = errors.New("the other side stalls, or is slower than what is waited for")

// limits say when a transfer is given up.
type limits struct {
	grace time.Duration // how long nothing may move
	rate  int64         // bytes a second that have to move on the average, after grace
}

// deadline is when a transfer that began at a time and has moved bytes until now is
// given up, unless more moves.
func (l limits) deadline(began, now time.Time, moved int64) time.Time {
	idle := now.Add(l.grace)
	// In seconds, where the product would overflow for sizes that a peer claims.
	average := began.Add(l.grace + time.Duration(moved/l.rate)*time.Second)
	if average.Before(idle) {
		return average
	}
	return idle
}

// pace ends a context when what it is for does not move fast enough.
type pace struct {
	limits
	began  time.Time
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	bytes int64       // guarded by mu
}

// newPace starts to watch. stop ends it.
func newPace(ctx context.Context, l limits) (context.Context, *pace) {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &pace{limits: l, began: time.Now(), cancel: cancel}
	p.timer = time.AfterFunc(l.grace, func() { cancel(errTooSlow) })
	return ctx, p
}

func (p *pace) moved(n int) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(n)
	now := time.Now()
	p.timer.Reset(p.deadline(p.began, now, p.bytes).Sub(now))
}

func (p *pace) stop() {
	p.mu.Lock()
	p.timer.Stop()
	p.mu.Unlock()
	p.cancel(nil)
}

// upload is a body on its way out. It keeps the error of what it reads.
type upload struct {
	io.Reader
	pace *pace

	mu  sync.Mutex
	err error // guarded by mu
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	u.pace.moved(n)
	if err != nil && err != io.EOF {
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
	return n, err
}

func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// download is a body on its way in.
type download struct {
	io.ReadCloser
	pace *pace
	ctx  context.Context
}

func (d *download) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	d.pace.moved(n)
	if err != nil && err != io.EOF {
		if cause := context.Cause(d.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (d *download) Close() error {
	err := d.ReadCloser.Close()
	d.pace.stop()
	return err
}
