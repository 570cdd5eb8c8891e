// Package faultstore is a blob store that fails when told to, for the tests of
// layers: what a network does to the store below them, it does on request.
//
//	below := faultstore.New(memory.New(blobstore.Verified))
//	layer := mylayer.New(below)
//	below.Plan(faultstore.At(3, faultstore.Fault{After: faultstore.ErrInjected}))
//
// A [Plan] is asked before each call and answers with a [Fault]: an error before
// or after the effect, a wait, a cut write, damaged bytes. Waits are by channel or
// by timer, so that they work in a bubble of testing/synctest. A Store has every
// ability, and answers with the store below where that has it; it is safe for
// concurrent use. storetest.RunFaults runs a whole suite with it.
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Store is a store around another that fails as planned.
type Store struct {
	inner blobstore.Store

	mu    sync.Mutex // guards all below
	plan  Plan
	calls []Call
	fired int
	torn  map[blobref.Ref]int64 // what a cut write left in a Verified store: ref to size
}

var (
	_ blobstore.Store        = (*Store)(nil)
	_ blobstore.Stater       = (*Store)(nil)
	_ blobstore.Walker       = (*Store)(nil)
	_ blobstore.Deleter      = (*Store)(nil)
	_ blobstore.Opener       = (*Store)(nil)
	_ blobstore.RangeReader  = (*Store)(nil)
	_ blobstore.Putter       = (*Store)(nil)
	_ blobstore.BytesPutter  = (*Store)(nil)
	_ blobstore.StreamSetter = (*Store)(nil)
	_ blobstore.Moder        = (*Store)(nil)
)

// New returns a store around inner that does not fail yet.
func New(inner blobstore.Store) *Store {
	return &Store{inner: inner, torn: make(map[blobref.Ref]int64)}
}

// Plan sets what goes wrong from now on, and counts calls and faults from 0 again.
// nil is Never.
func (s *Store) Plan(plan Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan, s.calls, s.fired = plan, nil, 0
}

// Calls returns the calls since Plan, in order.
func (s *Store) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// Fired returns how many calls since Plan got a fault.
func (s *Store) Fired() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

// Mode returns the mode of the store below.
func (s *Store) Mode() blobstore.Mode { return blobstore.ModeOf(s.inner) }

// begin counts a call, asks the plan and does what comes before the effect. The
// error is to be returned; fault then says whether a write is to be cut.
func (s *Store) begin(ctx context.Context, op Op, ref blobref.Ref) (Fault, error) {
	s.mu.Lock()
	call, plan := Call{Op: op, N: len(s.calls), Ref: ref}, s.plan
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	if plan == nil {
		return Fault{}, nil
	}
	fault := plan(call) // without the lock: it may call back
	if fault.isZero() {
		return fault, nil
	}
	s.mu.Lock()
	s.fired++
	s.mu.Unlock()
	if err := fault.wait(ctx); err != nil {
		return fault, fmt.Errorf("%s of %s was held up: %w", op, ref, err)
	}
	return fault, fault.Before
}

func (f Fault) wait(ctx context.Context) error {
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tornSize returns what a cut write left under ref in a Verified store.
func (s *Store) tornSize(ref blobref.Ref) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.torn[ref]
	return size, ok
}

func (s *Store) corrupt(ref blobref.Ref) error {
	if size, ok := s.tornSize(ref); ok {
		return fmt.Errorf("reading %s: %w: a write was cut after %d bytes", ref, blobstore.ErrCorrupt, size)
	}
	return nil
}

func (s *Store) heal(ref blobref.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.torn, ref)
}

// cut leaves the first half of a new blob.
func (s *Store) cut(ctx context.Context, ref blobref.Ref, data []byte, cause error) error {
	if len(data) == 0 {
		return cause // nothing can be cut off
	}
	if _, err := s.inner.Get(ctx, ref); err == nil || !errors.Is(err, blobstore.ErrNotFound) {
		return cause
	}
	half := data[:len(data)/2]
	if s.Mode() == blobstore.Opaque {
		return errors.Join(cause, s.inner.Set(ctx, ref, half))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.torn[ref] = int64(len(half))
	return cause
}

// Get returns the blob, damaged if planned so.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	fault, err := s.begin(ctx, Get, ref)
	if err = errors.Join(err, fault.Cut); err != nil {
		return nil, err
	}
	if err := s.corrupt(ref); err != nil {
		return nil, err
	}
	data, err := s.inner.Get(ctx, ref)
	return fault.read(data, err)
}

// GetRange returns a part of the blob, damaged if planned so.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	fault, err := s.begin(ctx, GetRange, ref)
	if err = errors.Join(err, fault.Cut); err != nil {
		return nil, err
	}
	if err := s.corrupt(ref); err != nil {
		return nil, err
	}
	data, err := blobstore.GetRange(ctx, s.inner, ref, off, n)
	return fault.read(data, err)
}

func (f Fault) read(data []byte, err error) ([]byte, error) {
	if err == nil {
		err = f.After
	}
	if err != nil {
		return nil, err
	}
	if f.Damage != nil {
		data = f.Damage(data)
	}
	return data, nil
}

// Set stores the blob.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.set(ctx, Set, ref, data, s.inner.Set)
}

// SetLocal stores the blob with SetLocal of the store below.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.set(ctx, SetLocal, ref, data, s.inner.SetLocal)
}

func (s *Store) set(ctx context.Context, op Op, ref blobref.Ref, data []byte, set func(context.Context, blobref.Ref, []byte) error) error {
	fault, err := s.begin(ctx, op, ref)
	switch {
	case err != nil:
		return err
	case fault.Cut != nil:
		return s.cut(ctx, ref, data, fault.Cut)
	}
	if err := set(ctx, ref, data); err != nil {
		return err
	}
	s.heal(ref)
	return fault.After
}

// PutBytes stores the blob under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	fault, err := s.begin(ctx, PutBytes, blobref.Of(data))
	switch {
	case err != nil:
		return blobref.Ref{}, err
	case fault.Cut != nil:
		return blobref.Ref{}, s.cut(ctx, blobref.Of(data), data, fault.Cut)
	}
	ref, err := blobstore.Put(ctx, s.inner, data)
	if err != nil {
		return blobref.Ref{}, err
	}
	s.heal(ref)
	if fault.After != nil {
		return blobref.Ref{}, fault.After
	}
	return ref, nil
}

// Put stores what r yields.
func (s *Store) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	fault, err := s.begin(ctx, Put, blobref.Ref{})
	switch {
	case err != nil:
		return blobref.Ref{}, 0, err
	case fault.Cut != nil:
		data, err := io.ReadAll(r)
		if err == nil {
			err = s.cut(ctx, blobref.Of(data), data, fault.Cut)
		}
		return blobref.Ref{}, 0, err
	}
	ref, n, err := blobstore.PutStream(ctx, s.inner, r)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	s.heal(ref)
	if fault.After != nil {
		return blobref.Ref{}, 0, fault.After
	}
	return ref, n, nil
}

// SetStream stores the size bytes that r yields under ref.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	fault, err := s.begin(ctx, SetStream, ref)
	switch {
	case err != nil:
		return err
	case fault.Cut != nil:
		data, err := io.ReadAll(r)
		if err == nil {
			err = s.cut(ctx, ref, data, fault.Cut)
		}
		return err
	}
	if err := blobstore.SetStream(ctx, s.inner, ref, r, size); err != nil {
		return err
	}
	s.heal(ref)
	return fault.After
}

// Flush flushes the store below.
func (s *Store) Flush(ctx context.Context) error {
	fault, err := s.begin(ctx, Flush, blobref.Ref{})
	if err = errors.Join(err, fault.Cut); err != nil {
		return err
	}
	if err := s.inner.Flush(ctx); err != nil {
		return err
	}
	return fault.After
}

// Stat describes the blob.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	fault, err := s.begin(ctx, Stat, ref)
	if err = errors.Join(err, fault.Cut); err != nil {
		return blobstore.Info{}, err
	}
	if size, ok := s.tornSize(ref); ok {
		return blobstore.Info{Ref: ref, Size: size}, fault.After
	}
	info, err := blobstore.Stat(ctx, s.inner, ref)
	if err == nil && fault.After != nil {
		return blobstore.Info{}, fault.After
	}
	return info, err
}

// Delete removes the blob.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	fault, err := s.begin(ctx, Delete, ref)
	if err = errors.Join(err, fault.Cut); err != nil {
		return err
	}
	if _, torn := s.tornSize(ref); torn {
		s.heal(ref)
		return fault.After
	}
	if err := blobstore.Delete(ctx, s.inner, ref); err != nil {
		return err
	}
	return fault.After
}

// Walk lists the blobs, those that a cut write left in a Verified store included.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		fault, err := s.begin(ctx, Walk, blobref.Ref{})
		if err = errors.Join(err, fault.Cut); err != nil {
			yield(blobstore.Info{}, err)
			return
		}
		n := 0
		for info, err := range blobstore.Walk(ctx, s.inner) {
			if n++; n > 1 && fault.After != nil {
				yield(blobstore.Info{}, fault.After)
				return
			}
			if !yield(info, err) {
				return
			}
		}
		s.mu.Lock()
		torn := make([]blobstore.Info, 0, len(s.torn))
		for ref, size := range s.torn {
			torn = append(torn, blobstore.Info{Ref: ref, Size: size})
		}
		s.mu.Unlock()
		for _, info := range torn {
			if !yield(info, nil) {
				return
			}
		}
		if fault.After != nil {
			yield(blobstore.Info{}, fault.After)
		}
	}
}
