package kv

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// ControlledOptions are the limits of a Controlled. The zero value is the defaults.
type ControlledOptions struct {
	// Concurrency is how many requests of one stream are carried out at once; 64 by
	// default. While all of them are busy nothing more is read.
	Concurrency int

	// MaxBlob is the largest blob that is taken or given, in bytes; DefaultMaxBlob by
	// default. A stream holds up to Concurrency blobs that were asked for, and twice
	// MaxBlob of blobs to store. One that does not fit waits for a second, in which
	// nothing more is read, and is then refused as blobstore.ErrUnavailable: a store
	// that is slow slows its peer down, and one that hangs holds no other request.
	MaxBlob int

	// RequestTimeout is how long one request may take, from when it was read, and up to
	// a sixteenth longer; a minute by default, and without limit where negative. The
	// store is told by its context.
	RequestTimeout time.Duration

	// SendTimeout is how long the other side may take no messages, plus a second for
	// every 64 KiB of those that wait; a minute by default, and without limit where
	// negative. Then the stream ends with ErrStalled.
	SendTimeout time.Duration

	// Observer is told of every request, as layer controlled. Where it is a
	// blobstore.Propagator, operations go on with the span that the request names.
	Observer blobstore.Observer
}

func (o ControlledOptions) withDefaults() ControlledOptions {
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	if o.MaxBlob <= 0 {
		o.MaxBlob = DefaultMaxBlob
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = time.Minute
	}
	if o.SendTimeout == 0 {
		o.SendTimeout = time.Minute
	}
	return o
}

// Controlled answers what is asked over streams from a store. It may serve many at
// once.
type Controlled struct {
	store      blobstore.Store
	verify     bool
	opts       ControlledOptions
	propagator blobstore.Propagator
	stats      struct{ answered, failed, ignored, malformed, duplicate, tooLarge atomic.Int64 }
}

// ControlledStats counts what became of the requests of all streams.
type ControlledStats struct {
	Answered  int64 // with or without an error
	Failed    int64 // of these, with an error
	Ignored   int64 // of a case that is not known here
	Malformed int64 // no message of agent.v1
	Duplicate int64 // refused: the id was that of a request in progress
	TooLarge  int64 // requests over the limit, answered or not
}

// NewControlled returns a Controlled of store.
func NewControlled(store blobstore.Store, opts ControlledOptions) *Controlled {
	c := &Controlled{store: store, verify: blobstore.ModeOf(store) == blobstore.Verified, opts: opts.withDefaults()}
	c.propagator, _ = opts.Observer.(blobstore.Propagator)
	return c
}

// Stats returns what was counted so far.
func (c *Controlled) Stats() ControlledStats {
	return ControlledStats{
		Answered:  c.stats.answered.Load(),
		Failed:    c.stats.failed.Load(),
		Ignored:   c.stats.ignored.Load(),
		Malformed: c.stats.malformed.Load(),
		Duplicate: c.stats.duplicate.Load(),
		TooLarge:  c.stats.tooLarge.Load(),
	}
}

// MaxMessage returns the largest message that a stream to be served has to let pass,
// in bytes.
func (c *Controlled) MaxMessage() int { return MaxMessage(c.opts.MaxBlob) }

// Serve answers requests until the other side ends its part, and returns nil when all
// of them are answered. It returns an error when the stream breaks, and the cause of
// the context when that ends, after which the stream is closed. It returns when the
// store has let go of every request.
func (c *Controlled) Serve(ctx context.Context, stream Stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { stream.Close() }) //nolint:errcheck // to make Recv and Send return
	defer stop()

	s := newServing(ctx, c)
	sent := make(chan error, 1)
	go func() {
		err := s.send(stream, cancel)
		if err != nil {
			cancel(err) // nobody hears answers any more
		}
		sent <- err
	}()

	err := s.receive(stream)
	if err != nil {
		s.out.fail()
		cancel(err)
	}
	close(s.work)
	s.workers.Wait()
	s.out.end()
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // what ended the stream first
	}
	return err
}

// op returns the operation that observers are told of.
func (k kind) op(layer string) blobstore.Op {
	if k == get {
		return blobstore.Op{Layer: layer, Name: "get_blob"}
	}
	return blobstore.Op{Layer: layer, Name: "set_blob"}
}

// carryOut asks the store.
func (c *Controlled) carryOut(j job) answer {
	ctx := j.ctx
	if j.span != nil {
		ctx = c.propagator.WithRemoteSpan(ctx, *j.span)
	}
	ctx, span := blobstore.Begin(ctx, c.opts.Observer, j.kind.op("controlled"))
	a := answer{id: j.id, kind: j.kind}
	var err error
	if j.kind == get {
		err = c.get(ctx, j, &a)
	} else {
		err = c.set(ctx, j)
	}
	span.End(err)
	if err != nil && (j.kind == set || !errors.Is(err, blobstore.ErrNotFound)) {
		a.err = peerError(err)
	}
	return a
}

func (c *Controlled) get(ctx context.Context, j job, a *answer) error {
	if !j.isRef {
		return fmt.Errorf("getting a blob: %w: no id of 32 bytes names one", blobstore.ErrNotFound)
	}
	data, err := c.store.Get(ctx, j.ref)
	if err != nil {
		return err
	}
	if len(data) > c.opts.MaxBlob {
		return fmt.Errorf("sending %s: %w", j.ref, tooLarge(len(data), c.opts.MaxBlob))
	}
	a.data, a.found = data, true
	return nil
}

func (c *Controlled) set(ctx context.Context, j job) error {
	if !j.isRef {
		return fmt.Errorf("storing %d bytes: %w: the id of a blob has 32 bytes", len(j.data), blobref.ErrInvalid)
	}
	if len(j.data) > c.opts.MaxBlob {
		return fmt.Errorf("storing %s: %w", j.ref, tooLarge(len(j.data), c.opts.MaxBlob))
	}
	// Most stores check this too. What a peer says is checked here all the same: a
	// store from elsewhere may not.
	if c.verify && !j.ref.Verify(j.data) {
		return fmt.Errorf("storing %s: %w (they are %s)", j.ref, blobstore.ErrMismatch, blobref.Of(j.data))
	}
	return c.store.Set(ctx, j.ref, j.data)
}
