package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

func (s *suite) testSetIfAbsent(t *testing.T) {
	store := s.open()
	setter := need[blobstore.ExclusiveSetter](t, store)
	ctx, data := t.Context(), random(1000, 70)
	ref := s.id(data)
	switch stored, err := setter.SetIfAbsent(ctx, ref, data); {
	case errors.Is(err, blobstore.ErrUnsupported):
		t.Skip(err)
	case err != nil || !stored:
		t.Fatalf("SetIfAbsent of an absent blob = %v, %v", stored, err)
	}
	wantBlob(t, store, ref, data)
	other := data
	if s.mode == blobstore.Opaque {
		other = random(900, 71)
	}
	if stored, err := setter.SetIfAbsent(ctx, ref, other); err != nil || stored {
		t.Errorf("SetIfAbsent of a blob that is there = %v, %v", stored, err)
	}
	wantBlob(t, store, ref, data)

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	absent := random(1000, 72)
	if stored, err := setter.SetIfAbsent(cancelled, s.id(absent), absent); stored || !errors.Is(err, context.Canceled) {
		t.Errorf("SetIfAbsent with a cancelled context = %v, %v; want context.Canceled", stored, err)
	}
	if stored, err := setter.SetIfAbsent(ctx, blobref.Ref{}, absent); stored || err == nil {
		t.Errorf("SetIfAbsent under the zero reference = %v, %v", stored, err)
	}
	if s.mode == blobstore.Verified {
		if stored, err := setter.SetIfAbsent(ctx, s.id(absent), data); stored || !errors.Is(err, blobstore.ErrMismatch) {
			t.Errorf("SetIfAbsent of other bytes = %v, %v; want ErrMismatch", stored, err)
		}
	}
	wantAbsent(t, store, s.id(absent))

	// Of many at once one is told that it was the first, and its bytes are there.
	many := random(1000, 73)
	id := s.id(many)
	var won atomic.Int32
	var winner atomic.Int32
	var all sync.WaitGroup
	of := func(i int) []byte {
		if s.mode == blobstore.Opaque {
			return random(1000+i, 74)
		}
		return many
	}
	for i := range 16 {
		all.Go(func() {
			stored, err := setter.SetIfAbsent(ctx, id, of(i))
			if err != nil {
				t.Error(err)
			}
			if stored {
				won.Add(1)
				winner.Store(int32(i))
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d of 16 were the first", won.Load())
	}
	wantBlob(t, store, id, of(int(winner.Load())))
}
