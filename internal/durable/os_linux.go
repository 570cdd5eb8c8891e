package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is the real file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	fd, _, err := openRegular(name, flag, perm)
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK goes; these are all the other flags that can be set now.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flag&(unix.O_APPEND|unix.O_DIRECT|unix.O_NOATIME)); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "fcntl", Path: name, Err: err}
	}
	return osFile{os.NewFile(uintptr(fd), name)}, nil
}

// openRegular opens a regular file, with O_NONBLOCK still set.
func openRegular(name string, flag int, perm fs.FileMode) (fd int, st unix.Stat_t, err error) {
	// O_NONBLOCK keeps the open of a FIFO from waiting for its other end; it
	// means nothing for a regular file, and the runtime's poller refuses those.
	fd, err = openat(name, flag|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, perm)
	if err != nil {
		if kind := kindOf(name); kind != "" && !errors.Is(err, fs.ErrExist) {
			return -1, st, &NotRegularError{Name: name, Kind: kind}
		}
		return -1, st, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if kind := kindOfMode(st.Mode); kind != "" {
		unix.Close(fd)
		return -1, st, &NotRegularError{Name: name, Kind: kind}
	}
	return fd, st, nil
}

// readFile is ReadFile for the real file system: four system calls, where an *os.File
// takes nine.
func (osFS) readFile(name string, limit int64) ([]byte, error) {
	fd, st, err := openRegular(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	left := st.Size
	return readAll(name, st.Size, limit, func(p []byte) (int, error) {
		for {
			n, err := unix.Read(fd, p)
			switch left -= int64(max(n, 0)); {
			case err == unix.EINTR:
			case err != nil:
				return 0, &fs.PathError{Op: "read", Path: name, Err: err}
			case n <= 0, left == 0 && n < len(p): // no need to ask once more
				return max(n, 0), io.EOF
			default:
				return n, nil
			}
		}
	})
}

func openat(name string, flag int, perm fs.FileMode) (int, error) {
	for {
		fd, err := unix.Openat(unix.AT_FDCWD, name, flag|unix.O_LARGEFILE, uint32(perm.Perm()))
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// kindOf names what stands under name when that is no regular file.
func kindOf(name string) string {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil {
		return ""
	}
	return kindOfMode(st.Mode)
}

func kindOfMode(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return ""
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	default:
		return "a device"
	}
}

func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }
func (osFS) Rename(oldpath, newpath string) error      { return os.Rename(oldpath, newpath) }
func (osFS) Link(oldpath, newpath string) error        { return os.Link(oldpath, newpath) }
func (osFS) LinkFile(f File, newpath string) error     { return linkFile(f, newpath) }
func (osFS) Symlink(target, newpath string) error      { return os.Symlink(target, newpath) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return os.ReadDir(name)
}

func (osFS) RenameNoReplace(oldpath, newpath string) error {
	err := unix.Renameat2(unix.AT_FDCWD, oldpath, unix.AT_FDCWD, newpath, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return publish(oldpath, newpath)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldpath, New: newpath, Err: err}
	}
	return nil
}

// publish is RenameNoReplace for file systems without such a rename.
func publish(oldpath, newpath string) error {
	info, err := os.Lstat(oldpath)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		// A link fails on an existing name just the same.
		if err := os.Link(oldpath, newpath); err != nil {
			return err
		}
		if err := os.Remove(oldpath); err != nil {
			// One file under two names is not what was asked for.
			return errors.Join(err, os.Remove(newpath))
		}
		return nil
	}
	// Directories have no links, but one takes the place of another that is empty,
	// and making that one fails on an existing name.
	if err := os.Mkdir(newpath, DirPerm); err != nil {
		return err
	}
	// os.Rename refuses every existing directory, also an empty one.
	if err := unix.Rename(oldpath, newpath); err != nil {
		return errors.Join(&os.LinkError{Op: "rename", Old: oldpath, New: newpath, Err: err}, unix.Rmdir(newpath))
	}
	return nil
}

func (osFS) SyncDir(name string) error {
	d, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, unix.EINVAL) {
		return nil // a file system that cannot sync directories has nothing to lose
	}
	return err
}

func (osFS) SyncFS(name string) error {
	d, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: name, Err: err}
	}
	return nil
}

// WriteOut asks the kernel to begin writing f out, so that a sync that comes later has
// less to wait for. It promises nothing, and what goes wrong shows in that sync.
func WriteOut(f File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// maxStackPath is the longest name that Identify handles without allocating.
const maxStackPath = 511

func (osFS) Identify(name string) (Identity, error) {
	var st unix.Stat_t
	var err error
	if len(name) <= maxStackPath && strings.IndexByte(name, 0) < 0 {
		var buf [maxStackPath + 1]byte
		copy(buf[:], name)
		err = lstat(&buf[0], &st)
		runtime.KeepAlive(&buf)
	} else {
		err = unix.Lstat(name, &st)
	}
	if err != nil {
		return Identity{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return identity(&st), nil
}

// lstat is unix.Lstat for a name that ends in NUL already: the allocation of a
// C string would be a third of the cost of an append.
func lstat(name *byte, st *unix.Stat_t) error {
	for {
		_, _, errno := syscall.Syscall6(unix.SYS_NEWFSTATAT, uintptr(atFDCWD),
			uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// atFDCWD is a variable because a negative constant is no uintptr.
var atFDCWD = unix.AT_FDCWD

func (f osFile) CloneFrom(src File) error { return clone(f, src) }

func (f osFile) WriteRange(src File, off, n int64) (int64, error) { return writeRange(f, src, off, n) }

func (f osFile) Identify() (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Identity{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return identity(&st), nil
}

// Touch is futimens(2) without times, which asks for no more than the right to write.
func (f osFile) Touch() error {
	for {
		_, _, errno := syscall.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, 0, 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: "touch", Path: f.Name(), Err: errno}
		}
	}
}

func identity(st *unix.Stat_t) Identity {
	return Identity{
		Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size,
		ModTime: st.Mtim.Nano(), Mode: st.Mode, Links: uint64(st.Nlink),
	}
}
