package localdir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func open(t *testing.T, dir string, opts localdir.Options) *localdir.Store {
	t.Helper()
	s, err := localdir.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verbs are the first words of the operations that fsys has counted.
func verbs(fsys *faultfs.FS) []string {
	var out []string
	for _, op := range fsys.Ops() {
		verb, _, _ := strings.Cut(op, " ")
		out = append(out, verb)
	}
	return out
}

func TestOpeningAndReadingMakeNothing(t *testing.T) {
	ctx, home := t.Context(), filepath.Join(t.TempDir(), "home")
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		s := open(t, filepath.Join(home, "store"), localdir.Options{Mode: mode, Sync: true})
		if _, err := s.Get(ctx, blobName); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Get = %v, want ErrNotFound", err)
		}
		if _, err := s.Stat(ctx, blobName); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Stat = %v, want ErrNotFound", err)
		}
		if err := s.Delete(ctx, blobName); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Delete = %v, want ErrNotFound", err)
		}
		for info, err := range s.Walk(ctx) {
			t.Errorf("Walk yields %v, %v", info, err)
		}
		if err := s.Set(ctx, blobref.Ref{}, blobData); err == nil {
			t.Error("Set under the zero Ref succeeded")
		}
		if n, err := s.Sweep(ctx, 0); n != 0 || err != nil {
			t.Errorf("Sweep = %d, %v", n, err)
		}
	}
	if _, err := os.Lstat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the home was made: %v", err)
	}
}

func TestABlobIsSyncedBeforeItHasItsNameAndTheDirectoryAfter(t *testing.T) {
	fsys := faultfs.New(durable.OS)
	s := open(t, filepath.Join(t.TempDir(), "home", "blobs"), localdir.Options{Sync: true, FS: fsys})
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"first", func() error { return s.Set(t.Context(), otherName, otherData) }, []string{
			"mkdir", "mkdir", "syncdir", "syncdir", "create", "write", "sync", "rename", "syncdir",
		}},
		{"next", func() error { return s.Set(t.Context(), blobName, blobData) }, []string{"create", "write", "sync", "rename", "syncdir"}},
		{"again", func() error { return s.Set(t.Context(), blobName, blobData) }, nil},
	} {
		fsys.FailAt(-1, nil) // forgets what was counted
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := verbs(fsys); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

func TestBytesThatAnotherLeftUnsyncedAreSyncedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	if err := open(t, dir, localdir.Options{}).Set(t.Context(), blobName, blobData); err != nil {
		t.Fatal(err)
	}
	fsys := faultfs.New(durable.OS)
	s := open(t, dir, localdir.Options{Sync: true, FS: fsys})
	for range 2 {
		if err := s.Set(t.Context(), blobName, blobData); err != nil {
			t.Fatal(err)
		}
		if got := verbs(fsys); !slices.Equal(got, []string{"sync", "syncdir"}) {
			t.Errorf("%q, want one sync of the file and one of the directory", got)
		}
	}
}

func TestStoringWhatIsThereTouchesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	fsys := faultfs.New(durable.OS)
	s := open(t, dir, localdir.Options{FS: fsys})
	if err := s.Set(t.Context(), blobName, blobData); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, blobName.Hex())
	recently := time.Now().Add(-30 * time.Second)
	for _, name := range []string{path, dir} {
		if err := os.Chtimes(name, recently, recently); err != nil {
			t.Fatal(err)
		}
	}
	look := func() [2]durable.Identity {
		t.Helper()
		var ids [2]durable.Identity
		for i, name := range []string{path, dir} {
			id, err := durable.OS.Identify(name)
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = id
		}
		return ids
	}
	before := look()
	fsys.FailAt(-1, nil)
	if err := s.Set(t.Context(), blobName, blobData); err != nil {
		t.Error(err)
	}
	if err := s.SetLocal(t.Context(), blobName, blobData); err != nil {
		t.Error(err)
	}
	if _, err := s.PutBytes(t.Context(), blobData); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Put(t.Context(), bytes.NewReader(blobData)); err != nil {
		t.Error(err)
	}
	if ops := fsys.Ops(); len(ops) > 0 {
		t.Errorf("the disk saw %q", ops)
	}
	if after := look(); after != before {
		t.Errorf("file and directory were %+v, are %+v", before, after)
	}
}

func TestALargeStreamThatIsThereAndCanSeekTouchesNothing(t *testing.T) {
	for name, sync := range map[string]bool{"with Sync": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			fsys := faultfs.New(durable.OS)
			s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{Sync: sync, FS: fsys})
			data := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
			for _, data := range [][]byte{data, data[:512<<10]} { // the last chunk is full or not
				want := blobref.Of(data)
				for round := range 3 {
					before := len(fsys.Ops())
					r := strings.NewReader("skipped" + string(data))
					if _, err := r.Seek(7, io.SeekStart); err != nil { // what was read before is no part of it
						t.Fatal(err)
					}
					ref, size, err := s.Put(t.Context(), r)
					if err != nil || ref != want || size != int64(len(data)) {
						t.Fatalf("%v, %d, %v; want %v, %d", ref, size, err, want, len(data))
					}
					if ops := fsys.Ops()[before:]; (round == 0) != (len(ops) > 0) {
						t.Errorf("round %d: the disk saw %q", round, ops)
					}
				}
				if err := os.WriteFile(filepath.Join(s.Dir(), want.Hex()), bytes.ToUpper(data), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, _, err := s.Put(t.Context(), bytes.NewReader(data)); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Get(t.Context(), want); err != nil || !bytes.Equal(got, data) {
					t.Errorf("a damaged blob was not healed: %d bytes, %v", len(got), err)
				}
			}
		})
	}
}

func TestOnlyTheOwnerMayRead(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	s := open(t, filepath.Join(home, "blobs"), localdir.Options{})
	if err := s.Set(t.Context(), blobName, blobData); err != nil {
		t.Fatal(err)
	}
	plant(t, s, otherName, damage)
	if _, err := s.Get(t.Context(), otherName); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{
		home: os.ModeDir | 0o700, s.Dir(): os.ModeDir | 0o700, filepath.Join(s.Dir(), blobName.Hex()): 0o600,
		filepath.Join(s.Dir(), ".corrupt"): os.ModeDir | 0o700, filepath.Join(s.Dir(), ".corrupt", otherName.Hex()): 0o600,
	} {
		info, err := os.Lstat(name)
		if err != nil || info.Mode() != want {
			t.Errorf("%s is %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

func TestOtherNamesAreLeftAlone(t *testing.T) {
	ctx := t.Context()
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	if err := s.Set(ctx, blobName, blobData); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), blobName.Hex())
	if err := os.Link(path, path+".png"); err != nil { // as oh-my-pi does
		t.Fatal(err)
	}
	others := []string{
		path + ".png", path[:len(path)-1], path + "0", filepath.Join(s.Dir(), strings.ToUpper(otherName.Hex())),
		filepath.Join(s.Dir(), "README"), filepath.Join(s.Dir(), ".tmp-blob-abc"), filepath.Join(s.Dir(), otherName.Hex()+".jpg"),
	}
	for _, name := range others[1:] {
		if err := os.WriteFile(name, otherData, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var walked []blobref.Ref
	for info, err := range s.Walk(ctx) {
		if err != nil {
			t.Error(err)
		}
		walked = append(walked, info.Ref)
	}
	if !slices.Equal(walked, []blobref.Ref{blobName}) {
		t.Errorf("Walk yields %v, want %v alone", walked, blobName)
	}
	if _, err := s.Stat(ctx, otherName); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Stat of a blob that has only an extension = %v, want ErrNotFound", err)
	}
	if info, err := s.Stat(ctx, blobName); err != nil || info.Size != int64(len(blobData)) || time.Since(info.ModTime).Abs() > time.Hour {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	if err := s.Delete(ctx, blobName); err != nil {
		t.Error(err)
	}
	for _, name := range others {
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestSweepRemovesOldTemporariesOnly(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	if err := s.Set(t.Context(), blobName, blobData); err != nil {
		t.Fatal(err)
	}
	day := time.Now().Add(-25 * time.Hour)
	for name, old := range map[string]bool{".tmp-blob-old": true, ".tmp-blob-new": false, "old.png": true, blobName.Hex(): true} {
		path := filepath.Join(s.Dir(), name)
		if err := os.WriteFile(path, blobData, 0o600); err != nil {
			t.Fatal(err)
		}
		if !old {
			continue
		}
		if err := os.Chtimes(path, day, day); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Sweep(t.Context(), 24*time.Hour); n != 1 || err != nil {
		t.Errorf("Sweep = %d, %v; want 1", n, err)
	}
	entries, err := os.ReadDir(s.Dir())
	if err != nil || len(entries) != 3 {
		t.Errorf("%v are left, %v", entries, err)
	}
}

func TestADirectoryHasOneMode(t *testing.T) {
	opaque, verified := localdir.Options{Mode: blobstore.Opaque}, localdir.Options{}
	tests := []struct {
		name    string
		dir     string
		prepare func(t *testing.T, dir string)
		opts    localdir.Options
	}{
		{"opaque in verified blobs", "store", func(t *testing.T, dir string) { set(t, dir, verified) }, opaque},
		{"verified in opaque blobs", "store", func(t *testing.T, dir string) { set(t, dir, opaque) }, verified},
		{"opaque in a directory of something else", "store", func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "photos"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, opaque},
		{"opaque in a directory called blobs", "blobs", func(*testing.T, string) {}, opaque},
		{"opaque in a link to a directory called blobs", "store", func(t *testing.T, dir string) {
			target := filepath.Join(filepath.Dir(dir), "blobs")
			if err := os.Mkdir(target, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, dir); err != nil {
				t.Fatal(err)
			}
		}, opaque},
		{"a mode that there is not", "store", func(*testing.T, string) {}, localdir.Options{Mode: 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), tt.dir)
			tt.prepare(t, dir)
			if s, err := localdir.Open(dir, tt.opts); !errors.Is(err, blobstore.ErrMode) {
				t.Errorf("Open = %v, %v; want ErrMode", s, err)
			}
		})
	}

	t.Run("the same mode again", func(t *testing.T) {
		for _, opts := range []localdir.Options{opaque, verified} {
			dir := filepath.Join(t.TempDir(), "store")
			set(t, dir, opts)
			set(t, dir, opts)
		}
	})
	t.Run("a store that was opened before the other wrote", func(t *testing.T) {
		for _, modes := range [][2]localdir.Options{{opaque, verified}, {verified, opaque}} {
			dir := filepath.Join(t.TempDir(), "store")
			late := open(t, dir, modes[0])
			set(t, dir, modes[1])
			if err := late.Set(t.Context(), otherName, otherData); !errors.Is(err, blobstore.ErrMode) {
				t.Errorf("Set of a %v store in a %v directory = %v, want ErrMode", late.Mode(), modes[1].Mode, err)
			}
		}
	})
	t.Run("a verified directory holds nothing but blobs", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "blobs")
		set(t, dir, verified)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

func set(t *testing.T, dir string, opts localdir.Options) {
	t.Helper()
	if err := open(t, dir, opts).Set(t.Context(), blobName, blobData); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryThatWasRemovedIsMadeAgain(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		dir := filepath.Join(t.TempDir(), "store")
		s := open(t, dir, localdir.Options{Mode: mode})
		for range 2 {
			if err := s.Set(t.Context(), blobName, blobData); err != nil {
				t.Fatal(err)
			}
			if got, err := open(t, dir, localdir.Options{Mode: mode}).Get(t.Context(), blobName); err != nil || !bytes.Equal(got, blobData) {
				t.Errorf("Get = %d bytes, %v", len(got), err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestStoresThatRaceToHealOneBlobAllSucceed(t *testing.T) {
	for round := range 20 {
		dir := filepath.Join(t.TempDir(), "blobs")
		plant(t, open(t, dir, localdir.Options{}), blobName, damage)
		var wg sync.WaitGroup
		start, errs := make(chan struct{}), make([]error, 12)
		for i := range errs {
			s := open(t, dir, localdir.Options{})
			wg.Go(func() {
				<-start
				if i%3 != 0 {
					errs[i] = s.Set(t.Context(), blobName, blobData)
					return
				}
				got, err := s.Get(t.Context(), blobName)
				switch {
				case errors.Is(err, blobstore.ErrCorrupt), errors.Is(err, blobstore.ErrNotFound):
				case err != nil || !bytes.Equal(got, blobData):
					errs[i] = fmt.Errorf("Get = %q, %w", got, err)
				}
			})
		}
		close(start)
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		s := open(t, dir, localdir.Options{})
		if got, err := s.Get(t.Context(), blobName); err != nil || !bytes.Equal(got, blobData) {
			t.Fatalf("round %d: Get = %q, %v", round, got, err)
		}
		if aside, err := os.ReadFile(filepath.Join(dir, ".corrupt", blobName.Hex())); err != nil || !bytes.Equal(aside, damage) {
			t.Fatalf("round %d: .corrupt holds %q, %v", round, aside, err)
		}
		if temps, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(temps) > 0 {
			t.Fatalf("round %d: %v left", round, temps)
		}
	}
}
