package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func TestMkdirAllMakesEveryLevelPrivate(t *testing.T) {
	openMask(t)
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	for range 2 { // the second time it is there
		if err := durable.MkdirAll(nil, dir); err != nil {
			t.Fatal(err)
		}
	}
	for d := dir; d != root; d = filepath.Dir(d) {
		if perm(t, d) != 0o700 {
			t.Errorf("%s has permissions %o", d, perm(t, d))
		}
	}
}

func TestMkdirAllLeavesDirectoriesThatAreThereAsTheyAre(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	fsys := faultfs.New(durable.OS)
	if err := durable.MkdirAll(fsys, root); err != nil || len(fsys.Ops()) != 0 {
		t.Errorf("%v, operations %v", err, fsys.Ops())
	}
	if perm(t, root) != 0o755 {
		t.Errorf("permissions %o", perm(t, root))
	}
}

func TestMkdirAllFollowsALinkToADirectory(t *testing.T) {
	root := t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	if err := durable.MkdirAll(nil, link); err != nil {
		t.Error(err)
	}
	if err := durable.MkdirAll(nil, filepath.Join(link, "below")); err != nil || names(t, real) != "below" {
		t.Errorf("below it: %v, there are %q", err, names(t, real))
	}
}

func TestMkdirAllSaysWhatIsInTheWay(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(name string) error
	}{
		{"a file", func(name string) error { return os.WriteFile(name, nil, 0o600) }},
		{"a FIFO", func(name string) error { return unix.Mkfifo(name, 0o600) }},
		{"a link to a file", func(name string) error {
			return errors.Join(os.WriteFile(name+"-file", nil, 0o600), os.Symlink(name+"-file", name))
		}},
		{"a link to nothing", func(name string) error { return os.Symlink(name+"-missing", name) }},
		{"a link to itself", func(name string) error { return os.Symlink(name, name) }},
	} {
		for _, below := range []string{"", "below"} {
			t.Run(c.name+" "+below, func(t *testing.T) {
				root := t.TempDir()
				name := filepath.Join(root, "planted")
				if err := c.make(name); err != nil {
					t.Fatal(err)
				}
				before := names(t, root)
				err := durable.MkdirAll(nil, filepath.Join(name, below))
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("error %v, want one that names %s", err, name)
				}
				if got := names(t, root); got != before {
					t.Errorf("there are %s, were %s", got, before)
				}
			})
		}
	}
}

// late is a file system where somebody else makes a directory, or a file,
// between the look and the mkdir.
type late struct {
	durable.FS
	make func(name string) error
}

func (l late) Mkdir(name string, perm fs.FileMode) error {
	return errors.Join(l.make(name), l.FS.Mkdir(name, perm))
}

func TestMkdirAllMindsWhoWasFaster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := durable.MkdirAll(late{durable.OS, func(name string) error { return os.Mkdir(name, 0o700) }}, dir); err != nil {
		t.Errorf("a directory made meanwhile: %v", err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := durable.MkdirAll(late{durable.OS, func(name string) error { return os.WriteFile(name, nil, 0o600) }}, file); err == nil {
		t.Error("a file made meanwhile passed for a directory")
	}
	var all sync.WaitGroup
	deep := filepath.Join(t.TempDir(), "a", "b", "c", "d")
	for range 8 {
		all.Go(func() {
			if err := durable.MkdirAll(nil, deep); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestMkdirAllReportsEveryFault(t *testing.T) {
	for n := 0; ; n++ {
		root := t.TempDir()
		fsys := faultfs.New(durable.OS)
		fsys.FailAt(n, unix.ENOSPC)
		err := durable.MkdirAll(fsys, filepath.Join(root, "a", "b"))
		if !fsys.Fired() {
			if err != nil || n != 2 {
				t.Errorf("%d operations, error %v", n, err)
			}
			return
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("operation %d: error %v", n, err)
		}
	}
}

func TestSyncDirSyncsDirectoriesOnly(t *testing.T) {
	dir := t.TempDir()
	file := put(t, filepath.Join(dir, "file"), "")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"a directory", dir, nil},
		{"one of a file system that cannot", "/proc/self", nil},
		{"a file", file, unix.ENOTDIR},
		{"a FIFO, without waiting for it", fifo, unix.ENOTDIR},
		{"nothing", filepath.Join(dir, "missing"), fs.ErrNotExist},
	} {
		if err := durable.OS.SyncDir(c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
}
