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

func writeText(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func TestAnOutputRemovesWhatKilledOnesLeftAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "theirs")
	for _, name := range []string{
		filepath.Join(dir, ".tmp-agentrun-output-0abc9"), elsewhere,
		filepath.Join(dir, ".tmp-agentrun-output-"), filepath.Join(dir, ".tmp-agentrun-output-UPPER"),
		filepath.Join(dir, ".tmp-agentrun-output-0123456789abcd"), filepath.Join(dir, ".tmp-work.agentrun-0abc9"),
		filepath.Join(dir, "agentrun-output-0abc9"),
	} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".tmp-agentrun-output-dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, ".tmp-agentrun-output-link")); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteOutput(nil, filepath.Join(dir, "out"), false, writeText("text")); err != nil {
		t.Fatal(err)
	}
	want := ".tmp-agentrun-output- .tmp-agentrun-output-0123456789abcd .tmp-agentrun-output-UPPER .tmp-agentrun-output-dir " +
		".tmp-agentrun-output-link .tmp-work.agentrun-0abc9 agentrun-output-0abc9 out"
	if got := names(t, dir); got != want {
		t.Errorf("there is %s\nwant %s", got, want)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}

func TestOutputsAtOnceLeaveEachOthersTemporariesAlone(t *testing.T) {
	dir := t.TempDir()
	err := durable.WriteOutput(nil, filepath.Join(dir, "outer"), false, func(w io.Writer) error {
		if err := durable.WriteOutput(nil, filepath.Join(dir, "inner"), false, writeText("inner")); err != nil {
			return err
		}
		return writeText("outer")(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != "inner outer" {
		t.Errorf("there is %s", got)
	}
}

func TestAnOutputReplacesOnlyWhenItMay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		text    string
		replace bool
		err     error
		want    string
	}{
		{"one", false, nil, "one"},
		{"two", false, fs.ErrExist, "one"},
		{"three", true, nil, "three"},
	} {
		if err := durable.WriteOutput(nil, name, c.replace, writeText(c.text)); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.text, err)
		}
		if data, err := os.ReadFile(name); string(data) != c.want {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func TestAnOutputWithAFaultAnywhereIsTheOldOneOrTheNewOneAndTheNextClearsUp(t *testing.T) {
	faults := map[string]func(f *faultfs.FS, n int){
		"an error":    func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	}
	for what, set := range faults {
		t.Run(what, func(t *testing.T) {
			for n := 0; ; n++ {
				dir := t.TempDir()
				name := filepath.Join(dir, "out")
				if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
				fsys := faultfs.New(durable.OS)
				set(fsys, n)
				err := durable.WriteOutput(fsys, name, true, writeText("new"))
				if data, rerr := os.ReadFile(name); string(data) != "new" && (string(data) != "old" || err == nil) {
					t.Errorf("operation %d of %v: %q, %v, %v", n, fsys.Ops(), data, err, rerr)
				}
				if err := durable.WriteOutput(nil, filepath.Join(dir, "next"), true, writeText("next")); err != nil {
					t.Error(err)
				}
				if got := names(t, dir); got != "next out" {
					t.Errorf("operation %d of %v: there is %s", n, fsys.Ops(), got)
				}
				if !fsys.Fired() || t.Failed() {
					return
				}
			}
		})
	}
}
