package durable_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func content(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func TestANewFileNeverTakesThePlaceOfAnother(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := durable.WriteNewFunc(nil, name, true, content("one")); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteNewFunc(nil, name, true, content("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the error is %v", err)
	}
	if data, _ := os.ReadFile(name); string(data) != "one" {
		t.Errorf("it holds %q", data)
	}
	if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
		t.Errorf("there is %v", left)
	}
}

func TestEveryFaultOfANewFileLeavesNoneOrAWholeOne(t *testing.T) {
	for kind, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		for n := 0; ; n++ {
			dir := t.TempDir()
			fsys := faultfs.New(durable.OS)
			set(fsys, n)
			err := durable.WriteNewFunc(fsys, filepath.Join(dir, "file"), true, content("all of it"))
			data, rerr := os.ReadFile(filepath.Join(dir, "file"))
			switch {
			case rerr == nil && string(data) != "all of it":
				t.Errorf("%s at %d: it holds %q", kind, n, data)
			case err == nil && rerr != nil:
				t.Errorf("%s at %d: it was acknowledged and is not there", kind, n)
			case err != nil && rerr == nil && kind != "crash":
				t.Errorf("%s at %d: it failed (%v) and is there", kind, n, err)
			}
			if left, _ := os.ReadDir(dir); err != nil && kind != "crash" && len(left) > 0 {
				t.Errorf("%s at %d: %v is left", kind, n, left)
			}
			if !fsys.Fired() {
				break
			}
		}
	}
}
