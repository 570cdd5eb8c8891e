package durable_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

func openFile(t *testing.T, name string, flag int) durable.File {
	t.Helper()
	f, err := durable.OS.OpenFile(name, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestACloneHasTheContentOrTheFileSystemCannotClone(t *testing.T) {
	dir := t.TempDir()
	src := openFile(t, put(t, filepath.Join(dir, "src"), "content"), os.O_RDONLY)
	dst := openFile(t, filepath.Join(dir, "dst"), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	switch err := dst.CloneFrom(src); {
	case errors.Is(err, errors.ErrUnsupported):
		if got := get(t, dst.Name()); got != "" {
			t.Errorf("it holds %q", got)
		}
		t.Skipf("files are on a file system without reflinks: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	if got := get(t, dst.Name()); got != "content" {
		t.Errorf("it holds %q", got)
	}
	if _, err := dst.WriteAt([]byte("C"), 0); err != nil {
		t.Fatal(err)
	}
	if got := get(t, src.Name()); got != "content" {
		t.Errorf("the original holds %q", got)
	}
}

func TestACloneOntoAnotherFileSystemIsUnsupported(t *testing.T) {
	var here, there unix.Statfs_t
	dir := t.TempDir()
	if unix.Statfs("/dev/shm", &there) != nil || unix.Statfs(dir, &here) != nil || here.Type == there.Type {
		t.Skip("there is no second file system at /dev/shm")
	}
	other, err := os.CreateTemp("/dev/shm", "agentrun-test-")
	if err != nil {
		t.Skip(err)
	}
	other.Close()
	defer os.Remove(other.Name())
	src := openFile(t, put(t, filepath.Join(dir, "src"), "content"), os.O_RDONLY)
	dst := openFile(t, other.Name(), os.O_RDWR)
	if err := dst.CloneFrom(src); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if err := durable.Copy(dst, src, 0, 7); err != nil || get(t, other.Name()) != "content" {
		t.Errorf("it holds %q, %v", get(t, other.Name()), err)
	}
}

func TestCopyWritesTheBytesAskedFor(t *testing.T) {
	content := strings.Repeat("0123456789", 100_000)
	dir := t.TempDir()
	src := openFile(t, put(t, filepath.Join(dir, "src"), content), os.O_RDONLY)
	for name, from := range map[string]io.ReaderAt{"between files": src, "from elsewhere": strings.NewReader(content)} {
		t.Run(name, func(t *testing.T) {
			for _, span := range [][2]int64{{0, 0}, {0, 10}, {5, 600_000}, {999_999, 1_000_000}, {0, 1_000_000}} {
				dst := openFile(t, filepath.Join(t.TempDir(), "dst"), os.O_RDWR|os.O_CREATE)
				if _, err := dst.Write([]byte("before ")); err != nil {
					t.Fatal(err)
				}
				if err := durable.Copy(dst, from, span[0], span[1]); err != nil {
					t.Fatal(err)
				}
				if _, err := dst.Write([]byte(" after")); err != nil {
					t.Fatal(err)
				}
				if got, want := get(t, dst.Name()), "before "+content[span[0]:span[1]]+" after"; got != want {
					t.Errorf("bytes %d to %d: %d bytes, want %d", span[0], span[1], len(got), len(want))
				}
			}
			dst := openFile(t, filepath.Join(t.TempDir(), "dst"), os.O_RDWR|os.O_CREATE)
			if err := durable.Copy(dst, from, 0, 1_000_001); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("beyond the end: %v", err)
			}
			var buf bytes.Buffer
			if err := durable.Copy(&buf, from, 10, 20); err != nil || buf.String() != "0123456789" {
				t.Errorf("into memory: %q, %v", buf.String(), err)
			}
		})
	}
}

func TestAFileIsIdleWhileNobodyHasItOpenForWriting(t *testing.T) {
	name := put(t, filepath.Join(t.TempDir(), "file"), "content")
	idle := func(want bool) {
		t.Helper()
		f, err := durable.OS.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, known := durable.Idle(f)
		if !known {
			t.Skip("this file system does not tell who writes")
		}
		if got != want {
			t.Errorf("it is idle: %t", got)
		}
	}
	idle(true)
	reader := openFile(t, name, os.O_RDONLY)
	idle(true)
	writer, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	idle(false)
	writer.Close()
	idle(true)
	// Asking leaves nothing behind that would hold a writer up.
	if again, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
	reader.Close()
}

func TestRemoveAllRemovesWhatIsThereAndFollowsNothing(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "outside"), 0o700), os.MkdirAll(filepath.Join(target, "a", "b"), 0o700)); err != nil {
		t.Fatal(err)
	}
	precious := put(t, filepath.Join(dir, "outside", "precious"), "content")
	put(t, filepath.Join(target, "a", "b", "file"), "x")
	if err := errors.Join(os.Symlink(filepath.Dir(precious), filepath.Join(target, "link")), unix.Mkfifo(filepath.Join(target, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := durable.RemoveAll(nil, target); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if got := get(t, precious); got != "content" {
		t.Errorf("what a link led to holds %q", got)
	}
	if err := durable.RemoveAll(nil, target); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := durable.RemoveAll(nil, precious); err != nil {
		t.Error(err)
	}
}

func TestAnOpenFileIsLinkedWhateverItsNameStandsFor(t *testing.T) {
	dir := t.TempDir()
	name, to := put(t, filepath.Join(dir, "name"), "content"), filepath.Join(dir, "to")
	f := openFile(t, name, os.O_RDONLY)
	if err := os.Rename(name, filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	put(t, name, "another")
	if err := durable.OS.LinkFile(f, to); err != nil {
		t.Fatal(err)
	}
	if got := get(t, to); got != "content" {
		t.Errorf("it holds %q", got)
	}
	if err := durable.OS.LinkFile(f, to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over something that exists: %v", err)
	}
	if err := errors.Join(os.Remove(to), os.Remove(filepath.Join(dir, "moved"))); err != nil {
		t.Fatal(err)
	}
	if err := durable.OS.LinkFile(f, to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that was removed: %v", err)
	}
	if got := names(t, dir); got != "name" {
		t.Errorf("the directory holds %s", got)
	}
}
