// Package retry asks a store again that could not answer, and leaves one alone
// that does not answer at all.
//
//	store := retry.New(remote, retry.Policy{})
//
// It is made for the bottom of a stack, right above a remote.
//
//   - An attempt failed when its error matches blobstore.ErrUnavailable, or when
//     Policy.AttemptTimeout passed. Every other error is an answer that asking
//     again does not change, and is returned as it is: absent, corrupt, too large,
//     not supported, a wrong key, the end of the caller's context.
//   - After a failed attempt comes a wait, and another attempt. Waits double from
//     Policy.Wait to Policy.MaxWait; of each, a random part of up to a half is left
//     out, so that clients that failed together do not come back together. A wait
//     that the server asked for (blobstore.RetryAfter) is a lower bound.
//   - A call is given up after Policy.Attempts, when a wait would lead past
//     Policy.Timeout, or when all calls together have spent Policy.Budget. It then
//     returns the last error, which still matches ErrUnavailable and says why it
//     was given up.
//   - After Policy.BreakAfter failed attempts in a row, of all calls together, the
//     breaker opens: calls fail at once with [ErrBreakerOpen] for
//     Policy.BreakFor. Then one call is let through. An answer to it closes the
//     breaker, its failure opens it again. See [Store.Breaker].
//
// Whatever is asked again does no harm when it was done before: what is stored is
// stored under the same id. A Delete that finds nothing when it is made again after
// a failure has succeeded, as far as can be known. In mode blobstore.Opaque, two
// Sets of one id at the same time end with either.
//
// Get, Set, SetLocal, Flush, PutBytes, GetRange, Stat and Delete are asked again as
// a whole. So is Open, until it succeeds; reads of the open blob are not. A Walk
// begins anew as long as it has yielded nothing, and has no time limit afterwards.
// Put and SetStream go back to where their reader stood, which must be an io.Seeker
// for that, unless nothing has been read of it; else the first failure is final and
// says so. Policy.AttemptTimeout counts from the last read there, and
// Policy.Timeout limits only when the last attempt begins.
//
// To an observer it is the layer retry, and a duration is that of all attempts and
// waits. Safe for concurrent use. It has no goroutines of its own.
package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Policy says how often and how long. The zero value is a policy for a remote
// store in a data centre.
type Policy struct {
	// Attempts is how often one call may ask, the first time included; 0 means 5,
	// and 1 never again.
	Attempts int

	// Wait is the longest wait after the first failed attempt, and MaxWait the
	// longest wait; 0 means 100 ms and 10 s.
	Wait, MaxWait time.Duration

	// AttemptTimeout ends an attempt, and Timeout a whole call; 0 means 30 s and
	// 2 min, a negative one never. The context of the caller ends both. An attempt
	// must have the time for the largest blob that Get and Set carry as a whole.
	AttemptTimeout, Timeout time.Duration

	// Budget is how many attempts that are not first ones all calls together may
	// make; ten calls that succeed earn one back. 0 means 50, and a negative number
	// no bound. It keeps a store that fails under its load from getting several
	// times that load.
	Budget int

	// BreakAfter is how many attempts in a row fail before the breaker opens, and
	// BreakFor how long it stays open; 0 means 10 and 15 s. With a negative
	// BreakAfter there is none.
	BreakAfter int
	BreakFor   time.Duration

	// Observer is told what happens; nil: nobody.
	Observer blobstore.Observer
}

func (p Policy) withDefaults() Policy {
	defaults := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	defaults(&p.Wait, 100*time.Millisecond)
	defaults(&p.MaxWait, 10*time.Second)
	defaults(&p.AttemptTimeout, 30*time.Second)
	defaults(&p.Timeout, 2*time.Minute)
	defaults(&p.BreakFor, 15*time.Second)
	if p.Attempts == 0 {
		p.Attempts = 5
	}
	if p.Budget == 0 {
		p.Budget = 50
	}
	if p.BreakAfter == 0 {
		p.BreakAfter = 10
	}
	return p
}

// ErrBreakerOpen means that the store below has not answered for a while and is
// left alone. The error also matches blobstore.ErrUnavailable, and
// blobstore.RetryAfter says for how long. Nothing was asked.
var ErrBreakerOpen = errors.New("the store has not answered for a while and is left alone")

// Store asks the store below until it answers.
type Store struct {
	inner   blobstore.Store
	policy  Policy
	breaker breaker
	budget  budget
}

var (
	_ blobstore.Store           = (*Store)(nil)
	_ blobstore.Stater          = (*Store)(nil)
	_ blobstore.Walker          = (*Store)(nil)
	_ blobstore.Deleter         = (*Store)(nil)
	_ blobstore.Opener          = (*Store)(nil)
	_ blobstore.RangeReader     = (*Store)(nil)
	_ blobstore.Putter          = (*Store)(nil)
	_ blobstore.StreamSetter    = (*Store)(nil)
	_ blobstore.Healer          = (*Store)(nil)
	_ blobstore.BytesPutter     = (*Store)(nil)
	_ blobstore.ExclusiveSetter = (*Store)(nil)
	_ blobstore.Unwrapper       = (*Store)(nil)
)

// New returns a layer around inner. Its mode and abilities are those of inner.
func New(inner blobstore.Store, policy Policy) *Store {
	policy = policy.withDefaults()
	return &Store{
		inner:   inner,
		policy:  policy,
		breaker: breaker{after: policy.BreakAfter, pause: policy.BreakFor},
		budget:  budget{full: policy.Budget * attemptCosts, left: policy.Budget * attemptCosts},
	}
}

// Unwrap returns the store below.
func (s *Store) Unwrap() blobstore.Store { return s.inner }

// Breaker describes the breaker as it is now.
func (s *Store) Breaker() Breaker { return s.breaker.describe() }

func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.policy.Observer, blobstore.Op{Layer: "retry", Name: name})
}

// Get returns the blob.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) (data []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	err = s.do(ctx, call{"getting", ref}, func(a *attempt) (err error) {
		data, err = s.inner.Get(a.ctx, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// GetRange returns a part of the blob.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) (data []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	err = s.do(ctx, call{"getting a part of", ref}, func(a *attempt) (err error) {
		data, err = blobstore.GetRange(a.ctx, s.inner, ref, off, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Set stores data.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	return s.do(ctx, call{"storing", ref}, func(a *attempt) error { return s.inner.Set(a.ctx, ref, data) })
}

// SetIfAbsent stores data where nothing is. When an acknowledgement was lost it may have
// been stored by this call although it reports false.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	err = s.do(ctx, call{"storing", ref}, func(a *attempt) (err error) {
		stored, err = blobstore.SetIfAbsent(a.ctx, s.inner, ref, data)
		return err
	})
	return stored && err == nil, err
}

// SetLocal stores data on this machine.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob_locally_only")
	defer func() { span.End(err) }()
	return s.do(ctx, call{"storing on this machine", ref}, func(a *attempt) error { return s.inner.SetLocal(a.ctx, ref, data) })
}

// Flush waits for the store below.
func (s *Store) Flush(ctx context.Context) (err error) {
	ctx, span := s.begin(ctx, "flush")
	defer func() { span.End(err) }()
	return s.do(ctx, call{what: "flushing"}, func(a *attempt) error { return s.inner.Flush(a.ctx) })
}

// PutBytes stores data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (ref blobref.Ref, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	err = s.do(ctx, call{what: "storing bytes"}, func(a *attempt) (err error) {
		ref, err = blobstore.Put(a.ctx, s.inner, data)
		return err
	})
	if err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}

// Stat describes the blob.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (info blobstore.Info, err error) {
	err = s.do(ctx, call{"describing", ref}, func(a *attempt) (err error) {
		info, err = blobstore.Stat(a.ctx, s.inner, ref)
		return err
	})
	if err != nil {
		return blobstore.Info{}, err
	}
	return info, nil
}

// Delete removes the blob. When an attempt failed, that another one finds no blob
// is success: the first may have removed it.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	return s.do(ctx, call{"deleting", ref}, func(a *attempt) error {
		err := blobstore.Delete(a.ctx, s.inner, ref)
		if a.n > 1 && errors.Is(err, blobstore.ErrNotFound) {
			return nil
		}
		return err
	})
}

// Heal has the store below replace a damaged copy.
func (s *Store) Heal(ctx context.Context, ref blobref.Ref) error {
	return s.do(ctx, call{"healing", ref}, func(a *attempt) error { return blobstore.Heal(a.ctx, s.inner, ref) })
}

// call names what is asked for, for messages.
type call struct {
	what string
	ref  blobref.Ref // zero: of no one blob
}

func (c call) String() string {
	if c.ref.IsZero() {
		return c.what
	}
	return fmt.Sprintf("%s %s", c.what, c.ref)
}
