package kv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/kv"
)

func TestCiphertextForAPeerThatVerifiesIsRefusedWithWhatItWouldTakeInstead(t *testing.T) {
	r, _ := pair(t, memory.New(blobstore.Verified), kv.ControlledOptions{}, kv.RemoteOptions{Mode: blobstore.Opaque})
	err := r.Set(t.Context(), blobref.Of([]byte("plain")), []byte("sealed"))
	if !errors.Is(err, blobstore.ErrMode) || !errors.Is(err, blobstore.ErrMismatch) || !strings.Contains(err.Error(), "serve an opaque store") {
		t.Errorf("Set = %v", err)
	}
}
