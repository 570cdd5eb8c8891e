package retry

import (
	"fmt"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobstore"
)

// State is what a breaker lets through.
type State uint8

const (
	Closed   State = iota // everything
	Open                  // nothing, until its time is over
	HalfOpen              // one call, whose answer decides
)

func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Breaker describes a breaker.
type Breaker struct {
	State    State
	Failures int       // attempts in a row that failed
	Until    time.Time // when an open breaker lets a call through; zero unless Open
}

// breaker counts failures in a row.
type breaker struct {
	after int           // negative: never opens
	pause time.Duration // how long it stays open

	mu       sync.Mutex
	state    State     // guarded by mu
	failures int       // guarded by mu
	until    time.Time // guarded by mu; of Open
	probe    *ticket   // guarded by mu; of HalfOpen: the call that was let through
}

// ticket is an attempt that was let through.
type ticket struct{ left bool }

// enter lets an attempt through, or says why not. Who was let through leaves.
func (b *breaker) enter() (*ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := new(ticket)
	switch {
	case b.state == Closed:
		return t, nil
	case b.state == Open && time.Now().Before(b.until):
		return nil, b.isOpen(time.Until(b.until))
	case b.state == HalfOpen && b.probe != nil:
		return nil, b.isOpen(0)
	}
	b.state, b.probe = HalfOpen, t
	return t, nil
}

func (b *breaker) isOpen(rest time.Duration) error {
	err := fmt.Errorf("%w (%d failed attempts in a row)", ErrBreakerOpen, b.failures)
	return &blobstore.UnavailableError{Err: err, After: rest}
}

// leave says how the attempt went. Only the first time counts.
func (b *breaker) leave(t *ticket, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	probe := b.probe == t
	if probe {
		b.probe = nil
	}
	if b.state != Closed && !probe {
		return // it began before the breaker opened, and says nothing about now
	}
	switch v {
	case answered:
		b.state, b.failures = Closed, 0
	case failed:
		b.failures++
		if probe || b.after >= 0 && b.failures >= b.after {
			b.state, b.until = Open, time.Now().Add(b.pause)
		}
	}
}

func (b *breaker) describe() Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := Breaker{State: b.state, Failures: b.failures}
	if b.state == Open {
		d.Until = b.until
	}
	return d
}

// budget bounds how many attempts are not first ones. It counts in tenths of an
// attempt, of which a call that succeeds earns one: so gRPC throttles its retries by
// default (gRFC A6).
type budget struct {
	full int // negative: no bound

	mu   sync.Mutex
	left int // guarded by mu
}

const attemptCosts = 10

func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+1, b.full)
}

func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full < 0 {
		return true
	}
	if b.left < attemptCosts {
		return false
	}
	b.left -= attemptCosts
	return true
}
