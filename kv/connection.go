package kv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobstore"
)

// connection is one stream of a Remote.
type connection struct {
	stream   Stream
	out      *outbox
	answered bool // only its reader knows: something came
}

// ask queues a request.
func (c *connection) ask(id uint32, asked *call) {
	buf, ok := c.out.begin(requestSize(id, asked.kind, asked.data, asked.span))
	if !ok {
		return // broken: it is asked on the next one
	}
	c.out.commit(appendRequest(buf, id, asked.kind, asked.ref, asked.data, asked.span))
}

// keepConnected makes connections as long as calls want them.
func (r *Remote) keepConnected(ctx context.Context, first Stream) {
	defer close(r.done)
	defer r.closed()
	stream, failures := first, 0
	var away absence
	for {
		if stream == nil {
			select {
			case <-r.wanted:
			case <-ctx.Done():
				return
			}
			if !r.pause(ctx, failures, away.left(r.opts.DialPatience)) {
				return
			}
			away.began()
			var err error
			if stream, err = r.dialOnce(ctx); err != nil {
				if errors.Is(err, ErrClosed) {
					return
				}
				failures++
				gaveUp := away.left(r.opts.DialPatience) <= 0
				if gaveUp {
					failures = 0 // who asks next is told at once, too
				}
				r.disconnected(err, gaveUp)
				continue
			}
		}
		away = absence{wasThere: true}
		r.stats.connections.Add(1)
		heard, err := r.converse(ctx, stream)
		stream = nil
		if ctx.Err() != nil {
			return
		}
		failures++
		if heard {
			failures = 0
		}
		r.disconnected(err, false)
	}
}

// dialOnce gives one dial no more time than a call has.
func (r *Remote) dialOnce(ctx context.Context) (Stream, error) {
	if r.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opts.Timeout)
		defer cancel()
	}
	return r.dial(ctx)
}

// pause waits before a connection is tried again, no longer than patience is left. It
// returns false when the Remote is closed.
func (r *Remote) pause(ctx context.Context, failures int, left time.Duration) bool {
	if failures == 0 {
		return ctx.Err() == nil
	}
	wait := r.opts.BackoffLimit
	if shift := failures - 1; shift < 20 {
		wait = min(wait, r.opts.Backoff<<shift)
	}
	wait = min(wait-rand.N(wait/2+1), left)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// disconnected notes why there is no connection, and asks for another one where calls
// still wait: none do where the peer refuses or was given up.
func (r *Remote) disconnected(err error, gaveUp bool) {
	refused := errors.Is(err, ErrRefused)
	r.mu.Lock()
	r.broken = err
	var hopeless []*call
	for id, c := range r.calls {
		if refused || gaveUp || c.asked >= r.opts.Attempts {
			delete(r.calls, id)
			hopeless = append(hopeless, c)
		}
	}
	waiting := len(r.calls) > 0
	r.mu.Unlock()
	failed := err
	switch {
	case refused:
	case gaveUp:
		failed = &blobstore.UnavailableError{Err: err}
	default:
		failed = &blobstore.UnavailableError{Err: fmt.Errorf("asked over %d connections: %w", r.opts.Attempts, err)}
	}
	for _, c := range hopeless {
		c.reply <- reply{err: failed}
	}
	if waiting {
		r.want()
	}
}

// closed fails every call that waits, and those to come.
func (r *Remote) closed() {
	r.mu.Lock()
	calls := r.calls
	r.calls = nil
	r.mu.Unlock()
	for _, c := range calls {
		c.reply <- reply{err: ErrClosed}
	}
}

// converse speaks over a stream until it breaks. heard says that anything came over
// it.
func (r *Remote) converse(ctx context.Context, stream Stream) (heard bool, err error) {
	conn := &connection{stream: stream, out: newOutbox(0)}
	stop := context.AfterFunc(ctx, func() { stream.Close() }) //nolint:errcheck // to make Recv and Send return
	defer stop()
	var sender sync.WaitGroup
	var sendErr error
	sender.Go(func() {
		if sendErr = conn.send(); sendErr != nil {
			stream.Close() //nolint:errcheck // makes Recv return
		}
	})
	r.connected(conn)
	err = r.receive(conn)

	r.mu.Lock()
	r.conn = nil
	r.mu.Unlock()
	conn.out.fail()
	stream.Close() //nolint:errcheck // it is broken already
	sender.Wait()
	if sendErr != nil && !errors.Is(err, ErrRefused) {
		err = errors.Join(sendErr, err)
	}
	return conn.answered, fmt.Errorf("the connection broke: %w", err)
}

// connected takes the connection for new calls, and asks again what waits.
func (r *Remote) connected(conn *connection) {
	r.mu.Lock()
	r.conn = conn
	ids := slices.Sorted(maps.Keys(r.calls))
	r.mu.Unlock()
	for _, id := range ids {
		r.askAgain(conn, id)
	}
}

// askAgain holds the lock while it reads the bytes of a set: its caller may take them
// back as soon as the call is gone from the map.
func (r *Remote) askAgain(conn *connection, id uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[id]
	if c == nil || c.conn == conn {
		return // answered meanwhile, or a new call under that id
	}
	if c.asked > 0 {
		r.stats.askedAgain.Add(1)
	}
	c.conn = conn
	c.asked++
	conn.ask(id, c)
}

func (c *connection) send() error {
	for {
		batch, ok := c.out.take()
		if !ok {
			return nil
		}
		if err := c.stream.Send(batch); err != nil {
			c.out.fail()
			return fmt.Errorf("sending requests: %w", err)
		}
	}
}

// receive reads answers until the stream breaks.
func (r *Remote) receive(conn *connection) error {
	for {
		message, err := conn.stream.Recv()
		var tooLarge *TooLargeError
		switch {
		case errors.As(err, &tooLarge):
			conn.answered = true
			r.answeredTooLarge(tooLarge)
		case errors.Is(err, io.EOF):
			return errors.New("the other side ended the stream")
		case err != nil:
			return fmt.Errorf("receiving answers: %w", err)
		default:
			conn.answered = true
			r.answered(message)
		}
	}
}
