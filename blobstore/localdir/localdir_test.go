package localdir_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

func open(t *testing.T, dir string, opts localdir.Options) *localdir.Store {
	t.Helper()
	s, err := localdir.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACorruptBlobIsMovedAsideAndHealedByTheNextPut(t *testing.T) {
	for _, sync := range []bool{false, true} {
		ctx := t.Context()
		dir := filepath.Join(t.TempDir(), "home", "blobs")
		s := open(t, dir, localdir.Options{Sync: sync})
		want := []byte("a screenshot")
		ref, err := blobstore.Put(ctx, s, want)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, ref.Hex())
		if err := os.WriteFile(path, []byte("a screenshoT"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, ref); !errors.Is(err, blobstore.ErrCorrupt) || got != nil {
			t.Fatalf("Get of a changed blob = %q, %v; want ErrCorrupt", got, err)
		}
		aside, err := os.ReadFile(filepath.Join(dir, ".corrupt", ref.Hex()))
		if err != nil || string(aside) != "a screenshoT" {
			t.Errorf(".corrupt holds %q, %v", aside, err)
		}
		if _, err := s.Get(ctx, ref); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("the second Get = %v, want ErrNotFound", err)
		}
		if err := s.Set(ctx, blobref.Of(want), want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, ref); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Get after healing = %q, %v", got, err)
		}
	}
}
