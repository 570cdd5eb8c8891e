package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/retry"
)

// once asks once a call and opens the breaker after three failures, for 10 s.
var once = retry.Policy{Attempts: 1, BreakAfter: 3, BreakFor: 10 * time.Second}

func wantState(t *testing.T, s *retry.Store, state retry.State, failures int) {
	t.Helper()
	if b := s.Breaker(); b.State != state || b.Failures != failures {
		t.Errorf("the breaker is %v after %d failures, want %v after %d", b.State, b.Failures, state, failures)
	}
}

func TestABreakerOpensLetsOneThroughAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		away := faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected})
		s := retry.New(inner, once)
		get := func() error {
			_, err := s.Get(t.Context(), ref)
			return err
		}

		// An answer in between begins the count anew.
		inner.Plan(away)
		_, _ = get(), get()
		wantState(t, s, retry.Closed, 2)
		inner.Plan(nil)
		_ = get()
		wantState(t, s, retry.Closed, 0)

		inner.Plan(away)
		for range 3 {
			if err := get(); errors.Is(err, retry.ErrBreakerOpen) {
				t.Fatal(err)
			}
		}
		wantState(t, s, retry.Open, 3)
		if until := s.Breaker().Until; time.Until(until) != 10*time.Second {
			t.Errorf("it is open for %v, want 10s", time.Until(until))
		}
		inner.Plan(away)
		time.Sleep(4 * time.Second)
		err := get()
		if !errors.Is(err, retry.ErrBreakerOpen) || !errors.Is(err, blobstore.ErrUnavailable) || blobstore.RetryAfter(err) != 6*time.Second {
			t.Errorf("Get = %v (RetryAfter %v), want ErrBreakerOpen for 6s", err, blobstore.RetryAfter(err))
		}
		wantAsked(t, inner, 0)

		// The one that is let through fails: open again, for as long.
		time.Sleep(6 * time.Second)
		if err := get(); errors.Is(err, retry.ErrBreakerOpen) {
			t.Errorf("nobody is let through: %v", err)
		}
		wantAsked(t, inner, 1)
		wantState(t, s, retry.Open, 4)
		time.Sleep(10*time.Second - 1)
		if err := get(); !errors.Is(err, retry.ErrBreakerOpen) {
			t.Errorf("Get = %v, want ErrBreakerOpen", err)
		}

		time.Sleep(time.Nanosecond)
		inner.Plan(nil)
		if err := get(); err != nil {
			t.Error(err)
		}
		wantState(t, s, retry.Closed, 0)
	})
}

func TestAHalfOpenBreakerLetsOneCallThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		s := retry.New(inner, once)
		inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
		for range 3 {
			_, _ = s.Get(t.Context(), ref)
		}
		time.Sleep(10 * time.Second)

		gate := make(chan struct{})
		inner.Plan(faultstore.Always(faultstore.Fault{Hold: gate}))
		// The first one goes away without an answer; then the next one may ask.
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			probe := make(chan error)
			go func() {
				_, err := s.Get(ctx, ref)
				probe <- err
			}()
			synctest.Wait()
			wantState(t, s, retry.HalfOpen, 3)
			if _, err := s.Get(t.Context(), ref); !errors.Is(err, retry.ErrBreakerOpen) {
				t.Errorf("a second Get = %v, want ErrBreakerOpen", err)
			}
			cancel()
			if err := <-probe; !errors.Is(err, context.Canceled) {
				t.Errorf("the one that was let through = %v, want context.Canceled", err)
			}
		}
		wantAsked(t, inner, 2)
		close(gate)
		if _, err := s.Get(t.Context(), ref); err != nil {
			t.Error(err)
		}
		wantState(t, s, retry.Closed, 0)
	})
}

func TestAnAnswerFromBeforeDoesNotCloseABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		s := retry.New(inner, once)
		gate := make(chan struct{})
		inner.Plan(faultstore.Always(faultstore.Fault{Hold: gate}))
		early := make(chan error)
		go func() {
			_, err := s.Get(t.Context(), ref)
			early <- err
		}()
		synctest.Wait()
		inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
		for range 3 {
			_, _ = s.Get(t.Context(), ref)
		}
		close(gate)
		if err := <-early; err != nil {
			t.Error(err)
		}
		wantState(t, s, retry.Open, 3)
	})
}

func TestAListingHoldsNobodyUpBehindAHalfOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		s := retry.New(inner, once)
		inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
		for range 3 {
			_, _ = s.Get(t.Context(), ref)
		}
		inner.Plan(nil)
		time.Sleep(10 * time.Second)
		for info, err := range s.Walk(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), info.Ref); err != nil {
				t.Error(err)
			}
			inner.Plan(faultstore.First(1, faultstore.Fault{Before: faultstore.ErrInjected}))
			_, _ = s.Get(t.Context(), info.Ref)
		}
		wantState(t, s, retry.Closed, 1) // the listing was answered before that
	})
}

func TestAPanicBelowLeavesTheBreakerInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		s := retry.New(inner, once)
		inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
		for range 3 {
			_, _ = s.Get(t.Context(), ref)
		}
		time.Sleep(10 * time.Second)
		inner.Plan(func(faultstore.Call) faultstore.Fault { panic("a bug below") })
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is swallowed")
				}
			}()
			_, _ = s.Get(t.Context(), ref)
		}()
		inner.Plan(nil)
		if _, err := s.Get(t.Context(), ref); err != nil {
			t.Errorf("Get after it: %v", err)
		}
	})
}
