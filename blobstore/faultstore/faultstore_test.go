package faultstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

var (
	data = []byte("bytes of a blob")
	ref  = blobref.Of(data)
)

func newStore(t *testing.T, mode blobstore.Mode) (*memory.Store, *faultstore.Store) {
	t.Helper()
	inner := memory.New(mode)
	return inner, faultstore.New(inner)
}

func TestAnErrorBeforeTheEffectHasNone(t *testing.T) {
	inner, s := newStore(t, blobstore.Verified)
	s.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}, faultstore.Set))
	if err := s.Set(t.Context(), ref, data); !errors.Is(err, faultstore.ErrInjected) {
		t.Fatalf("Set = %v", err)
	}
	if _, err := inner.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("the store below has it: %v", err)
	}
	if _, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("a method that was not named = %v", err)
	}
}

func TestALostAcknowledgementHasItsEffect(t *testing.T) {
	inner, s := newStore(t, blobstore.Verified)
	s.Plan(faultstore.First(1, faultstore.Fault{After: faultstore.ErrInjected}))
	if err := s.Set(t.Context(), ref, data); !errors.Is(err, faultstore.ErrInjected) {
		t.Fatalf("Set = %v", err)
	}
	if _, err := inner.Get(t.Context(), ref); err != nil {
		t.Errorf("the store below has it not: %v", err)
	}
	if err := s.Delete(t.Context(), ref); err != nil {
		t.Errorf("the second call = %v", err)
	}
	if s.Fired() != 1 {
		t.Errorf("%d faults, want 1", s.Fired())
	}
}

func TestACutWriteIsDamageUntilItIsRepeated(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		t.Run(mode.String(), func(t *testing.T) {
			_, s := newStore(t, mode)
			s.Plan(faultstore.First(1, faultstore.Fault{Cut: faultstore.ErrInjected}))
			if err := s.Set(t.Context(), ref, data); !errors.Is(err, faultstore.ErrInjected) {
				t.Fatalf("Set = %v", err)
			}
			got, err := s.Get(t.Context(), ref)
			if mode == blobstore.Verified && !errors.Is(err, blobstore.ErrCorrupt) {
				t.Errorf("Get = %d bytes, %v; want ErrCorrupt", len(got), err)
			}
			if mode == blobstore.Opaque && (err != nil || !bytes.Equal(got, data[:len(data)/2])) {
				t.Errorf("Get = %d bytes, %v; want half of them", len(got), err)
			}
			if info, err := s.Stat(t.Context(), ref); err != nil || info.Size != int64(len(data)/2) {
				t.Errorf("Stat = %+v, %v", info, err)
			}
			if err := s.Set(t.Context(), ref, data); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
				t.Errorf("Get = %d bytes, %v", len(got), err)
			}
			s.Plan(faultstore.Always(faultstore.Fault{Cut: faultstore.ErrInjected}))
			if err := s.Set(t.Context(), ref, data); !errors.Is(err, faultstore.ErrInjected) {
				t.Fatalf("Set = %v", err)
			}
			s.Plan(nil)
			if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
				t.Errorf("what was stored before was cut: Get = %d bytes, %v", len(got), err)
			}
		})
	}
}

func TestDamageIsInWhatIsHandedOutAlone(t *testing.T) {
	inner, s := newStore(t, blobstore.Verified)
	if err := s.Set(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	s.Plan(faultstore.Always(faultstore.Fault{Damage: faultstore.FlipBit}))
	got, err := s.Get(t.Context(), ref)
	if err != nil || bytes.Equal(got, data) || len(got) != len(data) {
		t.Errorf("Get = %q, %v", got, err)
	}
	b, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if streamed, err := io.ReadAll(b); err != nil || !bytes.Equal(streamed, got) {
		t.Errorf("Open = %q, %v", streamed, err)
	}
	if got, err := inner.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the store below holds %q, %v", got, err)
	}
}

func TestABlobMayBreakOffWhileItIsRead(t *testing.T) {
	_, s := newStore(t, blobstore.Verified)
	if err := s.Set(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	s.Plan(faultstore.Always(faultstore.Fault{After: faultstore.ErrInjected}, faultstore.Open))
	b, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); !errors.Is(err, faultstore.ErrInjected) || !bytes.Equal(got, data[:len(data)/2]) {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestACallThatIsHeldUpGoesOnOrEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := newStore(t, blobstore.Verified)
		hold := make(chan struct{})
		s.Plan(faultstore.Always(faultstore.Fault{Hold: hold, Delay: time.Minute}))
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, held := make(chan error), make(chan error)
		go func() { cancelled <- s.Set(ctx, ref, data) }()
		go func() { held <- s.Set(t.Context(), ref, data) }()
		synctest.Wait()
		cancel()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled call = %v", err)
		}
		close(hold)
		began := time.Now()
		if err := <-held; err != nil || time.Since(began) != time.Minute {
			t.Errorf("the other = %v after %v", err, time.Since(began))
		}
	})
}

func TestASeededPlanIsTheSameEveryTime(t *testing.T) {
	plays := make([][]bool, 2)
	for i := range plays {
		plan := faultstore.Seeded(7, 0.5, faultstore.Fault{Before: faultstore.ErrInjected})
		for n := range 100 {
			plays[i] = append(plays[i], plan(faultstore.Call{Op: faultstore.Get, N: n}).Before != nil)
		}
	}
	if !slices.Equal(plays[0], plays[1]) || !slices.Contains(plays[0], true) || !slices.Contains(plays[0], false) {
		t.Errorf("two plays: %v", plays)
	}
}
