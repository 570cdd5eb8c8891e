package kv

import (
	"math"
	"time"
)

// absence is how long a peer could not be dialled.
type absence struct {
	wasThere bool      // there was a stream before
	since    time.Time // when the first dial began since then; zero before it
}

// began notes that a dial begins.
func (a *absence) began() {
	if a.since.IsZero() {
		a.since = time.Now()
	}
}

// left returns how much of a patience is left.
func (a *absence) left(patience time.Duration) time.Duration {
	switch {
	case patience < 0 || a.since.IsZero():
		return math.MaxInt64
	case !a.wasThere:
		return 0 // a wrong address or a server that was not started: no wait mends it
	}
	return patience - time.Since(a.since)
}
