package faultfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

var errDisk = errors.New("the disk broke")

// world is a directory with a file that is open, a file and an empty directory.
type world struct {
	dir  string
	fsys *faultfs.FS
	open durable.File
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), fsys: faultfs.New(durable.OS)}
	for _, name := range []string{"open", "file"} {
		if err := os.WriteFile(w.path(name), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(w.path("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := w.fsys.OpenFile(w.path("open"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w.open = f
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// state is everything that can be seen of the disk.
func (w *world) state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(strings.TrimPrefix(path, w.dir) + " " + e.Type().String())
		if e.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b.WriteString(" " + string(data))
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// operation is one that changes the disk.
type operation struct {
	kind string // the word in Ops
	name string // of the file that Ops and errors name
	do   func(w *world) error
}

var operations = []operation{
	{"create", "new", func(w *world) error {
		f, err := w.fsys.OpenFile(w.path("new"), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}},
	{"write", "open", func(w *world) error { _, err := w.open.Write([]byte("WRITTEN!")); return err }},
	{"write", "open", func(w *world) error { _, err := w.open.WriteAt([]byte("AT"), 3); return err }},
	{"write", "open", func(w *world) error {
		src, err := w.fsys.OpenFile(w.path("file"), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = w.open.WriteRange(src, 1, 4)
		return err
	}},
	{"sync", "open", func(w *world) error { return w.open.Sync() }},
	{"truncate", "open", func(w *world) error { return w.open.Truncate(2) }},
	{"touch", "open", func(w *world) error { return w.open.Touch() }},
	{"rename", "to", func(w *world) error { return w.fsys.Rename(w.path("file"), w.path("to")) }},
	{"rename", "to", func(w *world) error { return w.fsys.RenameNoReplace(w.path("file"), w.path("to")) }},
	{"link", "to", func(w *world) error { return w.fsys.Link(w.path("file"), w.path("to")) }},
	{"link", "to", func(w *world) error { return w.fsys.LinkFile(w.open, w.path("to")) }},
	{"link", "to", func(w *world) error { return w.fsys.Symlink("file", w.path("to")) }},
	{"remove", "file", func(w *world) error { return w.fsys.Remove(w.path("file")) }},
	{"mkdir", "made", func(w *world) error { return w.fsys.Mkdir(w.path("made"), 0o700) }},
	{"syncdir", "dir", func(w *world) error { return w.fsys.SyncDir(w.path("dir")) }},
	{"syncfs", "dir", func(w *world) error { return w.fsys.SyncFS(w.path("dir")) }},
}

// lasting reports whether the operation can be seen in names and contents afterwards.
func (o operation) lasting() bool { return !strings.HasPrefix(o.kind, "sync") && o.kind != "touch" }

func TestEveryChangeOfTheDiskIsCounted(t *testing.T) {
	for _, o := range operations {
		w := newWorld(t)
		before := w.state(t)
		if err := o.do(w); err != nil {
			t.Errorf("%s: %v", o.kind, err)
		}
		if got, want := w.fsys.Ops(), []string{o.kind + " " + w.path(o.name)}; !slices.Equal(got, want) {
			t.Errorf("operations %q, want %q", got, want)
		}
		if changed := w.state(t) != before; changed != o.lasting() {
			t.Errorf("%s: the disk changed: %v", o.kind, changed)
		}
		if w.fsys.Fired() {
			t.Errorf("%s: a fault that nobody asked for", o.kind)
		}
	}
}

// looks are the operations that leave the disk as it is.
func looks(w *world) map[string]error {
	all := map[string]error{}
	f, err := w.fsys.OpenFile(w.path("file"), os.O_RDONLY, 0)
	if err == nil {
		err = f.Close()
	}
	all["open"] = err
	_, all["lstat"] = w.fsys.Lstat(w.path("file"))
	_, all["identify"] = w.fsys.Identify(w.path("file"))
	_, all["readdir"] = w.fsys.ReadDir(w.path("dir"))
	return all
}

func TestLooksAreNotCountedAndFailOnlyOnceTheProcessIsGone(t *testing.T) {
	w := newWorld(t)
	for _, set := range []func(){
		func() {},
		func() { w.fsys.FailAt(0, errDisk) },
		func() { w.fsys.FullAt(0) },
		func() { w.fsys.CrashAt(0) }, // not reached yet
	} {
		set()
		for name, err := range looks(w) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ops := w.fsys.Ops(); len(ops) != 0 {
			t.Errorf("counted %q", ops)
		}
	}
	if err := w.fsys.Remove(w.path("file")); !errors.Is(err, faultfs.ErrCrashed) {
		t.Fatal(err)
	}
	for name, err := range looks(w) {
		if !errors.Is(err, faultfs.ErrCrashed) {
			t.Errorf("%s after the crash: %v", name, err)
		}
	}
}

func TestFailAtFailsOneOperationBeforeItHasAnEffect(t *testing.T) {
	for _, o := range operations {
		w := newWorld(t)
		before := w.state(t)
		w.fsys.FailAt(1, errDisk)
		if err := w.open.Sync(); err != nil || w.fsys.Fired() {
			t.Fatalf("operation 0: %v, fired %v", err, w.fsys.Fired())
		}
		err := o.do(w)
		var path *fs.PathError
		if !errors.Is(err, errDisk) || !errors.As(err, &path) || path.Path != w.path(o.name) {
			t.Errorf("%s: error %v, want the one asked for, with %s", o.kind, err, o.name)
		}
		if !w.fsys.Fired() || w.state(t) != before {
			t.Errorf("%s: fired %v, and the disk is\n%s, was\n%s", o.kind, w.fsys.Fired(), w.state(t), before)
		}
		if err := o.do(w); err != nil {
			t.Errorf("%s again: %v", o.kind, err)
		}
	}
}

func TestFullAtFailsWhatNeedsRoom(t *testing.T) {
	needs := []string{"create", "write", "mkdir", "link"}
	for _, o := range operations {
		w := newWorld(t)
		before := w.state(t)
		w.fsys.FullAt(0)
		err := o.do(w)
		if want := slices.Contains(needs, o.kind); errors.Is(err, unix.ENOSPC) != want || want != w.fsys.Fired() {
			t.Errorf("%s: error %v, fired %v", o.kind, err, w.fsys.Fired())
		}
		if err == nil || o.kind == "write" {
			continue
		}
		if got := w.state(t); got != before {
			t.Errorf("%s: the disk is\n%s", o.kind, got)
		}
	}
}

func TestAWriteThatEndsTheRoomIsShort(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(f *faultfs.FS, n int)
		want error
	}{
		{"a full disk", (*faultfs.FS).FullAt, unix.ENOSPC},
		{"a crash", (*faultfs.FS).CrashAt, faultfs.ErrCrashed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.set(w.fsys, 1)
			if n, err := w.open.WriteAt([]byte("abcd"), 0); n != 4 || err != nil {
				t.Fatalf("operation 0: %d, %v", n, err)
			}
			if n, err := w.open.WriteAt([]byte("ABCD"), 0); n != 2 || !errors.Is(err, c.want) {
				t.Errorf("operation 1: %d bytes, %v; want 2, %v", n, err, c.want)
			}
			if n, err := w.open.WriteAt([]byte("wxyz"), 0); n != 0 || !errors.Is(err, c.want) {
				t.Errorf("operation 2: %d bytes, %v; want 0, %v", n, err, c.want)
			}
			if data, err := os.ReadFile(w.path("open")); err != nil || string(data) != "ABcdent" {
				t.Errorf("the file holds %q, %v", data, err)
			}
		})
	}
}

func TestNothingWorksAfterACrash(t *testing.T) {
	w := newWorld(t)
	w.fsys.CrashAt(0)
	if err := w.open.Sync(); !errors.Is(err, faultfs.ErrCrashed) {
		t.Fatal(err)
	}
	before := w.state(t)
	for _, o := range operations {
		if err := o.do(w); !errors.Is(err, faultfs.ErrCrashed) {
			t.Errorf("%s: error %v", o.kind, err)
		}
	}
	if got := w.state(t); got != before {
		t.Errorf("the disk is\n%s, was\n%s", got, before)
	}
}

func TestSettingAFaultStartsTheCountAnew(t *testing.T) {
	w := newWorld(t)
	w.fsys.FailAt(0, errDisk)
	if err := w.open.Sync(); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	w.fsys.FailAt(1, errDisk)
	if w.fsys.Fired() || len(w.fsys.Ops()) != 0 {
		t.Errorf("fired %v, operations %v", w.fsys.Fired(), w.fsys.Ops())
	}
	if err := w.open.Sync(); err != nil {
		t.Errorf("operation 0: %v", err)
	}
	if err := w.open.Sync(); !errors.Is(err, errDisk) {
		t.Errorf("operation 1: %v", err)
	}
}

func TestOfManyAtOnceExactlyOneFails(t *testing.T) {
	w := newWorld(t)
	w.fsys.FailAt(40, errDisk)
	var all sync.WaitGroup
	failed := make(chan error, 100)
	for range 10 {
		all.Go(func() {
			for range 10 {
				if err := w.open.Sync(); err != nil {
					failed <- err
				}
			}
		})
	}
	all.Wait()
	if len(failed) != 1 || len(w.fsys.Ops()) != 100 {
		t.Errorf("%d failed of %d", len(failed), len(w.fsys.Ops()))
	}
}

func TestErrorsOfTheInnerFileSystemPassThrough(t *testing.T) {
	w := newWorld(t)
	if _, err := w.fsys.OpenFile(w.path("missing"), os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if err := w.fsys.RenameNoReplace(w.path("file"), w.path("open")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("rename: %v", err)
	}
	_, err := w.fsys.OpenFile(w.path("dir"), os.O_RDONLY, 0)
	if refused := (*durable.NotRegularError)(nil); !errors.As(err, &refused) {
		t.Errorf("open of a directory: %v", err)
	}
}
