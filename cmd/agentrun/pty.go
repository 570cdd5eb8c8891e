package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/tool/bash"
)

// ptyHelp is the part of the help that verbs with --pty share.
const ptyHelp = `With --pty the command has a terminal, xterm-256color, for its input, output and
errors. The output is then what a person would have seen: the lines that
scrolled off the screen and the screen at the end, progress bars as their last
state. Every byte, colours and all, is kept as an artifact. Nobody types, so
that what asks a question waits for --timeout%s.`

// ptyFlags are --pty and --size.
type ptyFlags struct {
	on   bool
	size terminalSize
}

func (p *ptyFlags) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&p.on, "pty", false, "run the command at a terminal")
	f.Var(&p.size, "size", "with --pty: a terminal of `SIZE` (80x24)")
}

// terminal is the one that the flags ask for, nil for none.
func (p *ptyFlags) terminal() (*bash.Terminal, error) {
	switch {
	case p.on:
		return &bash.Terminal{Size: bash.TerminalSize(p.size)}, nil
	case p.size != terminalSize{}:
		return nil, usagef("--size is that of a terminal: give --pty too")
	}
	return nil, nil
}

// ptyResult is what --json says of a terminal.
type ptyResult struct {
	PTY  bool `json:"pty"`
	Rows int  `json:"rows"`
	Cols int  `json:"cols"`
}

func (p *ptyFlags) describe() *ptyResult {
	if !p.on {
		return nil
	}
	size := bash.TerminalSize(p.size).WithDefaults()
	return &ptyResult{true, size.Rows, size.Cols}
}

// typeIn types what comes from a file, and ends the input with it. It goes on until the file ends, or this process.
func typeIn(t *bash.Terminal, from *os.File) {
	go func() {
		if _, err := io.Copy(t, from); err == nil {
			_, _ = t.Write([]byte{0x04}) // Ctrl-D
		}
	}()
}

// terminalSize is the value of --size.
type terminalSize bash.TerminalSize

func (s *terminalSize) String() string {
	if *s == (terminalSize{}) {
		return ""
	}
	return bash.TerminalSize(*s).String()
}

func (s *terminalSize) Type() string { return "SIZE" }

func (s *terminalSize) Set(text string) error {
	cols, rows, ok := strings.Cut(text, "x")
	c, cerr := strconv.Atoi(cols)
	r, rerr := strconv.Atoi(rows)
	if !ok || cerr != nil || rerr != nil {
		return errors.New("give columns and rows, as in 80x24")
	}
	if err := (bash.TerminalSize{Rows: r, Cols: c}).Check(); err != nil {
		return err
	}
	*s = terminalSize{Rows: r, Cols: c}
	return nil
}
