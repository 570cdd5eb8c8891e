package localdir_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
)

func TestACorruptBlobIsKeptAsideAndHealedByTheNextPut(t *testing.T) {
	ctx := t.Context()
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	aside := filepath.Join(s.Dir(), ".corrupt", blobName.Hex())
	for _, bad := range [][]byte{damage, {}, blobData[:len(blobData)-1]} {
		plant(t, s, blobName, bad)
		got, err := s.Get(ctx, blobName)
		if !errors.Is(err, blobstore.ErrCorrupt) || got != nil || !strings.Contains(err.Error(), aside) {
			t.Fatalf("Get of %q = %q, %v; want ErrCorrupt and where the file went", bad, got, err)
		}
		if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, bad) {
			t.Errorf(".corrupt holds %q, %v; want %q", kept, err, bad)
		}
		if _, err := s.Get(ctx, blobName); !errors.Is(err, blobstore.ErrNotFound) || !strings.Contains(err.Error(), aside) {
			t.Errorf("the next Get = %v; want ErrNotFound and where the file went", err)
		}
		for info, err := range s.Walk(ctx) {
			t.Errorf("Walk yields %v, %v", info.Ref, err)
		}
		if err := s.Set(ctx, blobName, blobData); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, blobName); err != nil || !bytes.Equal(got, blobData) {
			t.Fatalf("Get after healing = %d bytes, %v", len(got), err)
		}
	}
}

// hooked calls before each Mkdir and Rename, as another program would act at
// that moment.
type hooked struct {
	durable.FS
	mkdir, rename func()
}

func (h *hooked) Mkdir(name string, perm fs.FileMode) error {
	if hook := h.mkdir; hook != nil {
		h.mkdir = nil
		hook()
	}
	return h.FS.Mkdir(name, perm)
}

func (h *hooked) Rename(oldpath, newpath string) error {
	if hook := h.rename; hook != nil {
		h.rename = nil
		hook()
	}
	return h.FS.Rename(oldpath, newpath)
}

func TestABlobThatIsBeingRewrittenInPlaceIsNotCalledCorrupt(t *testing.T) {
	fsys := &hooked{FS: durable.OS}
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{FS: fsys})
	for name, read := range map[string]func() ([]byte, error){
		"Get":      func() ([]byte, error) { return s.Get(t.Context(), blobName) },
		"GetRange": func() ([]byte, error) { return s.GetRange(t.Context(), blobName, 0, 1<<20) },
	} {
		plant(t, s, blobName, blobData[:100]) // truncated, and the write half done
		fsys.mkdir = func() { plant(t, s, blobName, blobData) }
		if got, err := read(); err != nil || !bytes.Equal(got, blobData) {
			t.Errorf("%s = %d bytes, %v", name, len(got), err)
		}
		if fsys.mkdir != nil {
			t.Error("the unfinished blob was not looked at twice")
		}
		if err := s.Delete(t.Context(), blobName); err != nil {
			t.Error(err)
		}
	}
}

func TestABlobThatWasCompletedAfterItWasMovedAsideIsTakenBack(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	plant(t, s, blobName, nil)
	other, err := os.OpenFile(filepath.Join(s.Dir(), blobName.Hex()), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := s.Get(t.Context(), blobName); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Fatalf("Get of a truncated blob = %v, want ErrCorrupt", err)
	}
	if _, err := other.Write(blobData); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), blobName); err != nil || !bytes.Equal(got, blobData) {
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
	if _, err := s.Stat(t.Context(), blobName); err != nil {
		t.Errorf("Stat: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(s.Dir(), ".corrupt", blobName.Hex())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is still kept as corrupt: %v", err)
	}
}

func TestAGoodBlobThatTookThePlaceOfACorruptOneGoesBack(t *testing.T) {
	fsys := &hooked{FS: durable.OS}
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{FS: fsys})
	plant(t, s, blobName, damage)
	path := filepath.Join(s.Dir(), blobName.Hex())
	fsys.rename = func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		plant(t, s, blobName, blobData)
	}
	if got, err := s.Get(t.Context(), blobName); err != nil || !bytes.Equal(got, blobData) {
		t.Errorf("Get = %q, %v", got, err)
	}
}

func TestABlobThatNeverStaysTheSameIsGivenUp(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	restless := &restlessFS{FS: durable.OS, path: filepath.Join(s.Dir(), blobName.Hex())}
	plant(t, s, blobName, damage)
	s = open(t, s.Dir(), localdir.Options{FS: restless})
	if got, err := s.Get(t.Context(), blobName); !errors.Is(err, blobstore.ErrCorrupt) || got != nil {
		t.Errorf("Get = %q, %v; want ErrCorrupt", got, err)
	}
	if restless.reads < 2 || restless.reads > 100 {
		t.Errorf("it was read %d times", restless.reads)
	}
}

// restlessFS puts a new damaged file under path each time it is about to be
// judged.
type restlessFS struct {
	durable.FS
	path  string
	reads int
}

func (r *restlessFS) Identify(name string) (durable.Identity, error) {
	if name == r.path {
		r.reads++
		next := r.path + ".next"
		if err := os.WriteFile(next, damage, 0o600); err != nil {
			return durable.Identity{}, err
		}
		if err := os.Rename(next, r.path); err != nil {
			return durable.Identity{}, err
		}
	}
	return r.FS.Identify(name)
}

func TestABlobUnderTheNameOfAnotherIsCorrupt(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	plant(t, s, blobName, otherData)
	if blobref.Of(otherData) == blobName {
		t.Fatal("the test's blobs are one")
	}
	if b, err := s.Open(t.Context(), blobName); !errors.Is(err, blobstore.ErrCorrupt) || b != nil {
		t.Errorf("Open = %v, %v; want ErrCorrupt", b, err)
	}
}
