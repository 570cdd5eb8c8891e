package bash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/terminal"
)

// chunk is the size of one read: that of a pipe, as Linux makes it.
const chunk = 64 << 10

// streams are the output pipes of one command: one for both streams, or one for each.
type streams struct {
	pipes []*pipe
}

// pipe is one of them, copied into w by one goroutine.
type pipe struct {
	r, child *os.File // child is the command's end; nil once the command has it
	w        io.Writer
	buf      []byte
	running  sync.WaitGroup
	eof      bool  // owned by the goroutine, then by who waited for it
	err      error // the same

	mu    sync.Mutex
	until time.Time // when not zero, the command has ended: silence is the end, and this moment is
	quiet time.Duration
}

func openStreams(stdout, stderr io.Writer) (*streams, error) {
	s := &streams{}
	writers := []io.Writer{stdout}
	if !same(stdout, stderr) {
		writers = append(writers, stderr)
	}
	for _, w := range writers {
		r, child, err := os.Pipe()
		if err != nil {
			s.close()
			return nil, fmt.Errorf("making a pipe for the output: %w", err)
		}
		if w == nil {
			w = io.Discard
		}
		s.pipes = append(s.pipes, &pipe{r: r, child: child, w: w})
	}
	return s, nil
}

// same reports whether two writers are one; those of a type that can not be compared are two.
func same(a, b io.Writer) (eq bool) {
	defer func() {
		if recover() != nil {
			eq = false
		}
	}()
	return a == b
}

func (s *streams) childStdout() *os.File { return s.pipes[0].child }
func (s *streams) childStderr() *os.File { return s.pipes[len(s.pipes)-1].child }

// start begins copying. The command has its ends by now; ours must go, or there would never be an end of file.
func (s *streams) start() {
	for _, p := range s.pipes {
		p.child.Close()
		p.child = nil
		p.buf = make([]byte, chunk)
		p.running.Go(p.copy)
	}
}

// finish is called when the leader has ended. It waits for the end of file of each pipe, for silence, or for the
// end of patience.
func (s *streams) finish(pt *patience) {
	for _, p := range s.pipes {
		p.mu.Lock()
		now := time.Now()
		p.until, p.quiet = now.Add(pt.drain), pt.quiet
		p.extend(now)
		p.mu.Unlock()
	}
	for _, p := range s.pipes {
		p.running.Wait()
	}
}

// sweep takes what is still in the pipes, without waiting and no more than a pipe holds: all that was in it when
// the leader ended is among that, and somebody who writes for ever is not read for ever. It reports whether all
// pipes had their end of file.
func (s *streams) sweep() bool {
	all := true
	for _, p := range s.pipes {
		p.sweep()
		all = all && p.eof
	}
	return all
}

func (s *streams) err() error {
	var errs []error
	for _, p := range s.pipes {
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

func (s *streams) close() {
	for _, p := range s.pipes {
		p.r.Close()
		if p.child != nil {
			p.child.Close()
		}
	}
}

func (p *pipe) copy() {
	for {
		n, err := p.r.Read(p.buf)
		p.deliver(p.buf[:n])
		switch {
		case err == nil:
			p.mu.Lock()
			if !p.until.IsZero() {
				p.extend(time.Now())
			}
			p.mu.Unlock()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		default:
			p.ended(err)
			return
		}
	}
}

// extend gives the writer at the other end another while, within the bound. The caller holds mu.
func (p *pipe) extend(now time.Time) {
	deadline := now.Add(p.quiet)
	if deadline.After(p.until) {
		deadline = p.until
	}
	if err := p.r.SetReadDeadline(deadline); err != nil {
		p.r.Close() // a pipe without deadlines could hold us for ever
	}
}

func (p *pipe) ended(err error) {
	p.eof = true
	if !terminal.AtEnd(err) {
		p.fail(fmt.Errorf("reading the output of the command: %w", err))
	}
}

func (p *pipe) deliver(b []byte) {
	if len(b) == 0 || p.err != nil {
		return
	}
	if _, err := p.w.Write(b); err != nil {
		p.fail(fmt.Errorf("passing on the output of the command: %w", err))
	}
}

func (p *pipe) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *pipe) sweep() {
	if p.eof {
		return
	}
	conn, err := p.r.SyscallConn()
	if err != nil {
		p.fail(err)
		return
	}
	// Control, not Read: the deadline has passed, and Read would say that instead of reading.
	err = conn.Control(func(fd uintptr) {
		size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		if err != nil {
			size = chunk
		}
		for size > 0 {
			n, err := unix.Read(int(fd), p.buf[:min(size, len(p.buf))])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 { // EAGAIN: nothing is there now
				p.eof = n == 0 && err == nil || errors.Is(err, unix.EIO)
				return
			}
			p.deliver(p.buf[:n])
			size -= n
		}
	})
	if err != nil {
		p.fail(err)
	}
}
