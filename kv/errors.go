package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/quantity"
)

var (
	// ErrClosed means that the Remote was closed, or that its stream ended and there
	// is no way to another one.
	ErrClosed = errors.New("the stream to the other side is closed")

	// ErrTimeout means that no answer came in the time that the options give. What
	// was to be stored may have been stored. It comes with blobstore.ErrUnavailable.
	ErrTimeout = errors.New("the other side did not answer in time")

	// ErrRefused means that the other side will not speak with us, however often it
	// is dialled: a wrong token, a wrong certificate, no such service. A dialling
	// function wraps it, so that calls fail at once instead of waiting.
	ErrRefused = errors.New("the other side refuses the connection")

	// ErrProtocol means that the other side does not keep to the protocol.
	ErrProtocol = errors.New("the other side does not speak agent.v1")

	// ErrStalled means that the other side reads nothing: what was to be sent to it
	// could not be sent in the time that the options give.
	ErrStalled = errors.New("the other side takes no messages")
)

// tooLarge is the error about a blob of n bytes.
func tooLarge(n, limit int) error {
	return fmt.Errorf("%w: it has %s (%d bytes), and this stream takes %s a blob at most",
		blobstore.ErrTooLarge, quantity.Bytes(int64(n)), n, quantity.Size(int64(limit)))
}

// PeerError is what the other side says about a request that failed. It matches the
// errors of package blobstore by which an agentrun on the other side
// failed; other peers send text alone.
type PeerError struct {
	Message string // of the other side, up to 1 KiB

	code code
}

func (e *PeerError) Error() string { return "the other side says: " + e.Message }

// Is finds the error that the other side met.
func (e *PeerError) Is(target error) bool {
	return e.code < code(len(coded)) && coded[e.code] != nil && coded[e.code] == target
}

// code is an error's place in coded: part of the format, never reused.
type code uint64

const unavailable code = 10

// coded lists the errors that cross the stream.
var coded = [...]error{
	1: blobstore.ErrCorrupt,
	2: blobstore.ErrMismatch,
	3: blobstore.ErrTooLarge,
	4: blobstore.ErrReadOnly,
	5: blobstore.ErrQueueFull,
	6: blobstore.ErrMode,
	7: blobstore.ErrNotLocal,
	8: blobstore.ErrUnsupported,
	9: blobref.ErrInvalid,

	unavailable: blobstore.ErrUnavailable,
	11:          ErrProtocol,
}

// peerError describes err to the other side.
func peerError(err error) *PeerError {
	e := &PeerError{Message: errorText(err.Error())}
	if e.Message == "" {
		e.Message = "failed without a reason" // an empty text would be no error at all to some peers
	}
	for c, known := range coded {
		if known != nil && errors.Is(err, known) {
			e.code = code(c)
			return e
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e.code = unavailable
	}
	return e
}
