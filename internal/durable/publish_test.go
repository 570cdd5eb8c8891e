package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
)

// renames are the two roads to one promise: the kernel's rename and what stands
// in for it.
var renames = []struct {
	name   string
	rename func(oldpath, newpath string) error
}{
	{"by the kernel's rename", durable.OS.RenameNoReplace},
	{"by a link or an empty directory", durable.Publish},
}

func TestRenameNoReplaceMovesToAFreeName(t *testing.T) {
	for _, by := range renames {
		t.Run(by.name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := put(t, filepath.Join(dir, "from"), "content"), filepath.Join(dir, "to")
			before := identify(t, from)
			if err := by.rename(from, to); err != nil {
				t.Fatal(err)
			}
			if names(t, dir) != "to" || !identify(t, to).SameFile(before) || identify(t, to).Links != 1 {
				t.Errorf("there are %s, %+v", names(t, dir), identify(t, to))
			}
		})
		t.Run("a directory "+by.name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			if err := os.Mkdir(from, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(from, "f"), "content")
			if err := by.rename(from, to); err != nil {
				t.Fatal(err)
			}
			if names(t, dir) != "to" || get(t, filepath.Join(to, "f")) != "content" {
				t.Errorf("there are %s", names(t, dir))
			}
		})
		t.Run("a link, not what it leads to, "+by.name, func(t *testing.T) {
			dir := t.TempDir()
			target := put(t, filepath.Join(dir, "target"), "precious")
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			if err := os.Symlink(target, from); err != nil {
				t.Fatal(err)
			}
			if err := by.rename(from, to); err != nil {
				t.Fatal(err)
			}
			if dest, err := os.Readlink(to); err != nil || dest != target || names(t, dir) != "target to" {
				t.Errorf("%q, %v; there are %s", dest, err, names(t, dir))
			}
		})
	}
}

func TestRenameNoReplaceNeverOverwrites(t *testing.T) {
	things := append(irregular[:len(irregular):len(irregular)], struct {
		kind string
		make func(name, target string) error
	}{"a file", func(name, _ string) error { return os.WriteFile(name, []byte("old"), 0o600) }})
	for _, by := range renames {
		for _, moved := range []string{"a file", "a directory"} {
			for _, thing := range things {
				t.Run(moved+" over "+thing.kind+" "+by.name, func(t *testing.T) {
					dir := t.TempDir()
					from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
					if moved == "a file" {
						put(t, from, "new")
					} else if err := os.Mkdir(from, 0o700); err != nil {
						t.Fatal(err)
					}
					if err := thing.make(to, from); err != nil {
						t.Fatal(err)
					}
					before := []durable.Identity{identify(t, from), identify(t, to)}
					if err := by.rename(from, to); !errors.Is(err, fs.ErrExist) {
						t.Errorf("error %v, want fs.ErrExist", err)
					}
					if after := identify(t, from); after != before[0] {
						t.Errorf("what was to be moved: %+v, was %+v", after, before[0])
					}
					if after := identify(t, to); after != before[1] {
						t.Errorf("what was in the way: %+v, was %+v", after, before[1])
					}
				})
			}
		}
	}
}

func TestRenameNoReplaceLeavesNothingBehindWhenItFails(t *testing.T) {
	for _, by := range renames {
		t.Run("of nothing, "+by.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := by.rename(filepath.Join(dir, "missing"), filepath.Join(dir, "to")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v, want fs.ErrNotExist", err)
			}
			if got := names(t, dir); got != "" {
				t.Errorf("there are %s", got)
			}
		})
		t.Run("of a directory into itself, "+by.name, func(t *testing.T) {
			dir := t.TempDir()
			from := filepath.Join(dir, "from")
			if err := os.Mkdir(from, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := by.rename(from, filepath.Join(from, "to")); err == nil {
				t.Error("it moved")
			}
			if names(t, dir) != "from" || names(t, from) != "" {
				t.Errorf("there are %s and in it %s", names(t, dir), names(t, from))
			}
		})
	}
}

func TestOfManyWhoPublishUnderOneNameOneWins(t *testing.T) {
	for _, by := range renames {
		t.Run(by.name, func(t *testing.T) {
			dir := t.TempDir()
			to := filepath.Join(dir, "to")
			var won atomic.Int32
			var all sync.WaitGroup
			for i := range 16 {
				from := put(t, filepath.Join(dir, string(rune('a'+i))), "content")
				all.Go(func() {
					switch err := by.rename(from, to); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, fs.ErrExist):
						t.Error(err)
					}
				})
			}
			all.Wait()
			if won.Load() != 1 {
				t.Errorf("%d of 16 won", won.Load())
			}
		})
	}
}
