package writethrough_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

func TestHealingReplacesNothingThatTheRemoteDoesNotHaveYet(t *testing.T) {
	local, remote := memory.New(blobstore.Opaque), faultstore.New(memory.New(blobstore.Opaque))
	s := open(t, local, remote, filepath.Join(t.TempDir(), "queue"), writethrough.Options{})
	id := blobref.Of([]byte("id"))
	if err := errors.Join(s.Set(t.Context(), id, []byte("old")), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	remote.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}, faultstore.Set))
	if err := s.Set(t.Context(), id, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := s.Heal(t.Context(), id); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Errorf("Heal = %v, want ErrCorrupt", err)
	}
	if got, err := s.Get(t.Context(), id); err != nil || string(got) != "new" {
		t.Errorf("Get = %q, %v; what was acknowledged is new", got, err)
	}

	remote.Plan(nil)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Heal(t.Context(), id); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Errorf("Heal of what is the same in both stores = %v, want ErrCorrupt", err)
	}
	if err := local.Set(t.Context(), id, []byte("n?w")); err != nil {
		t.Fatal(err)
	}
	if err := s.Heal(t.Context(), id); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(t.Context(), id); err != nil || string(got) != "new" {
		t.Errorf("Get = %q, %v; want what the remote has", got, err)
	}
	if err := s.Heal(t.Context(), blobref.Of([]byte("nowhere"))); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Heal of an absent blob = %v, want ErrNotFound", err)
	}
}
