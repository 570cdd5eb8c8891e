package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// flags are the ways in which files are opened. None of them may wait: a test
// that meets a FIFO would hang.
var flags = []struct {
	name string
	flag int
}{
	{"to read", os.O_RDONLY},
	{"to write", os.O_WRONLY},
	{"to read and write", os.O_RDWR},
	{"to append", os.O_WRONLY | os.O_APPEND},
	{"to make it when it is missing", os.O_RDWR | os.O_CREATE},
	{"to empty it", os.O_WRONLY | os.O_CREATE | os.O_TRUNC},
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	for i, thing := range irregular {
		for _, how := range flags {
			t.Run(thing.kind+" opened "+how.name, func(t *testing.T) {
				name, target := plant(t, i)
				f, err := durable.OS.OpenFile(name, how.flag, durable.FilePerm)
				if err == nil {
					f.Close()
					t.Fatal("it was opened")
				}
				var refused *durable.NotRegularError
				if !errors.As(err, &refused) || refused.Name != name || refused.Kind != thing.kind {
					t.Errorf("error %v, want that %s is %s", err, name, thing.kind)
				}
				if got := get(t, target); got != "precious" {
					t.Errorf("what the link leads to now holds %q", got)
				}
			})
		}
	}
	t.Run("a device", func(t *testing.T) {
		_, err := durable.OS.OpenFile(os.DevNull, os.O_RDWR, 0)
		if refused := (*durable.NotRegularError)(nil); !errors.As(err, &refused) || refused.Kind != "a device" {
			t.Errorf("error %v", err)
		}
	})
}

func TestALinkThatLeadsNowhereIsNotCreatedThrough(t *testing.T) {
	dir := t.TempDir()
	name, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
	for _, how := range flags {
		_, err := durable.OS.OpenFile(name, how.flag, durable.FilePerm)
		if refused := (*durable.NotRegularError)(nil); !errors.As(err, &refused) {
			t.Errorf("opened %s: error %v", how.name, err)
		}
	}
	if got := names(t, dir); got != "link" {
		t.Errorf("the directory holds %s", got)
	}
}

func TestOpenErrorsSayWhatTheSystemSaid(t *testing.T) {
	dir := t.TempDir()
	file := put(t, filepath.Join(dir, "file"), "")
	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"a missing file", filepath.Join(dir, "missing"), fs.ErrNotExist},
		{"a file used as a directory", filepath.Join(file, "x"), unix.ENOTDIR},
		{"a name with a NUL", filepath.Join(dir, "a\x00b"), unix.EINVAL},
		{"a name of 256 bytes", filepath.Join(dir, strings.Repeat("x", 256)), unix.ENAMETOOLONG},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := durable.OS.OpenFile(c.path, os.O_RDONLY, 0)
			var path *fs.PathError
			if !errors.Is(err, c.want) || !errors.As(err, &path) || path.Path != c.path {
				t.Errorf("error %v, want %v of %q", err, c.want, c.path)
			}
		})
	}
}

func TestAFileIsClosedInChildrenAndBlocks(t *testing.T) {
	f, err := durable.CreateExclusive(nil, filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: a child would inherit it", flags, err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("status flags %#x, %v: it was left non-blocking", flags, err)
	}
}

func TestCreateExclusiveNeverTakesAName(t *testing.T) {
	openMask(t)
	t.Run("that is free", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "f")
		f, err := durable.CreateExclusive(nil, name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Name() != name || perm(t, name) != 0o600 {
			t.Errorf("%s with permissions %o", f.Name(), perm(t, name))
		}
	})
	t.Run("of a file", func(t *testing.T) {
		name := put(t, filepath.Join(t.TempDir(), "f"), "old")
		if _, err := durable.CreateExclusive(nil, name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("error %v, want fs.ErrExist", err)
		}
		if got := get(t, name); got != "old" {
			t.Errorf("the file holds %q", got)
		}
	})
	for i, thing := range irregular {
		t.Run("of "+thing.kind, func(t *testing.T) {
			name, target := plant(t, i)
			if _, err := durable.CreateExclusive(nil, name); !errors.Is(err, fs.ErrExist) {
				t.Errorf("error %v, want fs.ErrExist", err)
			}
			if got := get(t, target); got != "precious" {
				t.Errorf("what the link leads to now holds %q", got)
			}
		})
	}
}

func TestCreateTempMakesPrivateFilesOfTheirOwn(t *testing.T) {
	openMask(t)
	long := strings.Repeat("ü", 120) + ".jsonl"
	for _, prefix := range []string{"", "log.jsonl", long} {
		dir := t.TempDir()
		seen := map[string]bool{}
		for range 50 {
			f, err := durable.CreateTemp(nil, dir, prefix)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			base := filepath.Base(f.Name())
			if !strings.HasPrefix(base, ".tmp-"+prefix[:min(len(prefix), 100)]) || perm(t, f.Name()) != 0o600 {
				t.Errorf("temporary of %q: %s with permissions %o", prefix, base, perm(t, f.Name()))
			}
			if strings.ToValidUTF8(base, "") != base {
				t.Errorf("temporary of %q: %q was cut inside a character", prefix, base)
			}
			seen[base] = true
		}
		if len(seen) != 50 {
			t.Errorf("50 temporaries of %q have %d names", prefix, len(seen))
		}
	}
	if _, err := durable.CreateTemp(nil, filepath.Join(t.TempDir(), "missing"), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a missing directory: %v", err)
	}
}
