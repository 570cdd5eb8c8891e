package handler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// transcripts has the transcript of the newest checkpoint written, by one goroutine.
type transcripts struct {
	conversation string
	opts         Options
	ctx          context.Context // of the writer; ends with close
	cancel       context.CancelFunc
	done         chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	wanted  uint64 // how many checkpoints there were
	written uint64 // up to which one a transcript is written
	next    Checkpoint
	failure error         // of the last try, nil after one that succeeded
	changed chan struct{} // closed, and made anew, when one of these changes
}

func newTranscripts(conversation string, opts Options) *transcripts {
	ctx, cancel := context.WithCancel(context.Background())
	t := &transcripts{conversation: conversation, opts: opts, ctx: ctx, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	go t.run()
	return t
}

// tell wakes who waits for a change. t.mu is held.
func (t *transcripts) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *transcripts) want(c Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted++
	t.next = c
	t.tell()
}

func (t *transcripts) run() {
	defer close(t.done)
	wait := t.opts.Retry
	for {
		t.mu.Lock()
		n, c, due, changed := t.wanted, t.next, t.wanted > t.written, t.changed
		t.mu.Unlock()
		if !due {
			select {
			case <-changed:
				continue
			case <-t.ctx.Done():
				return
			}
		}
		err := t.opts.WriteTranscript(t.ctx, c)
		if t.ctx.Err() != nil && err != nil {
			t.ended(n, err)
			return
		}
		t.ended(n, err)
		if err == nil {
			wait = t.opts.Retry
			if t.opts.OnTranscriptWritten != nil {
				t.opts.OnTranscriptWritten(t.conversation)
			}
			continue
		}
		if t.opts.Report != nil {
			t.opts.Report(t.conversation, fmt.Errorf("writing the transcript of conversation %s: %w; it is tried again in %s", t.conversation, err, wait))
		}
		select {
		case <-time.After(wait):
		case <-t.ctx.Done():
			return
		}
		wait = min(2*wait, maxRetry)
	}
}

// ended notes how writing the transcript of checkpoint n ended.
func (t *transcripts) ended(n uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = err
	if err == nil {
		t.written = n
	}
	t.tell()
}

func (t *transcripts) flush(ctx context.Context) error {
	t.mu.Lock()
	until := t.wanted
	for t.written < until {
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return t.unwritten(ctx.Err())
		case <-t.done:
			return t.unwritten(ErrClosed)
		}
		t.mu.Lock()
	}
	t.mu.Unlock()
	return nil
}

// unwritten is the error of a transcript that is not written, with why nobody waits for it any more.
func (t *transcripts) unwritten(why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written == t.wanted {
		return nil
	}
	return fmt.Errorf("the transcript of conversation %s is not written: %w", t.conversation, errors.Join(why, t.failure))
}

func (t *transcripts) close() error {
	t.cancel()
	<-t.done
	return t.unwritten(ErrClosed)
}
