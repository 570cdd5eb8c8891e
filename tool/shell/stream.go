package shell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/tool/bash"
)

const (
	pipeSize = 1 << 20   // the most that pipe(7) gives to everybody: who writes much waits less often
	chunk    = 128 << 10 // of one read
)

// stream is the reading end of a pipe that lives as long as its shell.
type stream struct {
	r, w    *os.File // w is kept open where the shell opens it by its path
	mu      *sync.Mutex
	deliver func([]byte)
	buf     []byte
	running sync.WaitGroup
}

func newStream(r *os.File, deliver func([]byte)) *stream {
	return &stream{r: r, mu: new(sync.Mutex), deliver: deliver, buf: make([]byte, chunk)}
}

// start begins to read. A piece is read and delivered under one lock: who holds it knows that nothing is on its way.
func (s *stream) start() {
	conn, err := s.r.SyscallConn()
	if err != nil {
		return
	}
	s.running.Go(func() {
		over := false
		for !over {
			err := conn.Read(func(fd uintptr) bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				n, err := unix.Read(int(fd), s.buf)
				switch {
				case n > 0:
					s.deliver(s.buf[:n])
				case errors.Is(err, unix.EAGAIN):
					return false
				case !errors.Is(err, unix.EINTR):
					over = true
				}
				return true
			})
			if err != nil {
				return
			}
		}
	})
}

// sweep takes what is in the pipe, without waiting, and no more than a pipe holds. The caller holds mu.
func (s *stream) sweep() {
	conn, err := s.r.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		if err != nil {
			size = chunk
		}
		for size > 0 {
			n, err := unix.Read(int(fd), s.buf[:min(size, len(s.buf))])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				return
			}
			s.deliver(s.buf[:n])
			size -= n
		}
	})
}

func (s *stream) lockedSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
}

func (s *stream) close() {
	if s.w != nil {
		s.w.Close()
	}
	if s.r != nil {
		s.r.Close()
	}
	s.running.Wait()
}

// openPipe makes a pipe, of which one end is for the shell: that one blocks, as programs expect.
func openPipe(reader bool) (ours, theirs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	mine, other := p[0], p[1]
	if !reader {
		mine, other = other, mine
	}
	if err := unix.SetNonblock(mine, true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, nil, err
	}
	_, _ = unix.FcntlInt(uintptr(mine), unix.F_SETPIPE_SZ, pipeSize) // as large as this user may have them
	return os.NewFile(uintptr(mine), "|"), os.NewFile(uintptr(other), "|"), nil
}

// maxHeld is how much of what comes between two scripts is kept for the next one.
const maxHeld = 64 << 10

// held is what processes in the background wrote between two scripts.
type held struct {
	pieces  []piece
	bytes   int
	dropped int64
}

type piece struct {
	b      []byte
	stderr bool
}

func (h *held) add(b []byte, stderr bool) {
	h.pieces = append(h.pieces, piece{append([]byte(nil), b...), stderr})
	h.bytes += len(b)
	for h.bytes > maxHeld {
		first := &h.pieces[0]
		n := min(len(first.b), h.bytes-maxHeld)
		first.b = first.b[n:]
		h.bytes -= n
		h.dropped += int64(n)
		if len(first.b) == 0 {
			h.pieces = h.pieces[1:]
		}
	}
}

// deliver gives it to a script's writers.
func (h *held) deliver(c *bash.Script) {
	write := func(w io.Writer, b []byte) {
		if w != nil {
			_, _ = w.Write(b) // it will say so again when the script writes
		}
	}
	if h.dropped > 0 {
		write(c.Stdout, fmt.Appendf(nil, "[%d bytes that the background of the shell wrote before were dropped]\n", h.dropped))
	}
	for _, p := range h.pieces {
		if p.stderr {
			write(c.Stderr, p.b)
		} else {
			write(c.Stdout, p.b)
		}
	}
	*h = held{}
}

// copyFile makes to what from is.
func copyFile(to, from *os.File) error {
	if _, err := io.Copy(io.NewOffsetWriter(to, 0), io.NewSectionReader(from, 0, maxState)); err != nil {
		return fmt.Errorf("copying the state of the shell: %w", err)
	}
	return nil
}
