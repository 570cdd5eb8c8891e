package kv

import (
	"runtime"
	"sync"

	"github.com/agentrun/agentrun/kv/internal/envelope"
)

// outbox gathers messages for the goroutine that sends them, which takes all of them
// at once: one flush for whatever is queued.
type outbox struct {
	limit int // bytes that may wait; one message may go over it; 0 is no limit

	mu      sync.Mutex
	changed sync.Cond // something was added, taken or ended
	buf     []byte    // guarded by mu: envelopes
	spare   []byte    // guarded by mu: the buffer that was sent before
	waiting bool      // guarded by mu: someone waits for room
	idle    bool      // guarded by mu: the sender waits
	ended   bool      // guarded by mu: nothing is added any more
	failed  bool      // guarded by mu: nothing is sent any more
}

// smallBatch is, in bytes, what is not worth a flush while others may add to it.
const smallBatch = 16 << 10

// keptBuffer is the largest buffer that is kept for the next batch.
const keptBuffer = 1 << 20

func newOutbox(limit int) *outbox {
	o := &outbox{limit: limit}
	o.changed.L = &o.mu
	return o
}

// begin waits until there is room for a message of n bytes and returns the buffer to
// append it to, behind its envelope. It returns false when the outbox is ended. After
// true the outbox is locked until commit.
func (o *outbox) begin(n int) ([]byte, bool) {
	o.mu.Lock()
	for !o.ended && o.limit > 0 && len(o.buf) > 0 && len(o.buf)+n > o.limit {
		o.waiting = true
		o.changed.Wait()
	}
	if o.ended {
		o.mu.Unlock()
		return nil, false
	}
	return envelope.AppendHeader(o.buf, 0, n), true
}

func (o *outbox) commit(buf []byte) {
	o.buf = buf
	wake := o.idle
	o.idle = false
	o.mu.Unlock()
	if wake {
		o.changed.Broadcast()
	}
}

// take waits for messages and returns all there are. It returns false when the outbox
// was ended and is empty, or failed. The batch is the caller's until the next call.
func (o *outbox) take() ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) == 0 && !o.ended {
		o.idle = true
		o.changed.Wait()
	}
	o.idle = false
	// Whoever can run now may have more to send: a flush costs more than the wait.
	if len(o.buf) < smallBatch && !o.ended {
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
	if o.failed || len(o.buf) == 0 {
		return nil, false
	}
	batch := o.buf
	o.buf, o.spare = o.spare[:0], nil
	if cap(batch) <= keptBuffer {
		o.spare = batch[:0] // by the time it is used again the caller is back here
	}
	if o.waiting {
		o.waiting = false
		o.changed.Broadcast()
	}
	return batch, true
}

// end lets no more in; what waits is still sent.
func (o *outbox) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.changed.Broadcast()
}

// fail lets no more in and drops what waits.
func (o *outbox) fail() {
	o.mu.Lock()
	o.ended, o.failed, o.buf = true, true, nil
	o.mu.Unlock()
	o.changed.Broadcast()
}
