// Package durable is the one place where agentrun renames, links, locks and
// fsyncs. Everything that keeps a promise about bytes on disk goes through it.
//
// # Promises
//
//   - A replace is atomic: a reader sees the old file or the new one, whole.
//     With sync it is durable as well: the file is fsynced before the rename and
//     its directory after it.
//   - A publish (RenameNoReplace, CreateExclusive) never overwrites.
//   - A symbolic link in the last element of a name is never followed, and a
//     FIFO, device, socket or directory is never opened as a file.
//   - Files are made 0600 and directories 0700.
//
// # The seam
//
// FS and File are what tests replace to make disks fail: package faultfs counts
// every mutating operation and fails the one that a test asks for. Code above
// this package takes an FS, where nil means OS.
//
// FS implementations are safe for concurrent use. A File is as safe as an
// *os.File.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
)

// Permissions of everything agentrun makes.
const (
	FilePerm fs.FileMode = 0o600
	DirPerm  fs.FileMode = 0o700
)

// FS is the part of a file system that agentrun uses.
type FS interface {
	// OpenFile opens a regular file. O_CLOEXEC and O_NOFOLLOW are always added.
	// Anything else than a regular file is refused with a *NotRegularError.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string, perm fs.FileMode) error
	Rename(oldpath, newpath string) error
	// RenameNoReplace renames and fails with an error that matches
	// fs.ErrExist when newpath exists.
	RenameNoReplace(oldpath, newpath string) error
	Link(oldpath, newpath string) error
	Remove(name string) error
	Lstat(name string) (fs.FileInfo, error)
	// Identify is a stat that follows no final symbolic link and allocates
	// nothing.
	Identify(name string) (Identity, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
}

// File is an open regular file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Name() string
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	// Identify is an fstat that allocates nothing.
	Identify() (Identity, error)
	Fd() uintptr
}

// Identity says which file a name or descriptor stands for, and how it looks
// now.
type Identity struct {
	Dev, Ino uint64
	Size     int64
	ModTime  int64  // nanoseconds since 1970
	Mode     uint32 // st_mode, type bits included
	Links    uint64 // names the file has; 0 means deleted
}

// SameFile reports whether both identities are of one file.
func (i Identity) SameFile(j Identity) bool { return i.Dev == j.Dev && i.Ino == j.Ino }

// NotRegularError is returned for a name that is no regular file.
type NotRegularError struct {
	Name string
	Kind string // "a directory", "a symbolic link", "a FIFO", "a device", "a socket"
}

func (e *NotRegularError) Error() string {
	return e.Name + " is " + e.Kind + ", not a regular file"
}

// or returns fsys, or OS when it is nil.
func or(fsys FS) FS {
	if fsys == nil {
		return OS
	}
	return fsys
}

// MkdirAll makes dir and every missing directory above it, each 0700.
func MkdirAll(fsys FS, dir string) error {
	fsys = or(fsys)
	info, err := fsys.Lstat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil && info.Mode()&fs.ModeSymlink == 0:
		return fmt.Errorf("making directory %s: a file of that name is in the way", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	if parent := filepath.Dir(dir); parent != dir && err != nil {
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(dir, DirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	return nil
}

// tempTries bounds the search for a free temporary name.
const tempTries = 64

// CreateTemp makes a new file ".tmp-<prefix>-<random>" in dir.
func CreateTemp(fsys FS, dir, prefix string) (File, error) {
	fsys = or(fsys)
	for try := 0; ; try++ {
		name := filepath.Join(dir, ".tmp-"+prefix+"-"+strconv.FormatUint(rand.Uint64(), 36))
		f, err := CreateExclusive(fsys, name)
		if err == nil || !errors.Is(err, fs.ErrExist) || try == tempTries {
			return f, err
		}
	}
}
