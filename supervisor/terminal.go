package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/agentrun/agentrun/tool/bash"
)

// A terminal of a script is the supervisor's: its bytes come as output, and frames of the client type at it and resize
// it. What is typed is answered, so that the client hears of a command that does not read.

// maxTyped is the most that one frame types, in bytes.
const maxTyped = 64 << 10

// terminalOf makes the terminal that a request asks for, nil for none.
func (q *request) terminalOf(c *conn) *bash.Terminal {
	if q.Terminal == nil {
		return nil
	}
	t := &bash.Terminal{Size: *q.Terminal, Term: q.Term}
	if c != nil {
		t.Ended = func() { _ = c.send(frameEnding, nil) }
	}
	return t
}

// asks asks for the terminal of a script.
func (q *request) asks(t *bash.Terminal) {
	if t == nil {
		return
	}
	size := t.Size.WithDefaults()
	q.Terminal, q.Term = &size, t.Term
}

// typist does what frames of a client say about a terminal. Typing may wait for the command, and frames that end it do
// not wait for that.
type typist struct {
	c       *conn
	t       *bash.Terminal // nil is none
	mu      sync.Mutex     // one after the other
	running sync.WaitGroup
}

// frame does what a frame says, and reports whether it is about the terminal.
func (p *typist) frame(kind byte, b []byte) bool {
	switch kind {
	case frameType:
		p.running.Go(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			err := bash.ErrNoTerminal
			if p.t != nil {
				_, err = p.t.Write(b)
			}
			said := ""
			if err != nil {
				said = err.Error()
			}
			_ = p.c.send(frameTyped, []byte(said))
		})
	case frameResize:
		var size bash.TerminalSize
		if p.t != nil && json.Unmarshal(b, &size) == nil {
			_ = p.t.Resize(size) // the client has checked it
		}
	default:
		return false
	}
	return true
}

// line is the client's way to a terminal under a supervisor.
type line struct {
	c     *conn
	typed chan string // answers
	over  <-chan struct{}
	mu    sync.Mutex // one after the other
}

func newLine(c *conn, over <-chan struct{}) *line {
	return &line{c: c, typed: make(chan string, 1), over: over}
}

// Write implements [bash.TerminalLine].
func (l *line) Write(b []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(b) > 0 {
		piece := b[:min(len(b), maxTyped)]
		if err := l.c.send(frameType, piece); err != nil {
			return n, bash.ErrNoTerminal
		}
		select {
		case said := <-l.typed:
			if said == bash.ErrNoTerminal.Error() {
				return n, bash.ErrNoTerminal
			}
			if said != "" {
				return n, errors.New(said)
			}
		case <-l.over:
			return n, bash.ErrNoTerminal
		}
		n += len(piece)
		b = b[len(piece):]
	}
	return n, nil
}

// Resize implements [bash.TerminalLine].
func (l *line) Resize(s bash.TerminalSize) error { return l.c.sendJSON(frameResize, s) }

// frame takes what the supervisor says about the terminal t, and reports whether that is what a frame says.
func (l *line) frame(t *bash.Terminal, kind byte, b []byte) bool {
	switch {
	case kind == frameTyped:
		select {
		case l.typed <- string(b):
		default: // nobody asked
		}
	case kind == frameEnding && t != nil:
		t.Ending()
	default:
		return kind == frameEnding
	}
	return true
}

// attach lets a terminal type over the line. Who reads from the connection goes on meanwhile.
func (l *line) attach(t *bash.Terminal, running *sync.WaitGroup) {
	if t != nil {
		running.Go(func() { _, _ = t.Attach(l) }) // what can not be typed has been answered, or the connection is gone
	}
}

// typeAt types at the terminal of a job, and ends its input behind that.
func (j *job) typeAt(id int64, text string, eof bool) error {
	if eof {
		text += "\x04"
	}
	if _, err := j.terminal.Write([]byte(text)); err != nil {
		return fmt.Errorf("sending to job %d: %w", id, err)
	}
	return nil
}

// screen tells what the terminal of a job shows now.
func (s *server) screen(c *conn, q *request) error {
	j, err := s.job(q.Job)
	if err != nil {
		return err
	}
	if j.terminal == nil {
		return fmt.Errorf("job %d has no terminal: start one with jobs start --pty", q.Job)
	}
	return c.sendJSON(frameDone, done{Job: q.Job, Screen: j.terminal.Shown()})
}

// resize gives the terminal of a job another size.
func (s *server) resize(c *conn, q *request) error {
	j, err := s.job(q.Job)
	if err != nil {
		return err
	}
	if j.terminal == nil || q.Terminal == nil {
		return fmt.Errorf("job %d has no terminal: start one with jobs start --pty", q.Job)
	}
	if err := j.terminal.Resize(*q.Terminal); err != nil {
		return fmt.Errorf("resizing the terminal of job %d: %w", q.Job, err)
	}
	return c.sendJSON(frameDone, done{Job: q.Job})
}
