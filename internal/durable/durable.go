// Package durable is the one place where agentrun renames, links, locks and
// fsyncs. Everything that keeps a promise about bytes on disk goes through it.
//
// # Promises
//
//   - A replace is atomic: a reader sees the old file or the new one, whole.
//     With sync it is durable as well: the file is fsynced before the rename and
//     its directory after it.
//   - A publish (RenameNoReplace, CreateExclusive) never overwrites.
//   - A symbolic link in the last element of a file's name is never followed, and
//     a FIFO, device, socket or directory is never opened as a file nor waited for.
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
	"strings"
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
	// LinkFile gives the open file f another name, whatever stands by now under the
	// name it was opened by. The error matches fs.ErrExist when newpath exists, and
	// fs.ErrNotExist when f was removed.
	LinkFile(f File, newpath string) error
	// Symlink makes a symbolic link to target, which is written down as it is. It fails with an error that
	// matches fs.ErrExist when newpath exists.
	Symlink(target, newpath string) error
	Remove(name string) error
	Lstat(name string) (fs.FileInfo, error)
	// Identify is a stat that follows no final symbolic link and allocates
	// nothing.
	Identify(name string) (Identity, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
	// SyncFS makes everything durable that is on the file system of the directory
	// name, whoever wrote it: for those who have made very many files.
	SyncFS(name string) error
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
	// CloneFrom makes the file, which must be empty, a copy of src that shares its
	// blocks until one of the two is written to (a reflink). The error matches
	// errors.ErrUnsupported where the file system cannot do that.
	CloneFrom(src File) error
	// Chmod sets the permissions of the file, whatever the umask is.
	Chmod(mode fs.FileMode) error
	// Touch gives the file the time of now, whatever it was opened for.
	Touch() error
	// WriteRange writes the n bytes of src from off on where the next Write would go,
	// without bringing them here, and returns how many it wrote; fewer at the end of
	// src, without an error. The error matches errors.ErrUnsupported where the file
	// system cannot do that. Most callers want Copy.
	WriteRange(src File, off, n int64) (int64, error)
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

// MkdirAll makes dir and every missing directory above it, each 0700. A symbolic
// link to a directory counts as one, for people move their homes; a caller that
// wants none looks itself. It syncs nothing.
func MkdirAll(fsys FS, dir string) error {
	fsys = or(fsys)
	there, err := isDir(fsys, dir)
	if there || err != nil {
		return err
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	err = fsys.Mkdir(dir, DirPerm)
	if errors.Is(err, fs.ErrExist) { // somebody was faster; with a directory?
		if there, err := isDir(fsys, dir); there || err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	return nil
}

// isDir reports whether dir is there. Anything but a directory or a link to one
// under that name is an error.
func isDir(fsys FS, dir string) (bool, error) {
	info, err := fsys.Lstat(dir)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		// The link is no longer the last element of this name, so it is followed.
		if info, err = fsys.Lstat(dir + string(filepath.Separator) + "."); err != nil {
			return false, fmt.Errorf("making directory %s: a symbolic link that leads to no directory is in the way: %w", dir, err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("making directory %s: %w", dir, err)
	case !info.IsDir():
		return false, fmt.Errorf("making directory %s: a file of that name is in the way", dir)
	}
	return true, nil
}

const (
	// tempTries bounds the search for a free temporary name.
	tempTries = 64
	// maxTempPrefix leaves room for the rest of a temporary name: a name has at
	// most 255 bytes on Linux, and 19 of them may be ours.
	maxTempPrefix = 255 - 19
)

// CreateTemp makes a new file ".tmp-<prefix>-<random>" in dir. A prefix that
// leaves no room for the rest is cut.
func CreateTemp(fsys FS, dir, prefix string) (File, error) {
	fsys = or(fsys)
	if len(prefix) > maxTempPrefix {
		prefix = strings.ToValidUTF8(prefix[:maxTempPrefix], "")
	}
	for try := 0; ; try++ {
		name := filepath.Join(dir, ".tmp-"+prefix+"-"+strconv.FormatUint(rand.Uint64(), 36))
		f, err := CreateExclusive(fsys, name)
		if err == nil || !errors.Is(err, fs.ErrExist) || try == tempTries {
			return f, err
		}
	}
}
