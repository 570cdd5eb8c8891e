package durable_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// faults are the ways in which a disk fails.
var faults = []struct {
	name  string
	set   func(f *faultfs.FS, n int)
	crash bool // nobody is left to clean up
}{
	{"an operation fails", func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) }, false},
	{"the disk is full", (*faultfs.FS).FullAt, false},
	{"the process dies", (*faultfs.FS).CrashAt, true},
}

func TestWriteFileLeavesTheOldContentOrTheNew(t *testing.T) {
	for _, old := range []string{"", "old content"} {
		for _, sync := range []bool{false, true} {
			for _, fault := range faults {
				t.Run(fmt.Sprintf("when %s, over %q, sync %v", fault.name, old, sync), func(t *testing.T) {
					for n := 0; ; n++ {
						dir := t.TempDir()
						name := filepath.Join(dir, "f")
						if old != "" {
							put(t, name, old)
						}
						fsys := faultfs.New(durable.OS)
						fault.set(fsys, n)
						err := durable.WriteFile(fsys, name, sync, []byte("new content"))
						ops := fsys.Ops()
						if !fsys.Fired() {
							if err != nil || get(t, name) != "new content" || names(t, dir) != "f" {
								t.Errorf("without a fault: %v, %q", err, names(t, dir))
							}
							if n == 0 {
								t.Error("no operation was counted")
							}
							return
						}
						if err == nil || !strings.Contains(err.Error(), name) {
							t.Errorf("operation %d: error %v, want one that names the file", n, err)
						}
						want := old
						if strings.HasPrefix(ops[n], "syncdir") {
							want = "new content" // it is there, only not for sure
						}
						got := ""
						if _, err := os.Lstat(name); err == nil {
							got = get(t, name)
						}
						if got != want {
							t.Errorf("%s failed: the file holds %q, want %q", ops[n], got, want)
						}
						if left := names(t, dir); !fault.crash && strings.Contains(left, ".tmp-") {
							t.Errorf("%s failed and left %s", ops[n], left)
						}
					}
				})
			}
		}
	}
}

func TestWriteFileSyncsInTheOrderThatPowerLossAsksFor(t *testing.T) {
	for _, c := range []struct {
		sync bool
		want string
	}{
		{true, "create write sync rename syncdir"},
		{false, "create write rename"},
	} {
		fsys := faultfs.New(durable.OS)
		if err := durable.WriteFile(fsys, filepath.Join(t.TempDir(), "f"), c.sync, []byte("x")); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, op := range fsys.Ops() {
			kind, _, _ := strings.Cut(op, " ")
			kinds = append(kinds, kind)
		}
		if got := strings.Join(kinds, " "); got != c.want {
			t.Errorf("sync %v: %s, want %s", c.sync, got, c.want)
		}
	}
}

func TestWriteFileReplacesTheNameNotWhatALinkLeadsTo(t *testing.T) {
	openMask(t)
	for i, thing := range irregular {
		t.Run(thing.kind, func(t *testing.T) {
			name, target := plant(t, i)
			err := durable.WriteFile(nil, name, false, []byte("new"))
			if thing.kind == "a directory" {
				if err == nil || names(t, filepath.Dir(name)) != "planted target" {
					t.Errorf("error %v, and there are %s", err, names(t, filepath.Dir(name)))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(name)
			if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 || get(t, name) != "new" {
				t.Errorf("%v, %v", info, err)
			}
			if got := get(t, target); got != "precious" {
				t.Errorf("what the link leads to now holds %q", got)
			}
		})
	}
}

func TestWriteFileFuncKeepsTheOldFileWhenItsWriterFails(t *testing.T) {
	dir := t.TempDir()
	name := put(t, filepath.Join(dir, "f"), "old")
	broken := errors.New("broken")
	err := durable.WriteFileFunc(nil, name, true, func(w io.Writer) error {
		_, err := io.WriteString(w, "half of the n")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) || get(t, name) != "old" || names(t, dir) != "f" {
		t.Errorf("error %v; %q; %s", err, get(t, name), names(t, dir))
	}
}

func TestWriteFileTakesTheLongestNameThereIs(t *testing.T) {
	name := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
	if err := durable.WriteFile(nil, name, false, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := get(t, name); got != "x" {
		t.Errorf("%q", got)
	}
}

func TestReadFileHoldsItsLimit(t *testing.T) {
	name := put(t, filepath.Join(t.TempDir(), "f"), "12345")
	for _, c := range []struct {
		name, path string
		limit      int64
		want       string
		err        error
	}{
		{"a file within it", name, 100, "12345", nil},
		{"a file that just fits", name, 5, "12345", nil},
		{"a file of one byte too many", name, 4, "", durable.ErrTooLarge},
		{"an empty file and no byte allowed", put(t, name+"0", ""), 0, "", nil},
		{"a missing file", name + "x", 100, "", fs.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := durable.ReadFile(nil, c.path, c.limit)
			if string(data) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%q, %v; want %q, %v", data, err, c.want, c.err)
			}
			if err != nil && !strings.Contains(err.Error(), c.path) {
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
}

// lying is a file system whose open files say that they have size bytes, as one
// says to which somebody appends meanwhile.
type lying struct {
	durable.FS
	size int64
}

func (l lying) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := l.FS.OpenFile(name, flag, perm)
	return lyingFile{f, l.size}, err
}

type lyingFile struct {
	durable.File
	size int64
}

func (f lyingFile) Identify() (durable.Identity, error) {
	id, err := f.File.Identify()
	id.Size = f.size
	return id, err
}

func TestReadFileReadsAGrowingFileToItsEnd(t *testing.T) {
	content := strings.Repeat("x", 10_000)
	name := put(t, filepath.Join(t.TempDir(), "f"), content)
	growing := lying{durable.OS, 1}
	if data, err := durable.ReadFile(growing, name, 10_000); err != nil || string(data) != content {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if data, err := durable.ReadFile(growing, name, 9_999); !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("one byte over the limit: %d bytes, %v", len(data), err)
	}
}

func TestReadFileMakesNoRoomForWhatItWillNotRead(t *testing.T) {
	name := put(t, filepath.Join(t.TempDir(), "f"), "x")
	if _, err := durable.ReadFile(lying{durable.OS, 1 << 60}, name, 100); !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
}

func TestReadFileRefusesWhatIsNoFile(t *testing.T) {
	for i, thing := range irregular {
		name, _ := plant(t, i)
		_, err := durable.ReadFile(nil, name, 100)
		if refused := (*durable.NotRegularError)(nil); !errors.As(err, &refused) || refused.Kind != thing.kind {
			t.Errorf("%s: error %v", thing.kind, err)
		}
	}
}
