// Package envelope reads and writes the envelopes in which gRPC and Connect put
// each message of a stream:
//
//	byte 0     flags: 1 the message is compressed, 2 it ends a Connect stream
//	bytes 1-4  length of the message, big endian
//	then       the message
//
// (gRPC over HTTP2, "Length-Prefixed-Message"; Connect protocol,
// "Enveloped-Message".) What is read comes from a peer and is not trusted: a length
// costs memory only as far as its bytes arrive, and a message over the limit is
// passed by without being held.
package envelope

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/agentrun/agentrun/internal/quantity"
)

const (
	// HeaderLen is the length of what stands before each message.
	HeaderLen = 5

	// Compressed marks a message that is compressed.
	Compressed = 1

	// EndStream marks the last message of a Connect stream, which is JSON.
	EndStream = 2

	// headLen is how much of a message over the limit is kept: enough for the number
	// of the request, which real peers write first.
	headLen = 64

	bufferLen = 64 << 10
	growth    = 1 << 20 // a large message is held in steps, as its bytes arrive
)

// AppendHeader appends the header of a message of n bytes.
func AppendHeader(buf []byte, flags byte, n int) []byte {
	buf = append(buf, flags)
	return binary.BigEndian.AppendUint32(buf, uint32(n))
}

// Split yields the messages of a batch that AppendHeader began: no peer's bytes.
// Their flags are left out.
func Split(batch []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(batch) >= HeaderLen {
			n := int(binary.BigEndian.Uint32(batch[1:HeaderLen]))
			if !yield(batch[HeaderLen : HeaderLen+n]) {
				return
			}
			batch = batch[HeaderLen+n:]
		}
	}
}

// TooLargeError is a message over the limit. It was passed by; the stream goes on.
type TooLargeError struct {
	Size  uint32 // bytes, as the envelope says
	Limit int    // bytes
	Head  []byte // how the message begins
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("a message of %s (%d bytes) is over the limit of %s",
		quantity.Bytes(int64(e.Size)), e.Size, quantity.Size(int64(e.Limit)))
}

// ErrFlags means that an envelope has flags that no protocol here knows: what
// follows cannot be read.
var ErrFlags = errors.New("envelope with unknown flags")

// Reader reads envelopes. Not for concurrent use.
type Reader struct {
	r     *bufio.Reader
	limit int
	held  int    // bytes of the last message, still in r
	large []byte // a message that r cannot hold; reused while it is small
}

// NewReader returns a reader of messages of up to limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, bufferLen), limit: limit}
}

// Next returns the flags and the bytes of the next message, which are valid until
// the call after. It returns io.EOF between two messages, io.ErrUnexpectedEOF
// inside one, and a *TooLargeError for a message over the limit, after which it may
// be called again.
func (r *Reader) Next() (flags byte, message []byte, err error) {
	if _, err := r.r.Discard(r.held); err != nil {
		return 0, nil, err
	}
	r.held = 0
	header, err := r.r.Peek(HeaderLen)
	if err != nil {
		if errors.Is(err, io.EOF) && len(header) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	flags = header[0]
	size := binary.BigEndian.Uint32(header[1:])
	if flags&^(Compressed|EndStream) != 0 {
		return 0, nil, fmt.Errorf("%w: %#x", ErrFlags, flags)
	}
	if _, err := r.r.Discard(HeaderLen); err != nil {
		return 0, nil, err
	}
	switch {
	case int64(size) > int64(r.limit):
		return flags, nil, r.pass(size)
	case size <= bufferLen:
		message, err = r.r.Peek(int(size))
		if err != nil {
			return 0, nil, inside(err)
		}
		r.held = int(size)
		return flags, message, nil
	}
	message, err = r.read(int(size))
	return flags, message, err
}

// pass skips a message over the limit. What it returns is an error of the message
// unless the stream broke.
func (r *Reader) pass(size uint32) error {
	head := make([]byte, min(headLen, size))
	if _, err := io.ReadFull(r.r, head); err != nil {
		return inside(err)
	}
	if _, err := io.CopyN(io.Discard, r.r, int64(size)-int64(len(head))); err != nil {
		return inside(err)
	}
	return &TooLargeError{Size: size, Limit: r.limit, Head: head}
}

func (r *Reader) read(size int) ([]byte, error) {
	buf := r.large[:0]
	if cap(buf) > growth {
		buf, r.large = nil, nil // one large message shall not be paid for by all that follow
	}
	for len(buf) < size {
		have := len(buf)
		// Doubling what has arrived, so that a length alone holds no more than a step.
		next := min(size, max(2*have, growth))
		if cap(buf) < next {
			grown := make([]byte, have, next)
			copy(grown, buf)
			buf = grown
		}
		buf = buf[:next]
		if _, err := io.ReadFull(r.r, buf[have:]); err != nil {
			return nil, inside(err)
		}
	}
	r.large = buf
	return buf, nil
}

func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
