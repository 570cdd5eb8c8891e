package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// clone is File.CloneFrom for the real file system.
func clone(dst, src File) error {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	if err != nil {
		return fmt.Errorf("sharing the blocks of %s with %s: %w", src.Name(), dst.Name(), unsupported(err))
	}
	return nil
}

// unsupported makes an error match errors.ErrUnsupported where it says that the two
// files, or their file systems, cannot do it: they say so in many ways.
func unsupported(err error) error {
	switch err {
	case unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.EPERM, unix.EACCES, unix.ETXTBSY:
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// writeRange is File.WriteRange for the real file system.
func writeRange(dst, src File, off, n int64) (done int64, err error) {
	for done < n {
		// Its own limit is below 2 GiB; a smaller step lets the disk begin.
		const step = 64 << 20
		at := off + done
		k, err := unix.CopyFileRange(int(src.Fd()), &at, int(dst.Fd()), nil, int(min(n-done, step)), 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return done, fmt.Errorf("copying from %s to %s: %w", src.Name(), dst.Name(), unsupported(err))
		case k == 0:
			return done, nil
		}
		done += int64(max(k, 0))
	}
	return done, nil
}

// linkFile is FS.LinkFile for the real file system.
func linkFile(f File, newpath string) error {
	fd := int(f.Fd())
	err := unix.Linkat(fd, "", unix.AT_FDCWD, newpath, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT {
		// Kernels before 6.10 ask for CAP_DAC_READ_SEARCH, and say it like this.
		err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, newpath, unix.AT_SYMLINK_FOLLOW)
	}
	runtime.KeepAlive(f)
	if err == unix.ENOENT {
		err = linkName(f, newpath) // there may be no /proc
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: f.Name(), New: newpath, Err: err}
	}
	return nil
}

// linkName links the name that f was opened by. Another file may stand there by now.
func linkName(f File, newpath string) error {
	err := unix.Linkat(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, newpath, 0)
	if err != nil {
		return err
	}
	was, err := f.Identify()
	if err == nil {
		var is Identity
		if is, err = OS.Identify(newpath); err == nil && !is.SameFile(was) {
			err = unix.ENOENT
		}
	}
	if err != nil {
		_ = unix.Unlink(newpath) // the first error is the one to report
	}
	return err
}

// copyBlock is how much Copy holds in memory: little enough to stay in the cache
// between the read and the write.
const copyBlock = 256 << 10

// Copy writes the bytes [off, end) of src to dst. Between two files the kernel does
// it. It fails with io.ErrUnexpectedEOF when src has fewer.
func Copy(dst io.Writer, src io.ReaderAt, off, end int64) error {
	to, isFile := dst.(File)
	if from, both := src.(File); isFile && both {
		n, err := to.WriteRange(from, off, end-off)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		off += n // what is left goes the long way, which also tells an end of src
	}
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
