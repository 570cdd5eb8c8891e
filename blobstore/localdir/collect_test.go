package localdir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// age makes files of the store look a day old.
func age(t *testing.T, s *localdir.Store, names ...string) {
	t.Helper()
	old := time.Now().Add(-24 * time.Hour)
	for _, name := range names {
		if err := os.Chtimes(filepath.Join(s.Dir(), name), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// plantOld plants a blob from yesterday.
func plantOld(t *testing.T, s *localdir.Store, data []byte) blobref.Ref {
	t.Helper()
	ref := blobref.Of(data)
	plant(t, s, ref, data)
	age(t, s, ref.Hex())
	return ref
}

func nothing(blobref.Ref) bool { return false }

func only(kept ...blobref.Ref) func(blobref.Ref) bool {
	return func(ref blobref.Ref) bool { return slices.Contains(kept, ref) }
}

func hourAgo() time.Time { return time.Now().Add(-time.Hour) }

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func TestCollectRemovesWhatIsOldAndUnnamed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	kept, gone, linked := plantOld(t, s, blobData), plantOld(t, s, otherData), plantOld(t, s, bigData)
	young := blobref.Of([]byte("young"))
	plant(t, s, young, []byte("young"))
	for _, link := range []blobref.Ref{linked, kept} {
		if err := os.Link(filepath.Join(s.Dir(), link.Hex()), filepath.Join(s.Dir(), link.Hex()+".png")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.Dir(), "notes.txt"), []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, s, "notes.txt")
	names := func() []string {
		var names []string
		for _, e := range must(os.ReadDir(s.Dir())) {
			if e.Name()[0] != '.' {
				names = append(names, e.Name())
			}
		}
		return names
	}
	all := names()

	want := localdir.Collected{Count: 2, Bytes: int64(len(otherData) + len(bigData))}
	o := localdir.CollectOptions{Keep: only(kept), Before: hourAgo()}
	if got, err := s.Collect(t.Context(), o); err != nil || got != want || !slices.Equal(names(), all) {
		t.Errorf("the dry run says %+v, %v, want %+v; there are %v", got, err, want, names())
	}
	o.Apply = true
	if got, err := s.Collect(t.Context(), o); err != nil || got != want {
		t.Errorf("Collect = %+v, %v, want %+v", got, err, want)
	}
	left := []string{kept.Hex(), kept.Hex() + ".png", young.Hex(), "notes.txt"}
	slices.Sort(left)
	if got := names(); !slices.Equal(got, left) {
		t.Errorf("left are %v, want %v", got, left)
	}
	if exists(filepath.Join(s.Dir(), gone.Hex())) {
		t.Error("an unnamed blob is there")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// storeAgain is every way in which a blob may be stored.
var storeAgain = map[string]func(ctx context.Context, s *localdir.Store, data []byte) error{
	"Set": func(ctx context.Context, s *localdir.Store, data []byte) error {
		return s.Set(ctx, blobref.Of(data), data)
	},
	"Put of a file": func(ctx context.Context, s *localdir.Store, data []byte) error {
		_, _, err := s.Put(ctx, bytes.NewReader(data))
		return err
	},
	"Put of a pipe": func(ctx context.Context, s *localdir.Store, data []byte) error {
		_, _, err := s.Put(ctx, struct{ *bytes.Buffer }{bytes.NewBuffer(data)})
		return err
	},
}

func TestABlobStoredAgainIsYoung(t *testing.T) {
	for name, store := range storeAgain {
		for _, sync := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sync %v", name, sync), func(t *testing.T) {
				s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{Sync: sync})
				ref := plantOld(t, s, bigData)
				if err := store(t.Context(), s, bigData); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Collect(t.Context(), localdir.CollectOptions{Keep: nothing, Before: hourAgo(), Apply: true}); err != nil || got.Count != 0 {
					t.Errorf("Collect = %+v, %v", got, err)
				}
				if _, err := s.Get(t.Context(), ref); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// interposed calls before a mutating operation that a test names.
type interposed struct {
	durable.FS
	before func(op, name string)
}

func (i *interposed) Rename(from, to string) error {
	i.before("rename", from)
	return i.FS.Rename(from, to)
}

func (i *interposed) Remove(name string) error {
	i.before("remove", name)
	return i.FS.Remove(name)
}

func (i *interposed) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := i.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return interposedFile{f, i}, nil
}

type interposedFile struct {
	durable.File
	fs *interposed
}

func (f interposedFile) Touch() error {
	f.fs.before("touch", f.Name())
	err := f.File.Touch()
	f.fs.before("touched", f.Name())
	return err
}

// TestABlobStoredWhileItIsCollectedStays lets a writer store a blob again at each
// step of the collector, and a collector come in at each step of the writer.
func TestABlobStoredWhileItIsCollectedStays(t *testing.T) {
	collect := func(s *localdir.Store) {
		if _, err := s.Collect(t.Context(), localdir.CollectOptions{Keep: nothing, Before: hourAgo(), Apply: true}); err != nil {
			t.Error(err)
		}
	}
	for name, store := range storeAgain {
		for _, step := range []string{"rename", "again", "remove", "touch", "touched"} {
			t.Run(name+" at "+step, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "blobs")
				other := open(t, dir, localdir.Options{})
				ref := plantOld(t, other, bigData)
				put := func() {
					if err := store(t.Context(), other, bigData); err != nil {
						t.Error(err)
					}
				}
				done := false
				once := func(do func()) {
					if !done {
						done = true
						do()
					}
				}
				fsys := &interposed{FS: durable.OS}
				fsys.before = func(op, file string) {
					if op != step || !strings.Contains(file, ref.Hex()) {
						return
					}
					if strings.HasPrefix(op, "touch") {
						once(func() { collect(other) })
					} else {
						once(put)
					}
				}
				s := open(t, dir, localdir.Options{FS: fsys})
				if strings.HasPrefix(step, "touch") {
					if err := store(t.Context(), s, bigData); err != nil {
						t.Fatal(err)
					}
				} else {
					again := func() error {
						if step == "again" {
							once(put)
						}
						return nil
					}
					if _, err := s.Collect(t.Context(), localdir.CollectOptions{Keep: nothing, Before: hourAgo(), Apply: true, Again: again}); err != nil {
						t.Fatal(err)
					}
				}
				if !done {
					t.Fatal("nothing came in between")
				}
				if _, err := other.Get(t.Context(), ref); err != nil {
					t.Errorf("the blob is gone: %v", err)
				}
			})
		}
	}
}

func TestABlobIsReadableWhileItIsJudged(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	ref := plantOld(t, s, blobData)
	look := func() error {
		if exists(filepath.Join(s.Dir(), ref.Hex())) {
			t.Error("the blob has its name")
		}
		data, err := s.Get(t.Context(), ref)
		if err != nil || !bytes.Equal(data, blobData) {
			t.Errorf("Get = %d bytes, %v", len(data), err)
		}
		if info, err := s.Stat(t.Context(), ref); err != nil || info.Size != int64(len(blobData)) {
			t.Errorf("Stat = %+v, %v", info, err)
		}
		b, err := s.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return b.Close()
	}
	marked := false
	o := localdir.CollectOptions{
		Keep: func(blobref.Ref) bool { return marked }, Before: hourAgo(), Apply: true,
		Again: func() error { marked = true; return look() },
	}
	if got, err := s.Collect(t.Context(), o); err != nil || got.Count != 0 {
		t.Errorf("Collect = %+v, %v", got, err)
	}
	if !exists(filepath.Join(s.Dir(), ref.Hex())) {
		t.Error("a blob that is named after all did not get its name back")
	}
}

func TestTheSecondCollectorIsRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	plantOld(t, s, blobData)
	o := localdir.CollectOptions{Keep: nothing, Before: hourAgo(), Apply: true}
	second := o
	o.Again = func() error {
		if _, err := s.Collect(t.Context(), second); !errors.Is(err, localdir.ErrCollecting) {
			t.Errorf("the second Collect = %v", err)
		}
		return nil
	}
	if got, err := s.Collect(t.Context(), o); err != nil || got.Count != 1 {
		t.Errorf("Collect = %+v, %v", got, err)
	}
}

// TestEveryFaultOfACollectorKeepsWhatIsNamed fails every operation of a collector in
// turn. What it was to keep is readable afterwards, and has its name after the next
// one.
func TestEveryFaultOfACollectorKeepsWhatIsNamed(t *testing.T) {
	for name, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				fsys := faultfs.New(durable.OS)
				dir := filepath.Join(t.TempDir(), "blobs")
				good := open(t, dir, localdir.Options{})
				kept, late, gone := plantOld(t, good, blobData), plantOld(t, good, bigData), plantOld(t, good, otherData)
				keep := []blobref.Ref{kept}
				set(fsys, n)
				s := open(t, dir, localdir.Options{FS: fsys, Sync: true})
				o := localdir.CollectOptions{
					Keep: func(ref blobref.Ref) bool { return slices.Contains(keep, ref) }, Before: hourAgo(), Apply: true,
					Again: func() error { keep = append(keep, late); return nil },
				}
				_, err := s.Collect(t.Context(), o)
				if !fsys.Fired() && err != nil {
					t.Fatal(err)
				}
				for _, ref := range []blobref.Ref{kept, late} {
					if _, err := good.Get(t.Context(), ref); err != nil {
						t.Fatalf("operation %d: %v", n, err)
					}
				}
				o.Keep, o.Again = only(kept, late), nil
				if _, err := good.Collect(t.Context(), o); err != nil {
					t.Fatalf("operation %d: the next one: %v", n, err)
				}
				if !exists(filepath.Join(dir, late.Hex())) || !exists(filepath.Join(dir, kept.Hex())) || exists(filepath.Join(dir, gone.Hex())) {
					t.Fatalf("operation %d: not what was to be left", n)
				}
				if !fsys.Fired() {
					t.Logf("%d operations", n)
					return
				}
			}
		})
	}
}

func TestALeaseHoldsBackTheGracePeriod(t *testing.T) {
	ctx, s := t.Context(), open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	ends := func() time.Duration {
		t.Helper()
		return time.Since(must(s.GraceEnd(ctx, time.Hour))).Round(time.Hour)
	}
	if got := ends(); got != time.Hour {
		t.Errorf("without a lease the grace period is %v", got)
	}
	l, err := s.NewLease()
	if err != nil {
		t.Fatal(err)
	}
	names := must(os.ReadDir(filepath.Join(s.Dir(), ".leases")))
	if len(names) != 1 {
		t.Fatalf("lease files: %v", names)
	}
	age(t, s, filepath.Join(".leases", names[0].Name()))
	if got := ends(); got != 24*time.Hour {
		t.Errorf("with a lease from yesterday it is %v", got)
	}
	if n, _, err := s.StaleLeases(ctx, hourAgo(), true); n != 0 || err != nil {
		t.Errorf("StaleLeases = %d, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ends(); got != time.Hour {
		t.Errorf("after its Close it is %v", got)
	}
	if left := must(os.ReadDir(filepath.Join(s.Dir(), ".leases"))); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestALeaseOfAKilledWriterCountsForNothing(t *testing.T) {
	ctx, s := t.Context(), open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	if err := os.MkdirAll(filepath.Join(s.Dir(), ".leases"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(".leases", "1-x")
	if err := os.WriteFile(filepath.Join(s.Dir(), file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, s, file)
	if _, held, err := s.Leased(ctx); held || err != nil {
		t.Errorf("held is %v, %v", held, err)
	}
	for _, remove := range []bool{false, true} {
		if n, _, err := s.StaleLeases(ctx, hourAgo(), remove); n != 1 || err != nil {
			t.Errorf("StaleLeases = %d, %v", n, err)
		}
	}
	if exists(filepath.Join(s.Dir(), file)) {
		t.Error("its file is there")
	}
}

func TestCollectingOpaqueBlobsIsRefused(t *testing.T) {
	s := open(t, t.TempDir(), localdir.Options{Mode: blobstore.Opaque})
	if _, err := s.Collect(t.Context(), localdir.CollectOptions{Keep: nothing, Before: time.Now()}); !errors.Is(err, blobstore.ErrMode) {
		t.Errorf("error %v", err)
	}
}
