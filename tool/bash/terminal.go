package bash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internal/screen"
	"github.com/agentrun/agentrun/internal/terminal"
	"github.com/agentrun/agentrun/outputsink"
)

// TerminalSize is the size of a terminal in characters. Zeros are 24 rows and 80 columns; at most 500 and 1000.
type TerminalSize = screen.Size

// DefaultTerm is what a terminal is called unless it is given another name.
const DefaultTerm = "xterm-256color"

const (
	maxTyped = 64 << 10         // bytes that may be typed before there is a terminal
	typeWait = 10 * time.Second // for which a command may leave what is typed unread
)

// ErrNoTerminal is returned by what is done to a terminal whose command has ended.
var ErrNoTerminal = errors.New("the terminal is gone: its command has ended")

// Terminal is a terminal for one run: the command's standard input, output and error, and what /dev/tty is for it. The
// command leads its session. What the terminal showed becomes the view: the lines that scrolled off it, long ones in
// one, and the screen at the end, progress bars as their last state. The artifact has every byte, and is made as soon as
// there were others than those of the view.
//
// Nobody types unless Write is called, so a command that asks a question waits until its timeout. Methods may be called
// by any number of goroutines, before, while and after the command runs. A Terminal must not be used for a second run.
type Terminal struct {
	Size TerminalSize
	Term string // the variable TERM; "" is DefaultTerm

	// Ended is called when the command is about to be ended, by its timeout, a limit, or because it was cancelled. Nil
	// is nobody.
	Ended func()

	mu     sync.Mutex
	line   TerminalLine
	typed  []byte // before there was a line
	screen *screen.Screen
	ended  bool
}

// TerminalLine is where a [Runner] takes what is typed.
type TerminalLine interface {
	io.Writer
	Resize(s TerminalSize) error
}

// Write types. Control characters do what keys do: 0x03 (Ctrl-C) interrupts, 0x04 (Ctrl-D) at the beginning of a line
// ends the input, carriage return is the key Enter, and newline is as good. A command that does not read for ten seconds
// while the terminal has no room for more is an error; so is one that has ended. Before the command runs 64 KiB may be
// typed ahead.
func (t *Terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	line := t.line
	if line == nil {
		defer t.mu.Unlock()
		if t.ended {
			return 0, ErrNoTerminal
		}
		n := min(len(b), maxTyped-len(t.typed))
		if t.typed = append(t.typed, b[:n]...); n < len(b) {
			return n, fmt.Errorf("typing before the command runs: there is room for %s", quantity.Size(maxTyped))
		}
		return n, nil
	}
	t.mu.Unlock()
	return line.Write(b)
}

// Resize gives the terminal another size, which the command is told by SIGWINCH. What the command wrote before it hears
// of that is laid out anew.
func (t *Terminal) Resize(s TerminalSize) error {
	s = s.WithDefaults()
	if err := s.Check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return ErrNoTerminal
	}
	if t.line != nil {
		if err := t.line.Resize(s); err != nil {
			return err
		}
	}
	t.Size = s
	if t.screen != nil {
		t.screen.Resize(s)
	}
	return nil
}

// Shown is what the screen shows now, its rows as lines; "" when the command does not run yet.
func (t *Terminal) Shown() string {
	t.mu.Lock()
	s := t.screen
	t.mu.Unlock()
	if s == nil {
		return ""
	}
	return s.Shown()
}

// Attach is for Runners: from now on what is typed goes to the line, beginning with what was typed before. The size is
// the one that the terminal has to have now.
func (t *Terminal) Attach(line TerminalLine) (TerminalSize, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := t.Size.WithDefaults()
	if t.ended || t.line != nil {
		return size, ErrNoTerminal
	}
	t.line = line
	if err := line.Resize(size); err != nil {
		return size, err
	}
	typed := t.typed
	t.typed = nil
	if len(typed) == 0 {
		return size, nil
	}
	_, err := line.Write(typed)
	return size, err
}

// Ending is for Runners: the command is about to be ended. What its screen shows now stays part of the view.
func (t *Terminal) Ending() {
	t.mu.Lock()
	s, told := t.screen, t.Ended
	t.mu.Unlock()
	if s != nil {
		s.Keep()
	}
	if told != nil {
		told()
	}
}

// end takes the line away.
func (t *Terminal) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line, t.ended = nil, true
}

// Variable is TERM=... for the environment of the command.
func (t *Terminal) Variable() string {
	if t.Term == "" {
		return "TERM=" + DefaultTerm
	}
	return "TERM=" + t.Term
}

// checkTerminal checks what goes together with a terminal.
func (o *Options) checkTerminal() error {
	switch {
	case o.Separate:
		return errors.New("running a command: a terminal has one stream: leave out either the terminal or the separation of streams")
	case o.Stdin != nil || o.StdinPath != "":
		return errors.New("running a command: what it reads is typed at its terminal: leave out either the terminal or the input")
	case o.Language != nil:
		return errors.New("running a command: only shells and programs can have a terminal")
	}
	return o.Terminal.Size.WithDefaults().Check()
}

// see makes the screen that a view comes from.
func (t *Terminal) see() (func(text func([]byte)) outputsink.Screen, error) {
	size := t.Size.WithDefaults()
	var show func([]byte)
	s, err := screen.New(size, func(b []byte) { show(b) })
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen = s
	return func(text func([]byte)) outputsink.Screen {
		show = text
		return s
	}, nil
}

// OpenTerminal is for Runners: it makes the terminal of a command, as one end for the command, which has to be closed
// here when the command has it, and one to read from. Reading ends with EOF or EIO.
func (t *Terminal) OpenTerminal() (own, command *os.File, err error) {
	t.mu.Lock()
	size := t.Size.WithDefaults()
	t.mu.Unlock()
	pair, err := terminal.Open(size)
	if err != nil {
		return nil, nil, err
	}
	if _, err := t.Attach(keyboard{pair.Own}); err != nil {
		pair.Close()
		return nil, nil, err
	}
	return pair.Own, pair.Command, nil
}

// keyboard is the end of a pseudoterminal that is typed at.
type keyboard struct{ *os.File }

func (k keyboard) Resize(s TerminalSize) error { return terminal.Resize(k.File, s) }

func (k keyboard) Write(b []byte) (int, error) {
	if err := k.SetWriteDeadline(time.Now().Add(typeWait)); err != nil {
		return 0, ErrNoTerminal
	}
	n, err := k.File.Write(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("typing: the command took %d of %d bytes, and has read no more for %s", n, len(b), quantity.Time(typeWait))
	case err != nil:
		err = ErrNoTerminal
	}
	return n, err
}
