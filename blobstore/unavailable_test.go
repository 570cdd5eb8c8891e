package blobstore_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobstore"
)

func TestAnUnavailableStoreIsToldFromItsCause(t *testing.T) {
	err := fmt.Errorf("getting x: %w", &blobstore.UnavailableError{Err: io.ErrUnexpectedEOF, After: 3 * time.Second})
	if !errors.Is(err, blobstore.ErrUnavailable) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v matches not both ErrUnavailable and its cause", err)
	}
	if errors.Is(err, blobstore.ErrNotFound) || errors.Is(io.EOF, blobstore.ErrUnavailable) {
		t.Error("another error is matched")
	}
	if got := blobstore.RetryAfter(err); got != 3*time.Second {
		t.Errorf("RetryAfter = %v, want 3s", got)
	}
	if got := blobstore.RetryAfter(io.EOF); got != 0 {
		t.Errorf("RetryAfter of another error = %v, want 0", got)
	}
}
