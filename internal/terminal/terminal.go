// Package terminal makes pseudoterminals (pty(7)).
//
// A pseudoterminal has two ends: the one that a command has for its terminal, and this program's, which reads what
// the command writes and writes what it reads.
package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/screen"
)

// Pair are the two ends.
type Pair struct {
	// Own is this program's end, which has deadlines. A read behind the last byte of a command that is gone is EIO,
	// see [AtEnd].
	Own *os.File
	// Command is the end of the command, which has to be closed here when the command has it.
	Command *os.File
}

// Open makes a terminal of a size that was checked. It is as a person finds one: it echoes, edits lines and turns keys
// into signals.
func Open(size screen.Size) (Pair, error) {
	own, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Pair{}, fmt.Errorf("making a terminal: opening /dev/ptmx: %w: a container needs devpts mounted at /dev/pts", err)
	}
	fail := func(err error) (Pair, error) {
		unix.Close(own)
		return Pair{}, fmt.Errorf("making a terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(own, unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	// By number and not by path, so that it does not matter what is mounted where.
	number, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(own), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fail(errno)
	}
	p := Pair{os.NewFile(uintptr(own), "/dev/ptmx"), os.NewFile(number, "terminal")}
	if err := Resize(p.Own, size); err != nil {
		p.Close()
		return Pair{}, err
	}
	return p, nil
}

// Close closes both ends.
func (p Pair) Close() {
	p.Own.Close()
	p.Command.Close()
}

// Resize gives the terminal another size. Its foreground processes are told by SIGWINCH.
func Resize(own *os.File, size screen.Size) error {
	conn, err := own.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	err = conn.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)})
	})
	if err = errors.Join(err, ierr); err != nil {
		return fmt.Errorf("giving a terminal its size: %w", err)
	}
	return nil
}

// AtEnd reports whether a read's error says that nobody has the other end any more.
func AtEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) }
