package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// RemoteOptions are the limits of a Remote. The zero value is the defaults.
type RemoteOptions struct {
	// Mode is blobstore.Verified by default: what is got must hash to its id.
	Mode blobstore.Mode

	// InFlight is how many requests are asked at once; 256 by default. Calls beyond
	// it wait.
	InFlight int

	// MaxBlob is the largest blob that is stored or got, in bytes; DefaultMaxBlob by
	// default. It is also how many bytes of blobs are being stored at once.
	MaxBlob int

	// Timeout is how long a request waits for its answer, connections and
	// reconnections included; 30 seconds by default, and without limit where
	// negative. The deadline of a call's context holds beside it.
	Timeout time.Duration

	// Attempts is over how many connections one request is asked before it fails with
	// blobstore.ErrUnavailable; 10 by default.
	Attempts int

	// Backoff is the pause before the second attempt to connect, and BackoffLimit
	// what it grows to, doubling; 50 milliseconds and 5 seconds by default. A random
	// half is left out of each.
	Backoff, BackoffLimit time.Duration

	// DialPatience is how long calls wait for a peer that was there and cannot be
	// dialled any more, counted from the first dial that failed; 2 seconds by
	// default. After that, and before there was any stream, a dial that fails, fails
	// the calls that wait with blobstore.ErrUnavailable, and the next call dials
	// again. Where it is negative calls wait for their Timeout, from the start.
	DialPatience time.Duration

	// Observer is told of every call, as layer remote. Where it is a
	// blobstore.Propagator, requests name the span that they are part of.
	Observer blobstore.Observer
}

func (o RemoteOptions) withDefaults() RemoteOptions {
	if o.InFlight <= 0 {
		o.InFlight = 256
	}
	if o.MaxBlob <= 0 {
		o.MaxBlob = DefaultMaxBlob
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Attempts <= 0 {
		o.Attempts = 10
	}
	if o.Backoff <= 0 {
		o.Backoff = 50 * time.Millisecond
	}
	if o.BackoffLimit <= 0 {
		o.BackoffLimit = 5 * time.Second
	}
	if o.DialPatience == 0 {
		o.DialPatience = 2 * time.Second
	}
	return o
}

// DialFunc opens a stream to a peer that answers. Its context is for the dialling
// alone. An error that matches ErrRefused fails the calls that wait, one that matches
// ErrClosed all that come too; others fail them when there is no patience (see
// RemoteOptions.DialPatience), and it is called again.
type DialFunc func(ctx context.Context) (Stream, error)

// Once returns a DialFunc for a stream that is there and that nothing can replace.
func Once(stream Stream) DialFunc {
	var used atomic.Bool
	return func(context.Context) (Stream, error) {
		if used.Swap(true) {
			return nil, ErrClosed
		}
		return stream, nil
	}
}

// Remote is the store of a peer that answers over a stream. It keeps nothing on this
// machine, puts nothing off, and cannot list, describe or delete. Safe for concurrent
// use.
type Remote struct {
	opts       RemoteOptions
	dial       DialFunc
	propagator blobstore.Propagator

	slots chan struct{}       // one for each request in flight
	bytes *semaphore.Weighted // of blobs that are being stored

	cancel context.CancelFunc
	done   chan struct{} // the goroutine that keeps the connection has ended
	wanted chan struct{} // a call waits for a connection

	mu     sync.Mutex
	calls  map[uint32]*call           // guarded by mu: those that wait for an answer
	nextID uint32                     // guarded by mu
	conn   *connection                // guarded by mu; nil while there is none
	broken error                      // guarded by mu: why there is none
	sets   map[chan struct{}]struct{} // guarded by mu: closed when their calls return; Flush waits for them

	free sync.Pool // of *call that nobody knows any more

	stats struct{ asked, askedAgain, answered, ignored, connections atomic.Int64 }
}

var (
	_ blobstore.Store       = (*Remote)(nil)
	_ blobstore.BytesPutter = (*Remote)(nil)
	_ blobstore.Moder       = (*Remote)(nil)
)

// RemoteStats counts what a Remote did.
type RemoteStats struct {
	Asked       int64 // calls that became requests
	AskedAgain  int64 // requests repeated after a reconnect
	Answered    int64 // requests that were answered
	Ignored     int64 // messages that answered nothing that was asked
	Connections int64 // streams opened
}

// call is a request that waits for its answer.
type call struct {
	kind  kind
	ref   blobref.Ref
	data  []byte // of a set: the caller's, who waits
	span  *blobstore.SpanContext
	conn  *connection // guarded by Remote.mu: where it was asked
	asked int         // guarded by Remote.mu: over how many connections

	reply    chan reply    // room for one
	expired  *time.Timer   // nil where calls have no limit
	finished chan struct{} // of a set: closed when the call returned
}

type reply struct {
	data  []byte
	found bool
	err   error
}

// NewRemote returns a Remote that dials when something is to be asked. Close ends it.
func NewRemote(dial DialFunc, opts RemoteOptions) *Remote {
	return newRemote(nil, dial, opts)
}

// Connect returns a Remote that has dialled once already, so that a peer that is not
// there is known before anything is asked of it.
func Connect(ctx context.Context, dial DialFunc, opts RemoteOptions) (*Remote, error) {
	stream, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	return newRemote(stream, dial, opts), nil
}

func newRemote(first Stream, dial DialFunc, opts RemoteOptions) *Remote {
	opts = opts.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Remote{
		opts:   opts,
		dial:   dial,
		slots:  make(chan struct{}, opts.InFlight),
		bytes:  semaphore.NewWeighted(int64(opts.MaxBlob)),
		cancel: cancel,
		done:   make(chan struct{}),
		wanted: make(chan struct{}, 1),
		calls:  make(map[uint32]*call),
		sets:   make(map[chan struct{}]struct{}),
	}
	r.propagator, _ = opts.Observer.(blobstore.Propagator)
	go r.keepConnected(ctx, first)
	return r
}

// Close ends the connection. Calls that wait fail with ErrClosed.
func (r *Remote) Close() error {
	r.cancel()
	<-r.done
	return nil
}

// Mode returns the mode of the options.
func (r *Remote) Mode() blobstore.Mode { return r.opts.Mode }

// Stats returns what was counted so far.
func (r *Remote) Stats() RemoteStats {
	return RemoteStats{
		Asked:       r.stats.asked.Load(),
		AskedAgain:  r.stats.askedAgain.Load(),
		Answered:    r.stats.answered.Load(),
		Ignored:     r.stats.ignored.Load(),
		Connections: r.stats.connections.Load(),
	}
}

// Get asks for the blob.
func (r *Remote) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	ctx, span := blobstore.Begin(ctx, r.opts.Observer, get.op("remote"))
	data, err := r.get(ctx, ref)
	span.End(err)
	return data, err
}

func (r *Remote) get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	got, err := r.ask(ctx, get, ref, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("getting %s: %w", ref, err)
	case !got.found:
		return nil, fmt.Errorf("getting %s: %w on the other side", ref, blobstore.ErrNotFound)
	case r.opts.Mode == blobstore.Verified && !ref.Verify(got.data):
		return nil, fmt.Errorf("getting %s: %w: the other side sent %d bytes that are %s",
			ref, blobstore.ErrCorrupt, len(got.data), blobref.Of(got.data))
	}
	return got.data, nil
}

// Set has the blob stored. An error that matches blobstore.ErrUnavailable, ErrClosed
// or the context's leaves open whether it is.
func (r *Remote) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	ctx, span := blobstore.Begin(ctx, r.opts.Observer, set.op("remote"))
	err := r.check(ctx, ref, data)
	if err == nil {
		err = r.set(ctx, ref, data)
	}
	span.End(err)
	return err
}

// check refuses what need not be asked.
func (r *Remote) check(ctx context.Context, ref blobref.Ref, data []byte) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("storing %s: %w", ref, ctx.Err())
	case r.opts.Mode == blobstore.Verified && !ref.Verify(data):
		return fmt.Errorf("storing %s: %w (they are %s)", ref, blobstore.ErrMismatch, blobref.Of(data))
	case ref.IsZero():
		return fmt.Errorf("storing %d bytes: %w: the zero reference names no blob", len(data), blobref.ErrInvalid)
	}
	return nil
}

// PutBytes is Set under the reference of data.
func (r *Remote) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ctx, span := blobstore.Begin(ctx, r.opts.Observer, set.op("remote"))
	ref := blobref.Of(data)
	err := r.set(ctx, ref, data)
	span.End(err)
	if err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}

func (r *Remote) set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if len(data) > r.opts.MaxBlob {
		return fmt.Errorf("storing %s: %w", ref, tooLarge(len(data), r.opts.MaxBlob))
	}
	if err := r.bytes.Acquire(ctx, int64(len(data))); err != nil {
		return fmt.Errorf("storing %s: waiting for other blobs to be stored: %w", ref, err)
	}
	defer r.bytes.Release(int64(len(data)))
	_, err := r.ask(ctx, set, ref, data)
	if r.opts.Mode == blobstore.Opaque && errors.Is(err, blobstore.ErrMismatch) {
		err = fmt.Errorf("%w: the other side takes only what hashes to its id, as ciphertext does not; have it serve an opaque store, as kv serve --opaque does: %w", blobstore.ErrMode, err)
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

// SetLocal refuses: nothing here is on this machine.
func (r *Remote) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := r.check(ctx, ref, data); err != nil {
		return err
	}
	return fmt.Errorf("storing %s: %w: all of it is on the other side of a stream", ref, blobstore.ErrNotLocal)
}

// Flush waits until the sets that other goroutines had begun have returned. Each told
// its own caller how it ended.
func (r *Remote) Flush(ctx context.Context) error {
	r.mu.Lock()
	finished := make([]<-chan struct{}, 0, len(r.sets))
	for ch := range r.sets {
		finished = append(finished, ch)
	}
	r.mu.Unlock()
	for _, ch := range finished {
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("waiting for blobs to be stored: %w", ctx.Err())
		}
	}
	return nil
}

// ask sends a request and waits for its answer.
func (r *Remote) ask(ctx context.Context, k kind, ref blobref.Ref, data []byte) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	select {
	case r.slots <- struct{}{}:
	default:
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return reply{}, fmt.Errorf("waiting for other requests: %w", ctx.Err())
		case <-r.done:
			return reply{}, ErrClosed
		}
	}
	defer func() { <-r.slots }()

	c := r.newCall(k, ref, data)
	if r.propagator != nil {
		if span, ok := r.propagator.SpanContext(ctx); ok {
			c.span = &span
		}
	}
	if k == set {
		defer r.finish(c.finished)
	}
	id, err := r.send(c)
	if err != nil {
		return reply{}, err
	}
	var expired <-chan time.Time
	if c.expired != nil {
		c.expired.Reset(r.opts.Timeout)
		expired = c.expired.C
	}
	select {
	case got := <-c.reply:
		r.recycle(c)
		return got, got.err
	case <-ctx.Done():
		return reply{}, because(ctx.Err(), r.forget(id, c))
	case <-expired:
		return reply{}, &blobstore.UnavailableError{Err: because(fmt.Errorf("%w (%v)", ErrTimeout, r.opts.Timeout), r.forget(id, c))}
	}
}

// newCall returns a call that nobody else knows.
func (r *Remote) newCall(k kind, ref blobref.Ref, data []byte) *call {
	c, _ := r.free.Get().(*call)
	if c == nil {
		c = &call{reply: make(chan reply, 1)}
		if r.opts.Timeout > 0 {
			c.expired = time.NewTimer(r.opts.Timeout)
		}
	}
	c.kind, c.ref, c.data = k, ref, data
	if k == set {
		c.finished = make(chan struct{})
	}
	return c
}

// recycle takes a call that was answered: who answered took it out of the map first,
// and kept nothing of it.
func (r *Remote) recycle(c *call) {
	if c.expired != nil {
		c.expired.Stop()
	}
	*c = call{reply: c.reply, expired: c.expired}
	r.free.Put(c)
}

// because adds why there is no connection, where that is the case.
func because(err, broken error) error {
	if broken == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, broken)
}

// send gives the call an id and has its request sent: now, where there is a
// connection, and otherwise by whoever makes one.
func (r *Remote) send(c *call) (id uint32, err error) {
	r.mu.Lock()
	if r.calls == nil {
		r.mu.Unlock()
		return 0, ErrClosed
	}
	for {
		id = r.nextID
		r.nextID++ // from 0, and again after 2^32
		if _, taken := r.calls[id]; !taken {
			break
		}
	}
	r.calls[id] = c
	if c.kind == set {
		r.sets[c.finished] = struct{}{}
	}
	conn := r.conn
	if conn != nil {
		c.conn = conn
		c.asked = 1
	}
	r.mu.Unlock()
	r.stats.asked.Add(1)
	if conn == nil {
		r.want()
		return id, nil
	}
	// Whoever makes the next connection asks again what was asked on this one.
	conn.ask(id, c)
	return id, nil
}

func (r *Remote) want() {
	select {
	case r.wanted <- struct{}{}:
	default:
	}
}

// forget takes back a call whose caller waits no more. It returns why there is no
// connection, if there is none.
func (r *Remote) forget(id uint32, c *call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.expired != nil {
		c.expired.Stop()
	}
	if r.calls[id] == c {
		delete(r.calls, id)
	}
	if r.conn == nil {
		return r.broken
	}
	return nil
}

func (r *Remote) finish(set chan struct{}) {
	r.mu.Lock()
	delete(r.sets, set)
	r.mu.Unlock()
	close(set)
}

// take removes the call that waits for an answer with that id.
func (r *Remote) take(id uint32) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[id]
	delete(r.calls, id)
	return c
}

// answered gives an answer to its call.
func (r *Remote) answered(message []byte) {
	a, err := parseAnswer(message)
	if err != nil || a.kind == unknown {
		// Whose it was cannot be trusted, and a case that we did not ask for answers
		// nothing.
		r.stats.ignored.Add(1)
		return
	}
	r.deliver(a)
}

func (r *Remote) deliver(a answer) {
	c := r.take(a.id)
	if c == nil {
		r.stats.ignored.Add(1)
		return
	}
	r.stats.answered.Add(1)
	switch {
	case c.kind != a.kind:
		c.reply <- reply{err: fmt.Errorf("%w: the answer is to another kind of request", ErrProtocol)}
	case a.err != nil:
		c.reply <- reply{err: a.err}
	case a.found:
		c.reply <- reply{found: true, data: append(make([]byte, 0, len(a.data)), a.data...)}
	default:
		c.reply <- reply{}
	}
}

// answeredTooLarge fails the call whose answer was passed by.
func (r *Remote) answeredTooLarge(tooLarge *TooLargeError) {
	head, ok := parseHead(tooLarge.Head)
	if !ok {
		r.stats.ignored.Add(1)
		return
	}
	c := r.take(head.id)
	if c == nil {
		r.stats.ignored.Add(1)
		return
	}
	r.stats.answered.Add(1)
	c.reply <- reply{err: fmt.Errorf("%w: %w", blobstore.ErrTooLarge, tooLarge)}
}
