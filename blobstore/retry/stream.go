package retry

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Open opens the blob.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (b blobstore.Blob, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	err = s.do(ctx, call{"opening", ref}, func(a *attempt) error {
		opened, err := blobstore.Open(a.ctx, s.inner, ref)
		if err != nil {
			return err
		}
		a.stopClock()
		if a.late() {
			// It was opened with a context that ended a moment ago.
			return errors.Join(context.Cause(a.ctx), context.Canceled, opened.Close())
		}
		a.kept = true
		b = &blob{Blob: opened, cancel: sync.OnceFunc(func() { a.cancel(nil) })}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// blob frees the context that it was opened with, which it may read with.
type blob struct {
	blobstore.Blob
	cancel func()
}

func (b *blob) Close() error {
	defer b.cancel()
	return b.Blob.Close()
}

// Put stores what r yields.
func (s *Store) Put(ctx context.Context, r io.Reader) (ref blobref.Ref, n int64, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	err = s.stream(ctx, call{what: "storing a stream"}, r, func(ctx context.Context, r io.Reader) (err error) {
		ref, n, err = blobstore.PutStream(ctx, s.inner, r)
		return err
	})
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return ref, n, nil
}

// SetStream stores the size bytes that r yields under ref.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	return s.stream(ctx, call{"storing", ref}, r, func(ctx context.Context, r io.Reader) error {
		return blobstore.SetStream(ctx, s.inner, ref, r, size)
	})
}

// stream has what r yields stored, again from where r stood where that is
// possible.
func (s *Store) stream(ctx context.Context, c call, r io.Reader, store func(context.Context, io.Reader) error) error {
	src := newSource(r)
	return s.do(ctx, c, func(a *attempt) error {
		a.startAnew(s.policy.AttemptTimeout)
		t := &turn{src: src, attempt: a}
		err := store(a.ctx, t)
		over, failure := t.end()
		switch {
		case err == nil:
		case failure != nil:
			a.final, a.blameless = "the stream itself failed", true
		case !errors.Is(err, blobstore.ErrUnavailable) && !a.late():
		case !over:
			a.final = "the stream is still being read"
		case !src.rewind():
			a.final = "a part of the stream was read, and it cannot be rewound"
		}
		return err
	})
}

// source is the reader of a stream.
type source struct {
	r      io.Reader
	seeker io.Seeker // nil: it cannot be rewound
	start  int64
	read   bool // a part of it was, since it stood at its start
}

func newSource(r io.Reader) *source {
	src := &source{r: r}
	if seeker, ok := r.(io.Seeker); ok {
		// A pipe is an io.Seeker too, one that fails.
		if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			src.seeker, src.start = seeker, start
		}
	}
	return src
}

// rewind goes back to the start, and reports whether the next attempt would read
// all of the stream.
func (src *source) rewind() bool {
	if !src.read {
		return true
	}
	if src.seeker == nil {
		return false
	}
	if _, err := src.seeker.Seek(src.start, io.SeekStart); err != nil {
		return false
	}
	src.read = false
	return true
}

// turn is the source as one attempt sees it. The transport of a remote may read on
// for a moment in a goroutine of its own when the attempt has ended: such a read
// must not take bytes from the next attempt, which would store what is left and
// call that success.
type turn struct {
	src     *source
	attempt *attempt

	mu      sync.Mutex
	ended   bool  // guarded by mu
	reading bool  // guarded by mu
	failure error // guarded by mu; of the source
}

var errEnded = errors.New("the attempt that this stream was for has ended")

func (t *turn) Read(p []byte) (int, error) {
	t.mu.Lock()
	ended := t.ended
	t.reading = !ended
	t.mu.Unlock()
	if ended {
		return 0, errEnded
	}
	n, err := t.src.r.Read(p)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = false
	if t.ended {
		return 0, errEnded // what was read is lost: end said so
	}
	t.src.read = t.src.read || n > 0 || err == io.EOF
	if err != nil && err != io.EOF {
		t.failure = err
	}
	t.attempt.moved()
	return n, err
}

// end lets nothing be read any more. It reports whether no read is under way, and
// the error with which the source failed.
func (t *turn) end() (over bool, failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return !t.reading, t.failure
}

// Walk yields the blobs of the store below.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		err := s.do(ctx, call{what: "listing blobs"}, func(a *attempt) error {
			begun := false
			for info, err := range blobstore.Walk(a.ctx, s.inner) {
				if err != nil && info.Ref.IsZero() && !begun {
					return err
				}
				if !begun {
					begun = true
					// The rest is the caller's time as well.
					a.stopClock()
					s.breaker.leave(a.ticket, answered)
				}
				if !yield(info, err) {
					break
				}
			}
			return nil
		})
		if err != nil {
			yield(blobstore.Info{}, err)
		}
	}
}
