package blobstore

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable means that a store could not answer now and may later: the
// network failed, or a server is overloaded or has no room. Whether a call that
// changes something has changed it is not known; asking again does no harm. Layer
// retry asks again after such errors, and after no others.
var ErrUnavailable = errors.New("blob store cannot be reached now")

// UnavailableError is an error that matches ErrUnavailable, with its cause.
type UnavailableError struct {
	Err error // what happened; not nil

	// After is how long the server asked to be left alone; 0 when it did not say.
	After time.Duration
}

func (e *UnavailableError) Error() string {
	if e.After > 0 {
		return fmt.Sprintf("%v; the store asks to wait %v: %v", ErrUnavailable, e.After.Round(time.Millisecond), e.Err)
	}
	return fmt.Sprintf("%v: %v", ErrUnavailable, e.Err)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Is reports that the error matches ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// RetryAfter returns how long a store that cannot be reached asked to be left
// alone; 0 when it did not say, or when err is another one.
func RetryAfter(err error) time.Duration {
	var e *UnavailableError
	if errors.As(err, &e) {
		return max(e.After, 0)
	}
	return 0
}
