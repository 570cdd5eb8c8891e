package outputsink

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// LostError is returned by a [Live] reader for bytes of the stream that are not kept anywhere: there is no file, it
// ends before them, or its limit made it drop them.
type LostError struct {
	From, To int64 // offsets in the stream, From <= i < To
	err      error
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("bytes %d to %d of the output were not kept: %v", e.From, e.To-1, e.err)
}

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.err }

// Live reads the stream of a sink from its first byte, as the program wrote it, while it comes. It belongs to one
// goroutine and must be closed.
type Live struct {
	s      *Sink
	off    int64
	closed bool
}

// Live returns a reader at the beginning of the stream. Any number may be open. One that is made after Close reads
// only what needed no file.
func (s *Sink) Live() *Live {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs++
	return &Live{s: s}
}

// Read waits until there are bytes behind those already read. It returns io.EOF behind the last byte of a closed
// sink, ErrClosed when the reader itself is closed. After a [LostError] reading goes on behind what was lost.
func (l *Live) Read(p []byte) (int, error) { return l.ReadContext(context.Background(), p) }

// ReadContext is as Read and returns the context's error when that ends first.
func (l *Live) ReadContext(ctx context.Context, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, grown, err := l.read(p)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// read returns what is there, or else a channel that is closed when there is more.
func (l *Live) read(p []byte) (int, <-chan struct{}, error) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed {
		return 0, nil, ErrClosed
	}
	n, err := s.spool.readAt(p, l.off)
	l.off += int64(n)
	var lost *LostError
	switch {
	case errors.As(err, &lost):
		l.off = lost.To
	case n == 0 && err == nil && s.closed:
		err = io.EOF
	case n == 0 && err == nil && s.grown == nil:
		s.grown = make(chan struct{})
	}
	return n, s.grown, err
}

// ReadAt reads what has come so far; it never waits. At the end of that it returns io.EOF. The position of Read does
// not change.
func (l *Live) ReadAt(p []byte, off int64) (int, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	switch {
	case l.closed:
		return 0, ErrClosed
	case off < 0:
		return 0, fmt.Errorf("reading the output at byte %d: negative offset", off)
	}
	return readerAt(l.s.spool.readAt).ReadAt(p, off)
}

// Size returns how many bytes have come so far.
func (l *Live) Size() int64 {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.spool.size()
}

// Close ends the reader. It may be called again. The last reader that is closed after the sink closes the file.
func (l *Live) Close() error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if s.refs--; s.refs == 0 && s.closed {
		return s.spool.release()
	}
	return nil
}
