package faultstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// ErrInjected is an error to inject that may pass: it matches
// blobstore.ErrUnavailable, so that a layer that asks again does.
var ErrInjected error = &blobstore.UnavailableError{Err: fmt.Errorf("injected fault: %w", syscall.ECONNRESET)}

// Op is a method of a store.
type Op string

// The methods that faults can be injected into.
const (
	Get       Op = "Get"
	Set       Op = "Set"
	SetLocal  Op = "SetLocal"
	Flush     Op = "Flush"
	Stat      Op = "Stat"
	Walk      Op = "Walk"
	Delete    Op = "Delete"
	Open      Op = "Open"
	GetRange  Op = "GetRange"
	Put       Op = "Put"
	PutBytes  Op = "PutBytes"
	SetStream Op = "SetStream"
)

// Writes reports whether the method stores bytes.
func (o Op) Writes() bool {
	return o == Set || o == SetLocal || o == Put || o == PutBytes || o == SetStream
}

// Reads reports whether the method hands out bytes.
func (o Op) Reads() bool { return o == Get || o == Open || o == GetRange }

// Call is one call of a method of a Store.
type Call struct {
	Op  Op
	N   int         // how many calls of any method came before
	Ref blobref.Ref // zero for Flush, Walk and Put
}

// Fault is what goes wrong with one call; the zero value is nothing. The fields
// apply in the order in which they stand.
type Fault struct {
	// Hold makes the call wait until it is closed. When the context of the call
	// ends before, the call has no effect and returns the error of the context.
	Hold <-chan struct{}

	// Delay makes the call wait as Hold does, for a time.
	Delay time.Duration

	// Before fails the call before it has any effect.
	Before error

	// Cut fails a call that stores a new blob after the first half of the bytes.
	// An Opaque store below then holds that half; a Verified one has damage
	// under the ref, which is ErrCorrupt until the blob is stored again. What
	// was stored before is never cut, for stores replace atomically: for it, and
	// for a call that stores nothing, Cut is Before.
	Cut error

	// Damage changes the bytes that Get, GetRange or Open hand out. It may
	// change its argument and returns what to hand out.
	Damage func([]byte) []byte

	// After fails the call when it has had its effect: the acknowledgement is
	// lost. A Blob of Open, or a Walk, fails with it after half of what it has.
	After error
}

func (f Fault) isZero() bool {
	return f.Hold == nil && f.Delay == 0 && f.Before == nil && f.Cut == nil && f.Damage == nil && f.After == nil
}

// Plan says what goes wrong with a call. It is called concurrently.
type Plan func(Call) Fault

// Never is the plan in which nothing goes wrong. So is nil.
func Never(Call) Fault { return Fault{} }

// Always lets all calls of the given methods go wrong; of all methods where none
// is given.
func Always(f Fault, ops ...Op) Plan {
	return func(c Call) Fault {
		if of(c.Op, ops) {
			return f
		}
		return Fault{}
	}
}

// At lets call n go wrong, counted from 0 over all methods.
func At(n int, f Fault) Plan {
	return func(c Call) Fault {
		if c.N == n {
			return f
		}
		return Fault{}
	}
}

// First lets the first n calls of the given methods go wrong, and later ones well.
func First(n int, f Fault, ops ...Op) Plan {
	var mu sync.Mutex
	left := n
	return func(c Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 || !of(c.Op, ops) {
			return Fault{}
		}
		left--
		return f
	}
}

// Seeded lets the share rate (0 to 1) of all calls go wrong, each with one of the
// faults, and in the same way for every run that makes the same calls in the same
// order.
func Seeded(seed uint64, rate float64, faults ...Fault) Plan {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, uint64(len(faults))))
	return func(Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == 0 || random.Float64() >= rate {
			return Fault{}
		}
		return faults[random.IntN(len(faults))]
	}
}

// FlipBit is a Damage that changes the last bit of a blob. It leaves the empty
// blob as it is.
func FlipBit(data []byte) []byte {
	if len(data) > 0 {
		data[len(data)-1] ^= 1
	}
	return data
}

// CutOff is a Damage that leaves the first half.
func CutOff(data []byte) []byte { return data[:len(data)/2] }

func of(op Op, ops []Op) bool {
	for _, o := range ops {
		if o == op {
			return true
		}
	}
	return len(ops) == 0
}
