package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// serving is one stream that a Controlled serves.
type serving struct {
	c    *Controlled
	ctx  context.Context
	out  *outbox
	held *semaphore.Weighted // bytes of blobs that are being stored

	work    chan job
	workers sync.WaitGroup
	started int          // workers; only receive knows
	shared  shared       // only receive knows
	open    atomic.Int64 // jobs given to workers and not yet answered

	mu         sync.Mutex
	inProgress map[uint32]struct{} // guarded by mu: ids
}

// job is a request in a form that outlives the message it came in.
type job struct {
	ctx   context.Context // of this request
	id    uint32
	kind  kind
	ref   blobref.Ref
	isRef bool // the id of the blob has 32 bytes
	data  []byte
	held  int64
	span  *blobstore.SpanContext
}

// queuedAnswers is how many bytes of answers wait for the sender before workers wait
// with theirs.
const queuedAnswers = 1 << 20

// roomPatience is how long a blob to store waits for room in memory.
const roomPatience = time.Second

// errNoRoom is the answer to a blob for which there was none.
var errNoRoom = &blobstore.UnavailableError{Err: errors.New("other blobs are being stored, and take all the room there is; ask again")}

func newServing(ctx context.Context, c *Controlled) *serving {
	return &serving{
		c:          c,
		ctx:        ctx,
		out:        newOutbox(queuedAnswers),
		held:       semaphore.NewWeighted(2 * int64(c.opts.MaxBlob)),
		work:       make(chan job, c.opts.Concurrency),
		inProgress: make(map[uint32]struct{}),
	}
}

// receive reads requests until the other side ends its part.
func (s *serving) receive(stream Stream) error {
	for {
		message, err := stream.Recv()
		var tooLarge *TooLargeError
		switch {
		case errors.As(err, &tooLarge):
			s.refuseLarge(tooLarge)
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("receiving a request: %w", err)
		}
		r, err := parseRequest(message)
		if err != nil {
			s.c.stats.malformed.Add(1)
			continue
		}
		if r.kind == unknown {
			s.c.stats.ignored.Add(1)
			continue
		}
		if err := s.give(&r); err != nil {
			return err
		}
	}
}

// give hands a request to a worker.
func (s *serving) give(r *request) error {
	if !s.begin(r.id) {
		s.c.stats.duplicate.Add(1)
		s.answer(answer{id: r.id, kind: r.kind, err: peerError(
			fmt.Errorf("%w: a request with id %d is in progress", ErrProtocol, r.id))})
		return nil
	}
	j := job{ctx: s.deadline(), id: r.id, kind: r.kind, isRef: len(r.blobID) == blobIDLen}
	if j.isRef {
		j.ref = blobref.FromSum([blobIDLen]byte(r.blobID))
	}
	if r.kind == set {
		j.held = min(int64(len(r.data)), int64(s.c.opts.MaxBlob))
		if err := s.hold(j.held); err != nil {
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			s.end(r.id)
			s.answer(answer{id: r.id, kind: r.kind, err: peerError(fmt.Errorf("storing %s: %w", j.ref, err))})
			return nil
		}
		j.data = bytes.Clone(r.data)
	}
	if r.span != (blobstore.SpanContext{}) && s.c.propagator != nil {
		span := r.span
		j.span = &span
	}
	// There are as many workers as requests are open, up to the limit, so that none
	// waits behind a slow one.
	if int(s.open.Add(1)) > s.started && s.started < s.c.opts.Concurrency {
		s.started++
		s.workers.Go(s.run)
	}
	select {
	case s.work <- j:
		return nil
	default: // all are busy, and as many wait
	}
	select {
	case s.work <- j:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// hold takes room for n bytes of a blob to store.
func (s *serving) hold(n int64) error {
	if s.held.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, roomPatience, errNoRoom)
	defer cancel()
	if s.held.Acquire(ctx, n) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// shared is a context that ends with a deadline, and the time at which requests began
// to share it.
type shared struct {
	ctx    context.Context
	cancel context.CancelFunc
	since  time.Time
}

// deadline returns the context of a request that begins now. To make one, with its
// timer, costs as much as to get a small blob: requests that begin in the same
// sixteenth of the timeout share one, and have up to that much more time. Those that
// are replaced end by their deadline or with the stream.
func (s *serving) deadline() context.Context {
	timeout := s.c.opts.RequestTimeout
	if timeout < 0 {
		return s.ctx
	}
	now, slice := time.Now(), timeout/16
	if s.shared.ctx == nil || now.Sub(s.shared.since) > slice {
		s.shared.ctx, s.shared.cancel = context.WithDeadline(s.ctx, now.Add(timeout+slice))
		s.shared.since = now
	}
	return s.shared.ctx
}

func (s *serving) run() {
	for j := range s.work {
		a := s.c.carryOut(j)
		if j.held > 0 {
			s.held.Release(j.held)
		}
		// The id is free before the answer can be seen: the asker may use it again
		// as soon as it has the answer.
		s.end(j.id)
		s.answer(a)
		s.open.Add(-1)
	}
}

func (s *serving) begin(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.inProgress[id]; ok {
		return false
	}
	s.inProgress[id] = struct{}{}
	return true
}

func (s *serving) end(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inProgress, id)
}

func (s *serving) answer(a answer) {
	buf, ok := s.out.begin(a.size())
	if !ok {
		return // the stream broke: nobody hears it
	}
	s.out.commit(a.append(buf))
	s.c.stats.answered.Add(1)
	if a.err != nil {
		s.c.stats.failed.Add(1)
	}
}

// refuseLarge answers a request that was passed by, as far as its head says what it
// is.
func (s *serving) refuseLarge(tooLarge *TooLargeError) {
	s.c.stats.tooLarge.Add(1)
	r, ok := parseHead(tooLarge.Head)
	if !ok || !s.begin(r.id) {
		return
	}
	s.end(r.id)
	s.answer(answer{id: r.id, kind: r.kind, err: peerError(fmt.Errorf("%w: %w", blobstore.ErrTooLarge, tooLarge))})
}

// send sends answers until there are no more.
func (s *serving) send(stream Stream, cancel context.CancelCauseFunc) error {
	defer s.out.fail() // or workers would wait for room
	timeout := s.c.opts.SendTimeout
	var stalled *time.Timer
	if timeout > 0 {
		stalled = time.AfterFunc(timeout, func() { cancel(fmt.Errorf("sending answers: %w", ErrStalled)) })
		stalled.Stop()
	}
	for {
		batch, ok := s.out.take()
		if !ok {
			return nil
		}
		if stalled != nil {
			stalled.Reset(timeout + time.Duration(len(batch)/(64<<10))*time.Second)
		}
		err := stream.Send(batch)
		if stalled != nil {
			stalled.Stop()
		}
		if err != nil {
			return fmt.Errorf("sending answers: %w", err)
		}
	}
}
