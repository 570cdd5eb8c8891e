package diskkv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

func TestKeysOfAnotherProgramInUpperCaseAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.vscdb")
	upper, lower, both, mixed := []byte("upper"), []byte("lower"), []byte("both"), []byte("mixed")
	foreign(t, path, []foreignRow{{ref: blobref.Of(lower), value: lower}, {ref: blobref.Of(both), value: both}})
	for key, value := range map[string][]byte{
		strings.ToUpper(blobref.Of(upper).Hex()):                                     upper,
		strings.ToUpper(blobref.Of(both).Hex()):                                      []byte("what is older"),
		strings.ToUpper(blobref.Of(mixed).Hex()[:32]) + blobref.Of(mixed).Hex()[32:]: mixed,
	} {
		if err := execute(t, path, "INSERT INTO cursorDiskKV VALUES(?, ?)", "agentKv:blob:"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path, diskkv.Options{})
	for _, data := range [][]byte{upper, lower, both} {
		ref := blobref.Of(data)
		if got, err := s.Get(t.Context(), ref); err != nil || string(got) != string(data) {
			t.Errorf("%s: Get = %q, %v", data, got, err)
		}
		if info, err := s.Stat(t.Context(), ref); err != nil || info.Size != int64(len(data)) {
			t.Errorf("%s: Stat = %+v, %v", data, info, err)
		}
	}
	listed := map[blobref.Ref]int{}
	for info, err := range s.Walk(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		listed[info.Ref]++
	}
	for _, data := range [][]byte{upper, lower, both} {
		if n := listed[blobref.Of(data)]; n != 1 || len(listed) != 3 {
			t.Errorf("%s is listed %d times, of %d blobs", data, n, len(listed))
		}
	}
	for finding, err := range s.Verify(t.Context()) {
		t.Errorf("Verify finds %+v, %v", finding, err)
	}
}

func TestAnEmptyFileIsADatabaseThatWasBegun(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		path := filepath.Join(t.TempDir(), "state.vscdb")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, path, diskkv.Options{Mode: mode})
		ref := blobref.Of([]byte("blob"))
		if _, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Get = %v, want ErrNotFound", err)
		}
		reading := open(t, path, diskkv.Options{Mode: mode, ReadOnly: true})
		if err := reading.Set(t.Context(), ref, []byte("blob")); !isReadOnly(err) {
			t.Errorf("Set of a store that reads = %v, want ErrReadOnly", err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != 0 {
			t.Errorf("reading changed the file: %v, %v", info, err)
		}
		if err := s.Set(t.Context(), ref, []byte("blob")); err != nil {
			t.Fatal(err)
		}
		if got, err := reading.Get(t.Context(), ref); err != nil || string(got) != "blob" {
			t.Errorf("Get by another = %q, %v", got, err)
		}
		// Whoever had begun it has that very file.
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("another file took its place: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, path, diskkv.Options{Mode: mode})
		if got, err := again.Get(t.Context(), ref); err != nil || string(got) != "blob" || again.ReadOnly() {
			t.Errorf("Get after it was closed = %q, %v", got, err)
		}
	}
}

func TestAnEmptyFileThatItsProgramFillsMeanwhileIsThatPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.vscdb")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, diskkv.Options{})
	theirs := []byte("theirs")
	foreign(t, path, []foreignRow{{ref: blobref.Of(theirs), value: theirs}})
	if err := s.Set(t.Context(), blobref.Of(nil), nil); !isReadOnly(err) {
		t.Errorf("Set = %v, want ErrReadOnly", err)
	}
	if got, err := s.Get(t.Context(), blobref.Of(theirs)); err != nil || string(got) != "theirs" {
		t.Errorf("Get = %q, %v", got, err)
	}
}
