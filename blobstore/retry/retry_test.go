package retry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
)

// below returns a store that fails as planned, with a blob in it.
func below(t *testing.T) (*faultstore.Store, blobref.Ref) {
	t.Helper()
	s := faultstore.New(memory.New(blobstore.Verified))
	ref, err := s.PutBytes(t.Context(), []byte("bytes"))
	if err != nil {
		t.Fatal(err)
	}
	return s, ref
}

func wantAsked(t *testing.T, s *faultstore.Store, n int) {
	t.Helper()
	if calls := s.Calls(); len(calls) != n {
		t.Errorf("the store below was asked %d times, want %d: %v", len(calls), n, calls)
	}
}

// operations are the calls that are asked again as a whole.
var operations = []struct {
	name string
	do   func(ctx context.Context, s *retry.Store, ref blobref.Ref) error
}{
	{"Get", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		data, err := s.Get(ctx, ref)
		if err == nil && string(data) != "bytes" {
			return fmt.Errorf("got %q", data)
		}
		return err
	}},
	{"Set", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		return s.Set(ctx, ref, []byte("bytes"))
	}},
	{"SetLocal", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		return s.SetLocal(ctx, ref, []byte("bytes"))
	}},
	{"Flush", func(ctx context.Context, s *retry.Store, _ blobref.Ref) error { return s.Flush(ctx) }},
	{"PutBytes", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		got, err := s.PutBytes(ctx, []byte("bytes"))
		if err == nil && got != ref {
			return fmt.Errorf("stored under %v", got)
		}
		return err
	}},
	{"GetRange", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		part, err := s.GetRange(ctx, ref, 1, 2)
		if err == nil && string(part) != "yt" {
			return fmt.Errorf("got %q", part)
		}
		return err
	}},
	{"Open", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		b, err := s.Open(ctx, ref)
		if err == nil {
			err = b.Close()
		}
		return err
	}},
	{"Stat", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error {
		_, err := s.Stat(ctx, ref)
		return err
	}},
	{"Walk", func(ctx context.Context, s *retry.Store, _ blobref.Ref) error {
		n := 0
		for _, err := range s.Walk(ctx) {
			if err != nil {
				return err
			}
			n++
		}
		if n != 1 {
			return fmt.Errorf("%d blobs are listed", n)
		}
		return nil
	}},
	{"Put", func(ctx context.Context, s *retry.Store, _ blobref.Ref) error {
		_, _, err := s.Put(ctx, strings.NewReader("bytes"))
		return err
	}},
	{"Delete", func(ctx context.Context, s *retry.Store, ref blobref.Ref) error { return s.Delete(ctx, ref) }},
}

func TestEveryCallIsAskedAgainWhenTheStoreCouldNotAnswer(t *testing.T) {
	for _, op := range operations {
		for name, fault := range map[string]faultstore.Fault{
			"it is away":                 {Before: faultstore.ErrInjected},
			"the acknowledgement is off": {After: faultstore.ErrInjected},
			"it does not answer":         {Hold: make(chan struct{})},
		} {
			if fault.After != nil && (op.name == "Open" || op.name == "Walk" || op.name == "Delete") {
				continue // the first two fail later, and the last finds nothing the next time
			}
			t.Run(op.name+" when "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if fault.Hold != nil {
						fault.Hold = make(chan struct{}) // of this bubble
					}
					inner, ref := below(t)
					inner.Plan(faultstore.First(2, fault))
					s := retry.New(inner, retry.Policy{})
					if err := op.do(t.Context(), s, ref); err != nil {
						t.Error(err)
					}
					wantAsked(t, inner, 3)
				})
			})
		}
	}
}

func TestAnAnswerIsNotAskedForAgain(t *testing.T) {
	for _, answer := range []error{
		blobstore.ErrNotFound, blobstore.ErrCorrupt, blobstore.ErrMismatch, blobstore.ErrTooLarge, blobstore.ErrUnsupported,
		blobstore.ErrReadOnly, blobstore.ErrNotLocal, blobstore.ErrQueueFull, blobstore.ErrMode, blobref.ErrInvalid,
		context.Canceled, context.DeadlineExceeded, errors.New("no passphrase opens it"),
	} {
		for _, op := range operations {
			synctest.Test(t, func(t *testing.T) {
				inner, ref := below(t)
				inner.Plan(faultstore.Always(faultstore.Fault{Before: fmt.Errorf("below: %w", answer)}))
				s := retry.New(inner, retry.Policy{BreakAfter: 1})
				if err := op.do(t.Context(), s, ref); !errors.Is(err, answer) {
					t.Errorf("%s = %v, want %v", op.name, err, answer)
				}
				wantAsked(t, inner, 1)
				if b := s.Breaker(); b.State != retry.Closed || b.Failures != 0 {
					t.Errorf("the breaker takes %v for a failure: %+v", answer, b)
				}
			})
		}
	}
}

func TestACallGivesUpAndSaysWhy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy retry.Policy
		asked  int
		why    string
	}{
		{"never again", retry.Policy{Attempts: 1}, 1, "asked once, and no more: that is the limit of one call"},
		{"three times", retry.Policy{Attempts: 3}, 3, "asked 3 times, and no more: that is the limit of one call"},
		{"out of time", retry.Policy{Attempts: 99, Wait: time.Second, MaxWait: time.Second, Timeout: time.Second / 4}, 1, "the time of one call, 250ms, is over"},
		{"out of budget", retry.Policy{Attempts: 99, Budget: 2}, 3, "the budget for asking again is spent"},
		{"breaker", retry.Policy{Attempts: 99, BreakAfter: 4}, 4, "left alone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, ref := below(t)
				inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
				_, err := retry.New(inner, tt.policy).Get(t.Context(), ref)
				if !errors.Is(err, blobstore.ErrUnavailable) || !strings.Contains(err.Error(), tt.why) {
					t.Errorf("Get = %v; want ErrUnavailable and %q", err, tt.why)
				}
				if !strings.Contains(err.Error(), "connection reset") {
					t.Errorf("Get = %v, which does not say what happened", err)
				}
				wantAsked(t, inner, tt.asked)
			})
		})
	}
}

// asked records when the store below is asked.
func asked(times *[]time.Duration, fault func(n int) faultstore.Fault) faultstore.Plan {
	began := time.Now()
	return func(c faultstore.Call) faultstore.Fault {
		*times = append(*times, time.Since(began))
		return fault(c.N)
	}
}

func TestWaitsDoubleUpToALimitAndAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[time.Duration]bool)
		for range 20 {
			var at []time.Duration
			inner, ref := below(t)
			inner.Plan(asked(&at, func(int) faultstore.Fault { return faultstore.Fault{Before: faultstore.ErrInjected} }))
			s := retry.New(inner, retry.Policy{Attempts: 7, Wait: time.Second, MaxWait: 6 * time.Second, Timeout: -1, BreakAfter: -1})
			if _, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrUnavailable) {
				t.Fatal(err)
			}
			for i, longest := range []time.Duration{1, 2, 4, 6, 6, 6} {
				longest *= time.Second
				if wait := at[i+1] - at[i]; wait <= longest/2 || wait > longest {
					t.Errorf("wait %d was %v, want more than half of %v and not more than that", i+1, wait, longest)
				}
			}
			seen[at[1]-at[0]] = true
		}
		if len(seen) < 10 {
			t.Errorf("20 clients waited in %d different ways", len(seen))
		}
	})
}

func TestAWaitThatTheServerAsksForIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &blobstore.UnavailableError{Err: errors.New("too many requests"), After: 30 * time.Second}
		var at []time.Duration
		inner, ref := below(t)
		inner.Plan(asked(&at, func(n int) faultstore.Fault {
			if n == 0 {
				return faultstore.Fault{Before: busy}
			}
			return faultstore.Fault{}
		}))
		if _, err := retry.New(inner, retry.Policy{}).Get(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if wait := at[1] - at[0]; wait < 30*time.Second || wait > 31*time.Second {
			t.Errorf("it was asked again after %v, want 30s and a little", wait)
		}
		// A wait that leads past the time of the call is not begun.
		inner.Plan(faultstore.Always(faultstore.Fault{Before: busy}))
		began := time.Now()
		_, err := retry.New(inner, retry.Policy{Timeout: 20 * time.Second}).Get(t.Context(), ref)
		if time.Since(began) != 0 || blobstore.RetryAfter(err) != 30*time.Second {
			t.Errorf("after %v: %v (RetryAfter %v)", time.Since(began), err, blobstore.RetryAfter(err))
		}
	})
}

func TestAnAttemptAndACallHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		var at []time.Duration
		inner.Plan(asked(&at, func(int) faultstore.Fault { return faultstore.Fault{Hold: make(chan struct{})} }))
		s := retry.New(inner, retry.Policy{
			Attempts: 99, Wait: 1, MaxWait: 1, AttemptTimeout: 20 * time.Second, Timeout: 50 * time.Second, BreakAfter: -1,
		})
		began := time.Now()
		_, err := s.Get(t.Context(), ref)
		if took := time.Since(began); took < 49*time.Second || took > 50*time.Second {
			t.Errorf("the call took %v, want its 50s", took)
		}
		if len(at) != 3 || at[1] != 20*time.Second || at[2] != 40*time.Second {
			t.Errorf("it was asked at %v, want 0s, 20s and 40s", at)
		}
		// The deadline was none of the caller's.
		if !errors.Is(err, blobstore.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get = %v", err)
		}
	})
}

func TestACallEndsWithTheContextOfItsCaller(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"in an attempt": {Hold: make(chan struct{})},
		"in a wait":     {Before: &blobstore.UnavailableError{Err: errors.New("busy"), After: time.Minute}},
	} {
		for _, op := range operations {
			t.Run(op.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if fault.Hold != nil {
						fault.Hold = make(chan struct{})
					}
					inner, ref := below(t)
					inner.Plan(faultstore.Always(fault))
					s := retry.New(inner, retry.Policy{BreakAfter: 2})
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					err := op.do(ctx, s, ref)
					if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
						t.Errorf("%s = %v after %v, want DeadlineExceeded after 1s", op.name, err, took)
					}
					wantAsked(t, inner, 1)
					if b := s.Breaker(); fault.Hold != nil && b.Failures != 0 {
						t.Errorf("a caller that went away is no failure of the store: %+v", b)
					}
				})
			})
		}
	}
}

func TestAllCallsTogetherStayWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
		s := retry.New(inner, retry.Policy{Budget: 7, BreakAfter: -1})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() { _, _ = s.Get(t.Context(), ref) })
		}
		callers.Wait()
		wantAsked(t, inner, 20+7)

		// Ten calls that succeed earn one attempt back.
		inner.Plan(nil)
		for range 10 {
			if _, err := s.Get(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
		inner.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}))
		_, _ = s.Get(t.Context(), ref)
		_, _ = s.Get(t.Context(), ref)
		wantAsked(t, inner, 2+1)
	})
}

func TestADeletionThatIsAskedForAgainFindsNothingAndSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		inner.Plan(faultstore.First(1, faultstore.Fault{After: faultstore.ErrInjected}))
		s := retry.New(inner, retry.Policy{})
		if err := s.Delete(t.Context(), ref); err != nil {
			t.Errorf("Delete = %v", err)
		}
		if err := s.Delete(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Delete of a deleted blob = %v, want ErrNotFound", err)
		}
	})
}

func TestAListingBeginsAnewOnlyUntilItHasYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := below(t)
		for i := range 9 {
			if _, err := inner.PutBytes(t.Context(), []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		s := retry.New(inner, retry.Policy{AttemptTimeout: time.Second, Timeout: time.Minute})
		walk := func() (blobs, failures int) {
			seen := make(map[blobref.Ref]bool)
			for info, err := range s.Walk(t.Context()) {
				if err != nil {
					failures++
					continue
				}
				if seen[info.Ref] {
					t.Errorf("%v was yielded twice", info.Ref)
				}
				seen[info.Ref] = true
				time.Sleep(time.Hour) // the caller takes its time
			}
			return len(seen), failures
		}
		if blobs, failures := walk(); blobs != 10 || failures != 0 {
			t.Errorf("%d blobs and %d errors were yielded, want 10 and none", blobs, failures)
		}
		inner.Plan(faultstore.Always(faultstore.Fault{After: faultstore.ErrInjected}, faultstore.Walk))
		if blobs, failures := walk(); blobs != 1 || failures != 1 {
			t.Errorf("%d blobs and %d errors were yielded, want the one before the failure, and that", blobs, failures)
		}
	})
}

// told counts what an observer is told, and adds up the durations.
type told struct {
	counts map[string]int
	took   time.Duration
}

func (*told) Began(ctx context.Context, _ blobstore.Op) context.Context { return ctx }
func (*told) Counted(context.Context, string, string, string)           {}

func (o *told) Ended(_ context.Context, op blobstore.Op, took time.Duration, _ error) {
	o.counts[op.Layer+"."+op.Name]++
	o.took += took
}

func TestAnObserverIsToldOfEachCallOnceWithAllItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		o := &told{counts: make(map[string]int)}
		s := retry.New(inner, retry.Policy{Observer: o, Budget: -1, BreakAfter: -1})
		for _, op := range operations {
			inner.Plan(faultstore.First(2, faultstore.Fault{Delay: time.Second, Before: faultstore.ErrInjected}))
			before := o.took
			began := time.Now()
			if err := op.do(t.Context(), s, ref); err != nil {
				t.Fatalf("%s: %v", op.name, err)
			}
			if took := o.took - before; took != 0 && took != time.Since(began) {
				t.Errorf("%s was told to have taken %v, want %v", op.name, took, time.Since(began))
			}
		}
		want := map[string]int{"retry.get_blob": 3, "retry.set_blob": 3, "retry.set_blob_locally_only": 1, "retry.flush": 1}
		if !maps.Equal(o.counts, want) {
			t.Errorf("told %v, want %v", o.counts, want)
		}
	})
}
