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

// names returns what there is in dir and below it.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir {
			found = append(found, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// foreign is a directory that another program made, with bytes under the name of plain
// that only that program understands.
func foreign(t *testing.T, plain, sealed []byte) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, blobref.Of(plain).Hex())
	if err := os.WriteFile(file, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

func TestInADirectoryOfAnotherProgramNothingIsMovedAndNothingReplaced(t *testing.T) {
	plain, sealed := []byte("plain"), []byte("ciphertext in a form without a magic")
	ref := blobref.Of(plain)
	dir, file := foreign(t, plain, sealed)
	s := open(t, dir, localdir.Options{Adopt: true})
	for name, use := range map[string]func() error{
		"Get":      func() error { _, err := s.Get(t.Context(), ref); return err },
		"Open":     func() error { _, err := s.Open(t.Context(), ref); return err },
		"GetRange": func() error { _, err := s.GetRange(t.Context(), ref, 0, 1); return err },
		"Check":    func() error { _, err := s.Check(t.Context(), ref); return err },
	} {
		if err := use(); !errors.Is(err, blobstore.ErrCorrupt) || !errors.Is(err, blobstore.ErrEncrypted) || !strings.Contains(err.Error(), "?encrypted=passphrase-file:FILE") {
			t.Errorf("%s = %v; want ErrCorrupt and how ciphertext is read", name, err)
		}
	}
	for name, use := range map[string]func() error{
		"Set":      func() error { return s.Set(t.Context(), ref, plain) },
		"PutBytes": func() error { _, err := s.PutBytes(t.Context(), plain); return err },
		"Put":      func() error { _, _, err := s.Put(t.Context(), bytes.NewReader(plain)); return err },
	} {
		if err := use(); !errors.Is(err, blobstore.ErrMode) || !strings.Contains(err.Error(), "ciphertext") {
			t.Errorf("%s = %v; want ErrMode and what it may be", name, err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, sealed) {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %q", got)
	}
	if _, err := localdir.Open(dir, localdir.Options{Mode: blobstore.Opaque, Adopt: true}); err != nil {
		t.Errorf("it can no longer be opened as what it is: %v", err)
	}
}

func TestOneBlobThatDoesNotHashToItsNameAmongOthersThatDoIsDamage(t *testing.T) {
	dir, _ := foreign(t, []byte("plain"), []byte("damage"))
	if err := os.WriteFile(filepath.Join(dir, blobName.Hex()), blobData, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, localdir.Options{Adopt: true})
	_, got := s.Get(t.Context(), blobref.Of([]byte("plain")))
	_, checked := s.Check(t.Context(), blobref.Of([]byte("plain")))
	for _, err := range []error{got, checked} {
		if !errors.Is(err, blobstore.ErrCorrupt) || errors.Is(err, blobstore.ErrEncrypted) {
			t.Errorf("it is %v, want ErrCorrupt and not ErrEncrypted", err)
		}
	}
}

func TestADirectoryThatWasEmptyIsOursAndHealed(t *testing.T) {
	for _, sub := range []string{"", "new"} {
		dir := filepath.Join(t.TempDir(), sub)
		s := open(t, dir, localdir.Options{Adopt: true})
		if err := s.Set(t.Context(), blobName, blobData); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, localdir.Options{Adopt: true})
		plant(t, s, blobName, damage)
		if _, err := s.Get(t.Context(), blobName); !errors.Is(err, blobstore.ErrCorrupt) || !strings.Contains(err.Error(), "moved to") {
			t.Errorf("Get = %v; want ErrCorrupt and where it went", err)
		}
		plant(t, s, blobName, damage)
		if err := s.Set(t.Context(), blobName, blobData); err != nil {
			t.Errorf("healing it: %v", err)
		}
	}
}

func TestWhatIsRewrittenInPlaceInADirectoryOfAnotherProgramIsLookedAtTwice(t *testing.T) {
	dir, file := foreign(t, blobData, damage)
	fsys := &secondLook{FS: durable.OS, look: func() {
		if err := os.WriteFile(file, blobData, 0o600); err != nil {
			t.Error(err)
		}
	}}
	s := open(t, dir, localdir.Options{Adopt: true, FS: fsys})
	if got, err := s.Get(t.Context(), blobName); err != nil || !bytes.Equal(got, blobData) {
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
}

// secondLook calls look when the marks of a directory are looked for the second time: Open
// does it once, and a file that is wrong makes it look again.
type secondLook struct {
	durable.FS
	looks int
	look  func()
}

func (s *secondLook) Lstat(name string) (fs.FileInfo, error) {
	if filepath.Base(name) == ".agentrun-verified" {
		if s.looks++; s.looks == 2 {
			s.look()
		}
	}
	return s.FS.Lstat(name)
}

func TestACopyOfAnEncryptedStoreWithoutItsDotfileIsKnownByItsMarkerBlobs(t *testing.T) {
	dir := t.TempDir()
	marker := filepath.Join(dir, blobstore.EncryptionMarkers()[1].Hex())
	if err := os.WriteFile(marker, []byte(blobstore.EncryptedMagic+"{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := localdir.Open(dir, localdir.Options{Adopt: true})
	if !errors.Is(err, blobstore.ErrEncrypted) || !errors.Is(err, blobstore.ErrMode) || !strings.Contains(err.Error(), "?encrypted=passphrase-file:FILE") {
		t.Errorf("Open = %v; want ErrEncrypted and how it is opened", err)
	}
	// Its name alone says nothing: there is a text that hashes to it.
	if err := os.WriteFile(marker, []byte("agentrun: marker of a store of encrypted blobs, second copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, localdir.Options{Adopt: true})
	if _, err := s.Get(t.Context(), blobstore.EncryptionMarkers()[1]); err != nil {
		t.Errorf("Get of a blob with that name: %v", err)
	}
}

func TestPlaintextIsNotPutBesideWhatMayBeCiphertext(t *testing.T) {
	dir, file := foreign(t, []byte("plain"), []byte("ciphertext"))
	s := open(t, dir, localdir.Options{Adopt: true})
	large := bytes.Repeat([]byte("x"), 1<<20)
	if err := s.Set(t.Context(), blobName, blobData); !errors.Is(err, blobstore.ErrMode) || !strings.Contains(err.Error(), "ciphertext") {
		t.Errorf("Set = %v; want ErrMode and what it may be", err)
	}
	if _, _, err := s.Put(t.Context(), bytes.NewReader(large)); !errors.Is(err, blobstore.ErrMode) {
		t.Errorf("Put of a stream = %v; want ErrMode", err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %q", got)
	}
	// One blob that hashes to its name says that they do.
	if err := os.WriteFile(file, []byte("plain"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(t.Context(), blobName, blobData); err != nil {
		t.Errorf("Set beside a verified blob: %v", err)
	}
}
