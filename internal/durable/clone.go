package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// clone is File.CloneFrom for the real file system.
func clone(dst, src File) error {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTTY),
		errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		// File systems without shared blocks say so in many ways.
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return fmt.Errorf("sharing the blocks of %s with %s: %w", src.Name(), dst.Name(), err)
}

// copyBlock is how much Copy holds in memory: little enough to stay in the cache
// between the read and the write.
const copyBlock = 256 << 10

// Copy appends the bytes [off, end) of src to dst. It fails with
// io.ErrUnexpectedEOF when src has fewer.
func Copy(dst io.Writer, src io.ReaderAt, off, end int64) error {
	buf := make([]byte, max(0, min(end-off, copyBlock)))
	for off < end {
		n, err := src.ReadAt(buf[:min(end-off, copyBlock)], off)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
			off += int64(n)
		}
		if off < end && err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Idle reports whether no process has f open for writing at this moment; f itself
// must be open for reading only. known is false where the system does not tell:
// on a network file system, or for the file of another user.
//
// It asks for a lease, which the kernel grants on a file that nobody writes, and
// gives it back at once. A process that opens the file for writing at that very
// moment with O_NONBLOCK is refused (see fcntl(2)), so this is for files that are
// written only by those who made them.
func Idle(f File) (idle, known bool) {
	switch _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err {
	case nil:
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return true, err == nil
	case unix.EAGAIN:
		return false, true
	default:
		return false, false
	}
}

// RemoveAll removes what stands under name, a directory with all that is in it.
// Symbolic links are removed, not followed. Nothing under that name is no error. It
// goes on after an error, and returns the first.
func RemoveAll(fsys FS, name string) error {
	fsys = or(fsys)
	id, err := fsys.Identify(name)
	if err == nil && id.Mode&unix.S_IFMT == unix.S_IFDIR {
		var entries []fs.DirEntry
		entries, err = fsys.ReadDir(name)
		for _, e := range entries {
			if rerr := RemoveAll(fsys, filepath.Join(name, e.Name())); err == nil {
				err = rerr
			}
		}
		if rerr := fsys.Remove(name); err == nil {
			err = rerr
		}
	} else if err == nil {
		err = fsys.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
