package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
)

// OpaqueBelow says that the store below the layer is opened in mode
// blobstore.Opaque, whatever the mode of the layer: it encrypts, say. It follows
// from Opaque.
func OpaqueBelow() Option {
	return func(s *suite) { s.opaqueBelow = true }
}

// TrustsBelow says that the layer does not verify what a Verified store below it
// hands out, and relies on that store to report damage as blobstore.ErrCorrupt.
// RunFaults then does so, where it would hand out damaged bytes.
func TrustsBelow() Option {
	return func(s *suite) { s.trustsBelow = true }
}

// RealTime keeps RunFaults from running its tests in bubbles of testing/synctest,
// in which time passes at once when all goroutines wait: for a layer that waits for
// the network, which does not stop the clock of a bubble.
func RealTime() Option {
	return func(s *suite) { s.realTime = true }
}

// RunFaults tests a layer, or a stack of layers, over a store that fails: with
// errors before an effect and after it (a lost acknowledgement), waits, cut writes
// and damaged bytes. Whatever happens below,
//
//   - a Verified layer never hands out a wrong byte, and an Opaque one none that
//     was not stored under the id,
//   - a blob whose Set succeeded is never reported absent, and comes back as soon
//     as the store below works again,
//   - what Flush acknowledged is in the store below: a second layer finds it there,
//   - what Delete acknowledged stays deleted,
//   - a call ends when its context does.
//
// layer returns a new layer around inner each time it is called, and frees it in a
// t.Cleanup of the t that it is given; that t is the one of a bubble unless RealTime
// says otherwise. Two layers around one inner must read each other's blobs.
func RunFaults(t *testing.T, layer func(t *testing.T, inner blobstore.Store) blobstore.Store, opts ...Option) {
	t.Helper()
	s := &suite{}
	for _, opt := range opts {
		opt(s)
	}
	f := &faultSuite{suite: s, layer: layer}
	tests := []struct {
		name string
		run  func(*testing.T)
	}{
		{"without a fault all is well", f.testNoFault},
		{"any one call below may fail", f.testEachCall},
		{"any one call below may fail that reads what another layer stored", f.testEachRead},
		{"calls below fail at random", f.testRandom},
		{"calls below fail at random under many callers", f.testManyCallers},
		{"nothing works for a while", f.testOutage},
		{"a call ends when its context ends", f.testHeldUp},
	}
	for _, tt := range tests {
		t.Run(tt.name, tt.run)
	}
}

type faultSuite struct {
	*suite
	layer func(*testing.T, blobstore.Store) blobstore.Store
}

// kinds are the faults that a call below may have.
func (f *faultSuite) kinds() map[string]faultstore.Fault {
	all := map[string]faultstore.Fault{
		"an error before the effect": {Before: faultstore.ErrInjected},
		"a lost acknowledgement":     {After: faultstore.ErrInjected},
		"a cut write":                {Cut: faultstore.ErrInjected},
		"a delay":                    {Delay: 3 * time.Second},
		"a deadline below":           {Before: fmt.Errorf("injected fault: %w", context.DeadlineExceeded)},
	}
	if f.realTime {
		all["a delay"] = faultstore.Fault{Delay: time.Millisecond}
	}
	switch {
	case f.mode == blobstore.Opaque:
		// Nobody could tell.
	case f.trustsBelow && !f.opaqueBelow:
		all["damage that is reported"] = faultstore.Fault{Before: fmt.Errorf("injected fault: %w", blobstore.ErrCorrupt)}
	default:
		all["a flipped bit"] = faultstore.Fault{Damage: faultstore.FlipBit}
		all["half of the bytes"] = faultstore.Fault{Damage: faultstore.CutOff}
	}
	return all
}

func (f *faultSuite) faults() []faultstore.Fault {
	var all []faultstore.Fault
	for _, name := range sortedKeys(f.kinds()) {
		all = append(all, f.kinds()[name])
	}
	return all
}

// alone runs do in a bubble of its own, so that its layers are gone at its end.
func (f *faultSuite) alone(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	switch {
	case t.Failed(): // one report is enough
	case f.realTime:
		t.Run("", do)
	default:
		synctest.Test(t, do)
	}
}

func (f *faultSuite) testNoFault(t *testing.T) { f.alone(t, f.noFault) }

func (f *faultSuite) noFault(t *testing.T) {
	w := f.world(t, "no fault")
	data := random(1000, 39)
	for _, c := range faultCalls {
		err := c.do(w, t.Context(), data)
		if err != nil && !errors.Is(err, blobstore.ErrUnsupported) && !errors.Is(err, blobstore.ErrNotLocal) && !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	w.script()
	w.recovers()
}

// stride is how many calls below are left out between two that fail: none with
// AGENTRUN_TEST_ROUNDS, and else as many as let a suite take seconds.
func stride() int {
	switch {
	case os.Getenv("AGENTRUN_TEST_ROUNDS") != "":
		return 1
	case testing.Short():
		return 20
	}
	return 5
}

func (f *faultSuite) testEachCall(t *testing.T) {
	for i, name := range sortedKeys(f.kinds()) {
		fault, step := f.kinds()[name], stride()
		made := step // at least
		for n := i % step; n < made && !t.Failed(); n += step {
			f.alone(t, func(t *testing.T) {
				w := f.world(t, fmt.Sprintf("%s at call %d below", name, n))
				w.below.Plan(faultstore.At(n, fault))
				w.script()
				made = max(made, len(w.below.Calls()))
				w.recovers()
			})
		}
	}
}

// testEachRead reads blobs of which the layer has no copy of its own yet.
func (f *faultSuite) testEachRead(t *testing.T) {
	for _, name := range sortedKeys(f.kinds()) {
		made := 1 // at least
		for n := 0; n < made; n++ {
			f.alone(t, func(t *testing.T) {
				w := f.world(t, fmt.Sprintf("%s at call %d below", name, n))
				w.below.Plan(nil)
				w.elsewhere([]byte("small"), random(70_000, 47), []byte{})
				w.below.Plan(faultstore.At(n, f.kinds()[name]))
				for i, read := range []string{"Get", "Open", "GetRange", "Stat", "Get", "GetRange", "Open"} {
					_ = w.call(read, [][]byte{[]byte("small"), random(70_000, 47), {}}[i%3])
				}
				made = max(made, len(w.below.Calls()))
				w.recovers()
			})
		}
	}
}

func (f *faultSuite) testRandom(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		f.alone(t, func(t *testing.T) { f.random(t, seed) })
	}
}

func (f *faultSuite) random(t *testing.T, seed uint64) {
	rate := []float64{0.05, 0.3, 0.8}[seed%3]
	w := f.world(t, fmt.Sprintf("seed %d, %v of all calls below fail", seed, rate))
	w.below.Plan(faultstore.Seeded(seed, rate, f.faults()...))
	choice := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		data := random([]int{0, 1, 1000, 70_000}[choice.IntN(4)], byte(41+choice.IntN(2)))
		_ = faultCalls[choice.IntN(len(faultCalls))].do(w, t.Context(), data)
	}
	w.recovers()
}

// testManyCallers gives each caller blobs of its own, and all of them the faults.
func (f *faultSuite) testManyCallers(t *testing.T) { f.alone(t, f.manyCallers) }

func (f *faultSuite) manyCallers(t *testing.T) {
	const callers = 8
	w := f.world(t, "many callers")
	w.below.Plan(faultstore.Seeded(50, 0.3, f.faults()...))
	worlds := make([]*world, callers)
	together(t, callers, func(i int) error {
		own := *w
		own.known = make(map[blobref.Ref]*knowledge)
		worlds[i] = &own
		for round := range 6 {
			data := random(1000*i+round, 51)
			for _, c := range faultCalls[:8] {
				if c.name != "Flush" { // what it vouches for is looked at below
					_ = c.do(&own, w.t.Context(), data)
				}
			}
		}
		return nil
	})
	for _, own := range worlds {
		for ref, k := range own.known {
			w.known[ref] = k
		}
	}
	w.recovers()
}

func (f *faultSuite) testOutage(t *testing.T) {
	for _, name := range sortedKeys(f.kinds()) {
		f.alone(t, func(t *testing.T) { f.outage(t, name) })
	}
}

func (f *faultSuite) outage(t *testing.T, name string) {
	w := f.world(t, name+" at every call below")
	for _, c := range faultCalls[:3] {
		_ = c.do(w, t.Context(), random(500, 43)) // before it begins
	}
	w.below.Plan(faultstore.Always(f.kinds()[name]))
	patience := 2 * time.Minute // of the bubble
	if f.realTime {
		patience = 50 * time.Millisecond
	}
	for _, c := range faultCalls {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_ = c.do(w, ctx, random(500, 43))
		_ = c.do(w, ctx, random(600, 44))
		cancel()
	}
	w.recovers()
}

func (f *faultSuite) testHeldUp(t *testing.T) {
	for _, c := range faultCalls {
		f.alone(t, func(t *testing.T) { f.heldUp(t, c) })
	}
}

func (f *faultSuite) heldUp(t *testing.T, c call) {
	w := f.world(t, c.name)
	data := random(5000, 45)
	w.elsewhere(data)
	held, never := make(chan struct{}, 1), make(chan struct{})
	w.below.Plan(func(faultstore.Call) faultstore.Fault {
		select {
		case held <- struct{}{}:
		default:
		}
		return faultstore.Fault{Hold: never}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := errors.New("the test failed")
		defer func() { done <- err }()
		if c.name == "Flush" {
			_ = w.store.Set(ctx, w.id(random(700, 46)), random(700, 46)) // something to wait for
		}
		err = c.do(w, ctx, data)
	}()
	var err error
	patience := time.Minute // of the machine, or of the bubble
	select {
	case <-held:
		cancel()
		select {
		case err = <-done:
		case <-time.After(patience):
			close(never) // so that the call ends with the test
			t.Fatalf("%s goes on although its context ended", c.name)
		}
	case err = <-done:
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, blobstore.ErrUnsupported) && !errors.Is(err, blobstore.ErrNotLocal) {
		t.Errorf("%s whose context ended = %v, want an error that matches context.Canceled", c.name, err)
	}
	cancel()
	close(never)
	w.recovers()
}
