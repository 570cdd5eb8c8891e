package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

func identify(t *testing.T, name string) durable.Identity {
	t.Helper()
	id, err := durable.OS.Identify(name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentifyAllocatesNothing(t *testing.T) {
	name := put(t, filepath.Join(t.TempDir(), "f"), "x")
	f, err := durable.OS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := durable.OS.Identify(name); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("by name: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Identify(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("of an open file: %v allocations", n)
	}
}

func TestIdentifyTellsWhatStatTells(t *testing.T) {
	dir := t.TempDir()
	name := put(t, filepath.Join(dir, "f"), "12345")
	when := time.Unix(1_700_000_000, 123_456_789)
	if err := os.Chtimes(name, when, when); err != nil {
		t.Fatal(err)
	}
	id := identify(t, name)
	if id.Size != 5 || id.ModTime != when.UnixNano() || id.Mode != unix.S_IFREG|0o600 || id.Links != 1 {
		t.Errorf("identity %+v", id)
	}
	f, err := durable.OS.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if open, err := f.Identify(); err != nil || open != id {
		t.Errorf("of the open file %+v, %v; by name %+v", open, err, id)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if open, err := f.Identify(); err != nil || open.Links != 0 || !open.SameFile(id) {
		t.Errorf("of the removed file %+v, %v; want no links", open, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Identify(); err == nil {
		t.Error("a closed file has an identity")
	}
}

func TestSameFileIsAboutTheFileNotTheName(t *testing.T) {
	dir := t.TempDir()
	one, two := put(t, filepath.Join(dir, "one"), "x"), put(t, filepath.Join(dir, "two"), "x")
	again, link := filepath.Join(dir, "again"), filepath.Join(dir, "link")
	if err := errors.Join(durable.OS.Link(one, again), os.Symlink(one, link)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		path string
		want bool
	}{
		{"itself", one, true},
		{"another name of it", again, true},
		{"another file with the same bytes", two, false},
		{"a symbolic link to it, which is not followed", link, false},
	} {
		if got := identify(t, one).SameFile(identify(t, c.path)); got != c.want {
			t.Errorf("%s: same file %v", c.name, got)
		}
	}
	if mode := identify(t, link).Mode & unix.S_IFMT; mode != unix.S_IFLNK {
		t.Errorf("type of the link %#x", mode)
	}
}

func TestIdentifyTakesNamesOfEveryLength(t *testing.T) {
	dir := t.TempDir()
	for len(dir) < 900 { // beyond what fits on the stack
		dir = filepath.Join(dir, strings.Repeat("d", 60))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		name := put(t, filepath.Join(dir, "f"), "x")
		if id := identify(t, name); id.Size != 1 {
			t.Errorf("%d bytes: %+v", len(name), id)
		}
	}
}

func TestIdentifyRefusesNamesThatNameNothing(t *testing.T) {
	file := put(t, filepath.Join(t.TempDir(), "f"), "x")
	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"an empty name", "", fs.ErrNotExist},
		{"a missing file", file + "x", fs.ErrNotExist},
		{"a file used as a directory", file + "/x", unix.ENOTDIR},
		{"a NUL, behind which nothing would be looked at", file + "\x00x", unix.EINVAL},
		{"a path of 5000 bytes", strings.Repeat("/x", 2500), unix.ENAMETOOLONG},
	} {
		if id, err := durable.OS.Identify(c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v; want %v", c.name, id, err, c.want)
		}
	}
}

func TestTouchMakesAFileYoungWhateverItWasOpenedFor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("content"), 0o400); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	f, err := durable.OS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Touch(); err != nil {
		t.Fatal(err)
	}
	id, err := f.Identify()
	if age := time.Since(time.Unix(0, id.ModTime)); err != nil || age > time.Minute {
		t.Errorf("it is %v old, %v", age, err)
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "content" {
		t.Errorf("it holds %q, %v", data, err)
	}
}
