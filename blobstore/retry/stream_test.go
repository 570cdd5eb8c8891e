package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
)

func TestAStreamIsStoredAgainFromWhereItsReaderStood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := below(t)
		inner.Plan(faultstore.First(2, faultstore.Fault{Cut: faultstore.ErrInjected}))
		s := retry.New(inner, retry.Policy{})
		r := strings.NewReader("not this, this")
		if _, err := r.Seek(10, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		ref, n, err := s.Put(t.Context(), r)
		if err != nil || ref != blobref.Of([]byte("this")) || n != 4 {
			t.Errorf("Put = %v, %d, %v", ref, n, err)
		}
		wantAsked(t, inner, 3)
	})
}

func TestAStreamUnderAGivenIdIsStoredAgainToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &flakySetStream{Store: memory.New(blobstore.Opaque), failures: 2}
		id := blobref.Of([]byte("id"))
		s := retry.New(inner, retry.Policy{})
		if err := s.SetStream(t.Context(), id, strings.NewReader("ciphertext"), 10); err != nil {
			t.Fatal(err)
		}
		if data, err := s.Get(t.Context(), id); err != nil || string(data) != "ciphertext" {
			t.Errorf("Get = %q, %v", data, err)
		}
		if inner.failures != 0 {
			t.Errorf("%d more failures were to come", inner.failures)
		}
	})
}

// flakySetStream reads a part of a stream and fails, a few times.
type flakySetStream struct {
	*memory.Store
	failures int
}

func (s *flakySetStream) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	if s.failures > 0 {
		s.failures--
		_, _ = io.CopyN(io.Discard, r, size/2)
		return faultstore.ErrInjected
	}
	return s.Store.SetStream(ctx, ref, r, size)
}

// pipe reads like a pipe: without a way back.
type pipe struct{ io.Reader }

// falsePipe says that it can seek, as an *os.File of a pipe does, and cannot.
type falsePipe struct{ io.Reader }

func (falsePipe) Seek(int64, int) (int64, error) { return 0, errors.New("illegal seek") }

func TestAStreamThatCannotBeRewoundIsStoredOnce(t *testing.T) {
	for _, r := range []io.Reader{pipe{strings.NewReader("bytes")}, falsePipe{strings.NewReader("bytes")}} {
		synctest.Test(t, func(t *testing.T) {
			inner, _ := below(t)
			inner.Plan(faultstore.First(1, faultstore.Fault{After: faultstore.ErrInjected}))
			_, _, err := retry.New(inner, retry.Policy{}).Put(t.Context(), r)
			if !errors.Is(err, blobstore.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be rewound") {
				t.Errorf("%T: Put = %v, want what happened and why it is not tried again", r, err)
			}
			wantAsked(t, inner, 1)
		})
	}
}

func TestAStreamOfWhichNothingWasReadIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		inner.Plan(faultstore.First(2, faultstore.Fault{Before: faultstore.ErrInjected}))
		got, _, err := retry.New(inner, retry.Policy{}).Put(t.Context(), pipe{strings.NewReader("bytes")})
		if err != nil || got != ref {
			t.Errorf("Put = %v, %v", got, err)
		}
		wantAsked(t, inner, 3)
	})
}

func TestAStreamThatFailsItselfIsNoFailureOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := below(t)
		inner.Plan(nil)
		// It may itself come from a store that cannot be reached.
		cause := &blobstore.UnavailableError{Err: errors.New("the other store is away")}
		s := retry.New(inner, retry.Policy{})
		_, _, err := s.Put(t.Context(), io.MultiReader(strings.NewReader("bytes"), iotest.ErrReader(cause)))
		if !errors.Is(err, cause) {
			t.Errorf("Put = %v, want %v", err, cause)
		}
		wantAsked(t, inner, 1)
		wantState(t, s, retry.Closed, 0)
	})
}

// slow yields a byte a time.
type slow struct {
	left int
	each time.Duration
}

func (r *slow) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(r.each)
	r.left--
	p[0] = 'x'
	return 1, nil
}

func TestAStreamMayTakeLongAsLongAsItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := below(t)
		s := retry.New(inner, retry.Policy{AttemptTimeout: 10 * time.Second, Timeout: 20 * time.Second})
		ref, _, err := s.Put(t.Context(), &slow{left: 1000, each: 9 * time.Second})
		if err != nil || ref != blobref.Of(bytes.Repeat([]byte("x"), 1000)) {
			t.Errorf("Put = %v, %v", ref, err)
		}
		// A store that takes no more of it is asked again.
		inner.Plan(faultstore.First(1, faultstore.Fault{Hold: make(chan struct{})}))
		began := time.Now()
		if _, _, err := s.Put(t.Context(), strings.NewReader("bytes")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it was asked again after %v, want 10s", took)
		}
	})
}

// lingering is a remote whose transport goes on to read a stream for a moment when
// the attempt has failed.
type lingering struct {
	blobstore.Store
	attempts int
	linger   chan struct{}
	readOn   func(r io.Reader)
}

func (s *lingering) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	if s.attempts++; s.attempts == 1 {
		_, _ = r.Read(make([]byte, 1))
		go func() {
			<-s.linger
			s.readOn(r)
		}()
		return blobref.Ref{}, 0, faultstore.ErrInjected
	}
	close(s.linger)
	synctest.Wait() // the other one reads first
	return s.Store.(blobstore.Putter).Put(ctx, r)
}

func TestAnAttemptThatEndedTakesNothingFromTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken int
		var got error
		inner := &lingering{Store: memory.New(blobstore.Verified), linger: make(chan struct{}), readOn: func(r io.Reader) {
			taken, got = r.Read(make([]byte, 3))
		}}
		ref, n, err := retry.New(inner, retry.Policy{}).Put(t.Context(), strings.NewReader("all of it"))
		if err != nil || n != 9 || ref != blobref.Of([]byte("all of it")) {
			t.Errorf("Put = %v, %d, %v; want all of it stored", ref, n, err)
		}
		if taken != 0 || got == nil || got == io.EOF {
			t.Errorf("the attempt before read %d bytes and %v, want an error", taken, got)
		}
	})
}

func TestAStreamThatIsStillBeingReadIsNotStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		attempts := 0
		inner := putFunc(func(_ context.Context, r io.Reader) (blobref.Ref, int64, error) {
			attempts++
			go func() { _, _ = r.Read(make([]byte, 1)) }()
			synctest.Wait()
			return blobref.Ref{}, 0, faultstore.ErrInjected
		})
		_, _, err := retry.New(inner, retry.Policy{}).Put(t.Context(), r)
		if !errors.Is(err, blobstore.ErrUnavailable) || !strings.Contains(err.Error(), "still being read") || attempts != 1 {
			t.Errorf("Put = %v after %d attempts", err, attempts)
		}
		w.Close()
	})
}

// putFunc is a store of which a test uses Put alone.
type putFunc func(context.Context, io.Reader) (blobref.Ref, int64, error)

var errOnlyPut = errors.New("only Put is there")

func (putFunc) Get(context.Context, blobref.Ref) ([]byte, error) { return nil, errOnlyPut }

func (putFunc) Set(context.Context, blobref.Ref, []byte) error { return errOnlyPut }

func (putFunc) SetLocal(context.Context, blobref.Ref, []byte) error { return errOnlyPut }

func (putFunc) Flush(context.Context) error { return errOnlyPut }

func (f putFunc) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) { return f(ctx, r) }

// onDemand is a remote whose open blobs read with the context of Open.
type onDemand struct{ blobstore.Store }

type blobOnDemand struct {
	blobstore.Blob
	ctx context.Context
}

func (s onDemand) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	b, err := blobstore.Open(ctx, s.Store, ref)
	return blobOnDemand{b, ctx}, err
}

func (b blobOnDemand) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading: %w", err)
	}
	return b.Blob.Read(p)
}

func TestAnOpenBlobIsReadableUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, ref := below(t)
		s := retry.New(onDemand{inner}, retry.Policy{})
		b, err := s.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		data, err := io.ReadAll(b)
		if err != nil || string(data) != "bytes" {
			t.Errorf("read %q, %v after an hour", data, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("Read after Close = %v; the context of Open lives on", err)
		}
	})
}

func TestAFileIsRewound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data := bytes.Repeat([]byte("bytes of a file "), 10_000)
		if _, err := f.Write(data); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		inner, _ := below(t)
		inner.Plan(faultstore.First(2, faultstore.Fault{After: faultstore.ErrInjected}))
		ref, n, err := retry.New(inner, retry.Policy{}).Put(t.Context(), f)
		if err != nil || ref != blobref.Of(data) || n != int64(len(data)) {
			t.Errorf("Put = %v, %d, %v", ref, n, err)
		}
	})
}
