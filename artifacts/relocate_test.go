package artifacts

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// arriving is a session whose log is at its new place already, and whose artifacts come
// when somebody waits for them.
type arriving struct{ from, to string }

func (a arriving) LocateArtifacts(_ context.Context, wait bool) (string, bool, error) {
	if !wait {
		return a.to, false, nil
	}
	return a.to, true, os.Rename(a.from, a.to)
}

func TestADirectoryThatIsBeingMovedIsWaitedForByWhoReads(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	f, err := Open(from, Options{}).Create(t.Context(), "bash", Provenance{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("all of it\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(to, Options{Where: arriving{from, to}}).Lookup(t.Context(), f.ID()); err != nil {
		t.Error(err)
	}
}
