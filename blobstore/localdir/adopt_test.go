package localdir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

func TestADirectoryThatAnotherProgramMadeIsAdoptedUnlessItsBlobsAreVerified(t *testing.T) {
	plain, other := []byte("plain"), []byte("no hash of this")
	for name, tt := range map[string]struct {
		files map[string][]byte
		adopt bool
		want  error
	}{
		"ciphertext":                  {map[string][]byte{blobref.Of(plain).Hex(): other, "index": plain}, true, nil},
		"ciphertext without leave":    {map[string][]byte{blobref.Of(plain).Hex(): other}, false, blobstore.ErrMode},
		"blobs that are verified":     {map[string][]byte{blobref.Of(plain).Hex(): plain}, true, blobstore.ErrMode},
		"nothing":                     {nil, true, nil},
		"one of them that is damaged": {map[string][]byte{blobref.Of(plain).Hex(): plain, blobref.Of(nil).Hex(): other}, true, blobstore.ErrMode},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, data := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := localdir.Open(dir, localdir.Options{Mode: blobstore.Opaque, Adopt: tt.adopt})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err != nil {
			continue
		}
		if err := s.Set(t.Context(), blobref.Of(nil), plain); err != nil {
			t.Errorf("%s: storing: %v", name, err)
		}
		if _, err := localdir.Open(dir, localdir.Options{}); !errors.Is(err, blobstore.ErrMode) {
			t.Errorf("%s: it is not marked afterwards: %v", name, err)
		}
	}
}
