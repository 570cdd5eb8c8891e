package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/agentrun/agentrun/blobstore"
)

// attempt is one time that the store below is asked.
type attempt struct {
	ctx context.Context // of the caller, until end or until the time is over
	n   int             // of the call, from 1

	// final says why no other attempt can follow this one; empty when it can.
	final string

	// blameless says that a failure is not one of the store below.
	blameless bool

	store  *Store
	ticket *ticket
	limit  time.Duration // 0: none
	timer  *time.Timer
	cancel context.CancelCauseFunc
	kept   bool // ctx lives on when the attempt has ended
}

// errLate is the cause of the end of an attempt that took too long.
var errLate = errors.New("no answer in time")

// verdict is what an attempt says about the store below.
type verdict int

const (
	unknown  verdict = iota // nothing: the caller went away
	answered                // it works, whether the answer was pleasant or not
	failed                  // it could not answer
)

// do asks until there is an answer or no reason to go on.
func (s *Store) do(ctx context.Context, c call, ask func(*attempt) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	var until time.Time
	if s.policy.Timeout > 0 {
		until = time.Now().Add(s.policy.Timeout)
	}
	var last error
	for n := 1; ; n++ {
		t, err := s.breaker.enter()
		if err != nil {
			if last != nil {
				return fmt.Errorf("%v: %w; before: %v", c, err, last)
			}
			return fmt.Errorf("%v: %w", c, err)
		}
		a := s.attempt(ctx, n, until, t)
		v, err := a.try(ctx, c, ask)
		if v != failed {
			if err == nil {
				s.budget.earn()
			}
			return err
		}
		last = err
		wait := s.wait(n, err)
		if why := s.giveUp(a, wait, until); why != "" {
			return fmt.Errorf("%w; asked %s, and no more: %s", err, times(n), why)
		}
		if err := sleep(ctx, wait); err != nil {
			return fmt.Errorf("%v: %w; before: %v", c, err, last)
		}
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (s *Store) attempt(ctx context.Context, n int, until time.Time, t *ticket) *attempt {
	a := &attempt{n: n, store: s, ticket: t, limit: max(s.policy.AttemptTimeout, 0)}
	if !until.IsZero() {
		if rest := time.Until(until); a.limit == 0 || rest < a.limit {
			a.limit = max(rest, 1) // 0 would be no limit
		}
	}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if a.limit > 0 {
		a.timer = time.AfterFunc(a.limit, func() { a.cancel(errLate) })
	}
	return a
}

// try asks once.
func (a *attempt) try(ctx context.Context, c call, ask func(*attempt) error) (v verdict, err error) {
	defer func() {
		a.store.breaker.leave(a.ticket, v) // unknown when ask panics
		a.stopClock()
		if !a.kept {
			a.cancel(nil)
		}
	}()
	return a.judge(ctx, c, ask(a))
}

// judge tells answers from failures.
func (a *attempt) judge(ctx context.Context, c call, err error) (verdict, error) {
	if err == nil {
		return answered, nil
	}
	unavailable := errors.Is(err, blobstore.ErrUnavailable)
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case !unavailable && !ended:
		return answered, err
	case ctx.Err() != nil:
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%v: %w; before: %v", c, ctx.Err(), err)
		}
		return unknown, err
	case a.blameless:
		return unknown, err
	case a.late():
		// Not wrapped: the context that ended was none of the caller's.
		late := fmt.Errorf("%v: %w (%v): %v", c, errLate, a.limit.Round(time.Millisecond), err)
		return failed, &blobstore.UnavailableError{Err: late}
	case unavailable:
		return failed, err
	}
	return answered, err // a deadline of somebody below, who did not call it passing
}

func (a *attempt) late() bool { return errors.Is(context.Cause(a.ctx), errLate) }

// stopClock lets the attempt take as long as it wants from now on.
func (a *attempt) stopClock() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// startAnew gives the attempt a time of its own that moved prolongs, without the
// bound of the whole call; none where limit is negative.
func (a *attempt) startAnew(limit time.Duration) {
	a.stopClock()
	a.timer = nil
	if a.limit = limit; limit > 0 {
		a.timer = time.AfterFunc(limit, func() { a.cancel(errLate) })
	}
}

// moved begins the time of the attempt anew.
func (a *attempt) moved() {
	if a.timer != nil {
		a.timer.Reset(a.limit)
	}
}

// wait returns how long to wait after attempt n.
func (s *Store) wait(n int, err error) time.Duration {
	longest := s.policy.Wait
	for range n - 1 {
		if longest >= s.policy.MaxWait/2 {
			longest = s.policy.MaxWait
			break
		}
		longest *= 2
	}
	longest = min(longest, s.policy.MaxWait)
	if longest <= 1 {
		return max(blobstore.RetryAfter(err), 0)
	}
	spread := rand.N(longest / 2)
	if asked := blobstore.RetryAfter(err); asked > longest-spread {
		return asked + spread // later than asked, so that not all come at once
	}
	return longest - spread
}

// giveUp returns why a call that failed is not tried again; empty when it is.
func (s *Store) giveUp(a *attempt, wait time.Duration, until time.Time) string {
	switch {
	case a.final != "":
		return a.final
	case a.n >= s.policy.Attempts:
		return "that is the limit of one call"
	case !until.IsZero() && !time.Now().Add(wait).Before(until):
		return fmt.Sprintf("the time of one call, %v, is over before the next attempt", s.policy.Timeout)
	case !s.budget.take():
		return "too many calls have failed, and the budget for asking again is spent"
	}
	return ""
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
