package kv

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/agentrun/agentrun/kv/internal/envelope"
)

// Stream brings whole messages to the other side and back. One goroutine may call
// Recv and another Send at the same time; Close may be called by any, repeatedly, and
// makes both return.
type Stream interface {
	// Recv returns the next message, valid until the next call; io.EOF when the other
	// side has ended its part; a *TooLargeError for a message over the stream's
	// limit, after which it may be called again.
	Recv() ([]byte, error)

	// Send sends the messages of a batch, each behind an envelope (see Messages),
	// and has them on their way when it returns: one flush a batch. It does not keep
	// the batch.
	Send(batch []byte) error

	// Close ends the stream.
	Close() error
}

// TooLargeError is a message over the limit of a stream, which was passed by.
type TooLargeError = envelope.TooLargeError

// Messages yields the messages of a batch.
func Messages(batch []byte) iter.Seq[[]byte] { return envelope.Split(batch) }

// AppendMessage appends a message to a batch.
func AppendMessage(batch, message []byte) []byte {
	return append(envelope.AppendHeader(batch, 0, len(message)), message...)
}

const (
	// DefaultMaxBlob is the largest blob that goes over a stream unless told
	// otherwise, in bytes.
	DefaultMaxBlob = 64 << 20

	// overhead is what a message may hold beside a blob.
	overhead = 64 << 10
)

// MaxMessage returns the largest message that a stream has to let pass for blobs of
// up to maxBlob bytes; 0 means DefaultMaxBlob.
func MaxMessage(maxBlob int) int {
	if maxBlob <= 0 {
		maxBlob = DefaultMaxBlob
	}
	return maxBlob + overhead
}

// pipes is a Stream over a reader and a writer.
type pipes struct {
	in    *envelope.Reader
	out   io.Writer
	close func() error
}

// NewStream returns a Stream over a pair of pipes, such as standard input and output:
// the messages in the envelopes of gRPC and Connect, without compression. Messages of
// more than maxMessage bytes are not taken. close makes a blocked Read and Write
// return; nil is for pipes that end by themselves.
func NewStream(r io.Reader, w io.Writer, maxMessage int, close func() error) Stream {
	if close == nil {
		close = func() error { return nil }
	}
	return &pipes{in: envelope.NewReader(r, maxMessage), out: w, close: sync.OnceValue(close)}
}

// Pipe returns the two ends of a stream inside this process. What is sent blocks
// until the other end receives it.
func Pipe(maxMessage int) (a, b Stream) {
	aIn, bOut := io.Pipe()
	bIn, aOut := io.Pipe()
	end := func(r *io.PipeReader, w *io.PipeWriter) func() error {
		return func() error { return errors.Join(w.Close(), r.Close()) }
	}
	return NewStream(aIn, aOut, maxMessage, end(aIn, aOut)), NewStream(bIn, bOut, maxMessage, end(bIn, bOut))
}

func (p *pipes) Recv() ([]byte, error) {
	flags, message, err := p.in.Next()
	if err == nil && flags != 0 {
		return nil, fmt.Errorf("receiving a message: %w: flags %#x mean nothing on a pipe", ErrProtocol, flags)
	}
	return message, err
}

func (p *pipes) Send(batch []byte) error {
	_, err := p.out.Write(batch)
	return err
}

func (p *pipes) Close() error { return p.close() }
