package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/sandbox"
)

// exchange is where a shell opens by their paths what belongs to this process: its files in /proc. In a sandbox nothing
// of another process can be opened, and they are files of a directory that is the sandbox's own.
type exchange struct {
	box   *sandbox.Box
	files atomic.Int64
}

// exchangeName is the directory of a sandbox's own files.
const exchangeName = ".agentrun"

// dirs are the directory as this process sees it and as the shell does.
func (x *exchange) dirs() (outside, inside string) {
	if x.box != nil {
		if outside, inside = x.box.Tmp(); outside != "" {
			return filepath.Join(outside, exchangeName), inside + "/" + exchangeName
		}
	}
	own := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd"
	return "", own
}

// file makes a file, and tells its name in the directory.
func (x *exchange) file(name string) (*os.File, string, error) {
	outside, _ := x.dirs()
	if outside == "" {
		fd, err := unix.MemfdCreate("agentrun-"+name, unix.MFD_CLOEXEC)
		if err != nil {
			return nil, "", fmt.Errorf("making a file in memory: %w", err)
		}
		return os.NewFile(uintptr(fd), name), strconv.Itoa(fd), nil
	}
	name, err := x.next(outside)
	if err != nil {
		return nil, "", err
	}
	f, err := os.OpenFile(filepath.Join(outside, name), os.O_CREATE|os.O_EXCL|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("making a file for a shell: %w", err)
	}
	return f, name, nil
}

// next is a name that was not used.
func (x *exchange) next(outside string) (string, error) {
	if err := os.Mkdir(outside, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making a directory for a shell: %w", err)
	}
	return strconv.FormatInt(x.files.Add(1), 10), nil
}

// fifo makes a named pipe in the directory of a sandbox.
func (x *exchange) fifo() (path, name string, err error) {
	outside, _ := x.dirs()
	if name, err = x.next(outside); err != nil {
		return "", "", err
	}
	path = filepath.Join(outside, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return "", "", fmt.Errorf("making a pipe for a shell: %w", err)
	}
	return path, name, nil
}

// telling makes the pipe over which the loop tells: r is read, and w is what keeps it open.
func (x *exchange) telling(r, w *os.File) (_, _ *os.File, name string, err error) {
	outside, _ := x.dirs()
	if outside == "" {
		return r, w, strconv.Itoa(int(w.Fd())), nil
	}
	r.Close()
	w.Close()
	path, name, err := x.fifo()
	if err != nil {
		return nil, nil, "", err
	}
	if r, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0); err == nil {
		if w, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW, 0); err == nil {
			return r, w, name, nil
		}
		r.Close()
	}
	return nil, nil, "", fmt.Errorf("making a pipe for a shell: %w", err)
}

// input is the path under which the shell finds what is at path. stop ends what is needed for that.
func (x *exchange) input(path string) (seen string, stop func(), err error) {
	outside, inside := x.dirs()
	if outside == "" {
		return path, func() {}, nil
	}
	from, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", nil, fmt.Errorf("opening what the script reads: %w", err)
	}
	fifo, name, err := x.fifo()
	if err != nil {
		from.Close()
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var copying sync.WaitGroup
	copying.Go(func() {
		to, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NOFOLLOW, 0) // waits for who reads
		if err != nil {
			return
		}
		defer to.Close()
		if ctx.Err() == nil {
			_, _ = io.Copy(to, from)
		}
	})
	return inside + "/" + name, func() {
		cancel()
		if r, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0); err == nil {
			defer r.Close()
		}
		from.Close()
		copying.Wait()
		_ = os.Remove(fifo)
	}, nil
}
