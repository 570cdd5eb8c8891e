package localdir_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
)

func TestNothingButARegularFileIsOpenedUnderABlobsName(t *testing.T) {
	tests := []struct {
		name  string
		kind  string
		plant func(path, outside string) error
	}{
		{"a symbolic link to the right bytes", "a symbolic link", func(path, outside string) error { return os.Symlink(outside, path) }},
		{"a symbolic link to nothing", "a symbolic link", func(path, outside string) error { return os.Symlink(outside+".absent", path) }},
		{"a FIFO", "a FIFO", func(path, _ string) error { return unix.Mkfifo(path, 0o600) }},
		{"a directory", "a directory", func(path, _ string) error { return os.Mkdir(path, 0o700) }},
	}
	for _, tt := range tests {
		for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
			t.Run(tt.name+"/"+mode.String(), func(t *testing.T) {
				ctx, base := t.Context(), t.TempDir()
				outside := filepath.Join(base, "outside")
				if err := os.WriteFile(outside, blobData, 0o600); err != nil {
					t.Fatal(err)
				}
				s := open(t, filepath.Join(base, "store"), localdir.Options{Mode: mode})
				if err := s.Set(ctx, otherName, otherData); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(s.Dir(), blobName.Hex())
				if err := tt.plant(path, outside); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}

				_, getErr := s.Get(ctx, blobName)
				_, openErr := s.Open(ctx, blobName)
				_, rangeErr := s.GetRange(ctx, blobName, 0, 1)
				_, statErr := s.Stat(ctx, blobName)
				_, _, putErr := s.Put(ctx, bytes.NewReader(blobData))
				for call, err := range map[string]error{
					"Get": getErr, "Open": openErr, "GetRange": rangeErr, "Stat": statErr, "Put": putErr,
					"Set": s.Set(ctx, blobName, blobData), "Delete": s.Delete(ctx, blobName),
				} {
					if err == nil || errors.Is(err, blobstore.ErrNotFound) || errors.Is(err, blobstore.ErrCorrupt) {
						t.Errorf("%s = %v; want a refusal", call, err)
						continue
					}
					if text := err.Error(); !strings.Contains(text, path) || !strings.Contains(text, tt.kind) || !strings.Contains(text, "remove it") {
						t.Errorf("%s says %q; want the file, that it is %s, and what to do", call, text, tt.kind)
					}
				}

				var listed, refused int
				for info, err := range s.Walk(ctx) {
					switch {
					case err == nil && info.Ref == otherName:
						listed++
					case err != nil && info.Ref == blobName:
						refused++
					default:
						t.Errorf("Walk yields %v, %v", info.Ref, err)
					}
				}
				if listed != 1 || refused != 1 {
					t.Errorf("Walk listed %d blobs and refused %d, want one each", listed, refused)
				}
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
					t.Errorf("what was planted is gone or replaced: %v", err)
				}
				if data, err := os.ReadFile(outside); err != nil || !bytes.Equal(data, blobData) {
					t.Errorf("the file outside changed: %d bytes, %v", len(data), err)
				}
				noTemporaries(t, base)
			})
		}
	}
}

func TestACorruptBlobIsNotMovedThroughAPlantedLink(t *testing.T) {
	for name, obstruct := range map[string]func(dir, outside string) error{
		"the directory is a link": func(dir, outside string) error { return os.Symlink(outside, filepath.Join(dir, ".corrupt")) },
		"the directory is a file": func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, ".corrupt"), nil, 0o600) },
		"the lock is a link": func(dir, outside string) error {
			if err := os.Mkdir(filepath.Join(dir, ".corrupt"), 0o700); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(outside, "lock"), filepath.Join(dir, ".corrupt", ".lock"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
			plant(t, s, blobName, damage)
			if err := obstruct(s.Dir(), outside); err != nil {
				t.Fatal(err)
			}
			got, err := s.Get(t.Context(), blobName)
			if !errors.Is(err, blobstore.ErrCorrupt) || got != nil || !strings.Contains(err.Error(), "could not be moved aside") {
				t.Errorf("Get = %q, %v; want ErrCorrupt, not moved", got, err)
			}
			if err := s.Set(t.Context(), blobName, blobData); !errors.Is(err, blobstore.ErrCorrupt) {
				t.Errorf("Set = %v, want ErrCorrupt", err)
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("something was written through the link: %v, %v", entries, err)
			}
			if now, err := os.ReadFile(filepath.Join(s.Dir(), blobName.Hex())); err != nil || !bytes.Equal(now, damage) {
				t.Errorf("the damaged blob is %q, %v", now, err)
			}
		})
	}
}

// readOnly is a disk mounted read-only.
type readOnly struct{ durable.FS }

func (r readOnly) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC) != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EROFS}
	}
	return r.FS.OpenFile(name, flag, perm)
}

func (readOnly) Mkdir(name string, _ fs.FileMode) error {
	return &fs.PathError{Op: "mkdir", Path: name, Err: unix.EROFS}
}

func (readOnly) Rename(_, name string) error {
	return &fs.PathError{Op: "rename", Path: name, Err: unix.EROFS}
}

func (readOnly) RenameNoReplace(_, name string) error {
	return &fs.PathError{Op: "rename", Path: name, Err: unix.EROFS}
}

func (readOnly) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: unix.EROFS}
}

func TestAReadOnlyHomeIsReadAndItsDamageReported(t *testing.T) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "blobs")
	writable := open(t, dir, localdir.Options{})
	if err := writable.Set(ctx, otherName, otherData); err != nil {
		t.Fatal(err)
	}
	plant(t, writable, blobName, damage)

	s := open(t, dir, localdir.Options{FS: readOnly{durable.OS}, Sync: true})
	if got, err := s.Get(ctx, otherName); err != nil || !bytes.Equal(got, otherData) {
		t.Errorf("Get = %q, %v", got, err)
	}
	for range 2 {
		if got, err := s.Get(ctx, blobName); !errors.Is(err, blobstore.ErrCorrupt) || got != nil {
			t.Errorf("Get of a corrupt blob = %q, %v; want ErrCorrupt", got, err)
		}
	}
	if err := s.Set(ctx, otherName, otherData); err != nil {
		t.Errorf("Set of bytes that are there: %v", err)
	}
	if err := s.Set(ctx, bigName, bigData); !errors.Is(err, unix.EROFS) {
		t.Errorf("Set of a new blob = %v, want EROFS", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the read-only home holds %v, %v", entries, err)
	}
}

func TestABlobTooLargeForMemoryCanBeStreamed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{MaxGetBytes: 1000})
	if err := s.Set(t.Context(), bigName, bigData); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), bigName); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("Get = %v, want ErrTooLarge", err)
	}
	if _, err := s.GetRange(t.Context(), bigName, 0, 1001); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("GetRange = %v, want ErrTooLarge", err)
	}
	if got, err := s.GetRange(t.Context(), bigName, 10, 1000); err != nil || !bytes.Equal(got, bigData[10:1010]) {
		t.Errorf("GetRange within the limit = %d bytes, %v", len(got), err)
	}
	b, err := s.Open(t.Context(), bigName)
	if err != nil {
		t.Fatal(err)
	}
	if b.Size() != int64(len(bigData)) {
		t.Errorf("Size() = %d, want %d", b.Size(), len(bigData))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFileIsNoBlobDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := localdir.Open(path, localdir.Options{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Open of a file = %v, want an error that names it", err)
	}
	if _, err := localdir.Open(filepath.Join(path, "below"), localdir.Options{}); err == nil {
		t.Error("Open below a file succeeded")
	}
}
