package writethrough_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

func TestOpaqueBytesThatStayHereDoNotReplaceThoseThatAreQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, ref := memory.New(blobstore.Opaque), blobref.Of([]byte("id"))
		remote := faultstore.New(arrived)
		remote.Plan(offline)
		s := open(t, memory.New(blobstore.Opaque), remote, t.TempDir(), writethrough.Options{})
		want := func(where string, store blobstore.Store, bytes string) {
			t.Helper()
			if got, err := store.Get(t.Context(), ref); err != nil || string(got) != bytes {
				t.Errorf("%s has %q, %v; want %q", where, got, err, bytes)
			}
		}
		if err := s.Set(t.Context(), ref, []byte("for both")); err != nil {
			t.Fatal(err)
		}
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.SetLocal(hour, ref, []byte("for here")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetLocal without a network = %v", err)
		}
		want("the store", s, "for both")
		remote.Plan(nil)
		if err := s.SetLocal(t.Context(), ref, []byte("for here")); err != nil {
			t.Fatal(err)
		}
		flush(t, s)
		want("the remote", arrived, "for both")
		want("the store", s, "for here")

		// What cannot go is not waited for.
		remote.Plan(faultstore.Always(faultstore.Fault{Before: blobstore.ErrTooLarge}, faultstore.Set))
		if err := s.Set(t.Context(), ref, []byte("too much")); err != nil {
			t.Fatal(err)
		}
		var undelivered *writethrough.UndeliveredError
		if err := s.SetLocal(t.Context(), ref, []byte("for here")); !errors.As(err, &undelivered) || !errors.Is(err, blobstore.ErrTooLarge) {
			t.Errorf("SetLocal of a blob that cannot go = %v", err)
		}
		want("the store", s, "too much")
	})
}
