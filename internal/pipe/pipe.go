// Package pipe reads what long-lived processes write to pipes.
//
// A [Reader] delivers as it comes, in a goroutine of its own, and can be swept: what was in the pipe at that moment
// has then been delivered. So the end of a script that was told by another way finds all that the script had written.
//
// Everything may be called concurrently. The package needs Linux.
package pipe

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	size  = 1 << 20   // the most that pipe(7) gives to everybody: who writes much waits less often
	chunk = 128 << 10 // of one read
)

// Open makes a pipe, of which one end is for another process: that one blocks, as programs expect. With reader the
// end of this process is the one to read from.
func Open(reader bool) (ours, theirs *os.File, err error) {
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
	_, _ = unix.FcntlInt(uintptr(mine), unix.F_SETPIPE_SZ, size) // as large as this user may have them
	return os.NewFile(uintptr(mine), "|"), os.NewFile(uintptr(other), "|"), nil
}

// Reader is the reading end of a pipe that lives as long as its writer.
type Reader struct {
	r       *os.File
	mu      *sync.Mutex
	deliver func([]byte)
	buf     []byte
	running sync.WaitGroup
	ended   chan struct{}
}

// NewReader reads from r, which is the Reader's from now on. deliver is called with mu held, by one goroutine at a
// time; Readers that share it deliver one at a time. nil is a lock of the Reader's own.
func NewReader(r *os.File, mu *sync.Mutex, deliver func([]byte)) *Reader {
	if mu == nil {
		mu = new(sync.Mutex)
	}
	return &Reader{r: r, mu: mu, deliver: deliver, buf: make([]byte, chunk), ended: make(chan struct{})}
}

// Start begins to read. A piece is read and delivered under one lock: who holds it knows that nothing is on its way.
func (s *Reader) Start() {
	conn, err := s.r.SyscallConn()
	if err != nil {
		close(s.ended)
		return
	}
	s.running.Go(func() {
		defer close(s.ended)
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

// Ended is closed when a Reader that was started reads no more: nobody has the other end, or it was closed.
func (s *Reader) Ended() <-chan struct{} { return s.ended }

// Sweep takes what is in the pipe, without waiting, and no more than a pipe holds. The caller holds the lock.
func (s *Reader) Sweep() {
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

// LockedSweep is Sweep for a caller that does not hold the lock.
func (s *Reader) LockedSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Sweep()
}

// Close ends the reading and waits for it. Nothing is delivered behind it.
func (s *Reader) Close() {
	s.r.Close()
	s.running.Wait()
}
