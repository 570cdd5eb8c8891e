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

// megabytes is step for bytes.
func (p *progress) megabytes(done, total int64) { p.step(int(done>>20), int(total>>20)) }

// watched shows how much of r is read, of total bytes, 0 where that is not known, until its progress ends.
func (e *environment) watched(r io.Reader, what string, total int64) *watchedReader {
	w := &watchedReader{r: r, total: total, p: e.progress(what)}
	if total > 0 {
		w.p.what += ", MB"
	}
	return w
}

type watchedReader struct {
	r           io.Reader
	done, total int64
	p           *progress
}

func (w *watchedReader) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	w.done += int64(n)
	if w.total > 0 {
		w.p.megabytes(w.done, w.total)
	} else {
		w.p.bytes(w.done)
	}
	return n, err
}

// writerFunc is a writer that is a function.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// end takes the line off the terminal.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
