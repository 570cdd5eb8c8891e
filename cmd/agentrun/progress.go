package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/outputsink"
)

// isTerminal reports whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// progress is a line on the terminal about something that takes more than a second.
type progress struct {
	w     io.Writer // nil where there is no terminal
	what  string
	shown time.Time
	drawn bool
}

func (e *environment) progress(what string) *progress {
	p := &progress{what: what, shown: time.Now()}
	if !e.quiet && isTerminal(e.stderr) {
		p.w = e.stderr
	}
	return p
}

// step shows how far it has come, once a second.
func (p *progress) step(done, total int) {
	if p.w == nil || time.Since(p.shown) < time.Second {
		return
	}
	p.shown, p.drawn = time.Now(), true
	fmt.Fprintf(p.w, "\r\x1b[K%s: %d of %d", p.what, done, total)
}

// bytes is step for an amount of bytes whose total is not known.
func (p *progress) bytes(done int64) {
	if p.w == nil || time.Since(p.shown) < time.Second {
		return
	}
	p.shown, p.drawn = time.Now(), true
	fmt.Fprintf(p.w, "\r\x1b[K%s: %s", p.what, outputsink.FormatBytes(done))
}

// end takes the line off the terminal.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
