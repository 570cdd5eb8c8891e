package main

import (
	"io"
	"unicode/utf8"

	"github.com/agentrun/agentrun/outputsink"
)

// liveView shows output while it comes, in a form that does nothing to a terminal.
// A line is shown when it has ended, because until then it may be rewritten; on a
// terminal its beginning is shown before that too: prompts and progress.
type liveView struct {
	w       io.Writer
	columns int // of the terminal, 0 without one

	clean    outputsink.Sanitizer
	buf      []byte
	within   bool // the last byte shown for good was no newline
	sketched bool // the beginning of the unfinished line is on the terminal
	failed   bool
}

func newLiveView(w io.Writer) *liveView {
	return &liveView{w: w, columns: columns(w)}
}

func (v *liveView) Write(p []byte) (int, error) {
	v.erase()
	v.settle(v.clean.Append(v.buf, p))
	v.sketch()
	if err := v.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// finish shows what was held back.
func (v *liveView) finish() error {
	v.erase()
	v.settle(v.clean.Flush(v.buf))
	return v.flush()
}

// settle takes over a buffer to which text was added that stays.
func (v *liveView) settle(buf []byte) {
	if len(buf) > len(v.buf) {
		v.within = buf[len(buf)-1] != '\n'
	}
	v.buf = buf
}

// erase begins the buffer by taking the unfinished line off the terminal: to the
// first column, and clear the line (CR and EL of ECMA-48).
func (v *liveView) erase() {
	v.buf = v.buf[:0]
	if v.sketched {
		v.buf = append(v.buf, "\r\x1b[K"...)
		v.sketched = false
	}
}

// sketch puts as much of the unfinished line on the terminal as one row holds: more
// could not be taken off again.
func (v *liveView) sketch() {
	if v.within {
		return
	}
	line, room := v.clean.Pending(), v.columns-1
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		if r < ' ' || r == utf8.RuneError {
			return // a tab, or a character that has not come whole
		}
		if room -= width(r); room < 0 {
			return
		}
		v.buf = append(v.buf, line[:size]...)
		v.sketched = true
		line = line[size:]
	}
}

// width is how many columns a character takes at most.
func width(r rune) int {
	const hangul = 0x1100 // the first wide character of Unicode
	if r < hangul {
		return 1
	}
	return 2
}

func (v *liveView) flush() error {
	if len(v.buf) == 0 || v.failed {
		return nil
	}
	_, err := v.w.Write(v.buf)
	v.failed = err != nil
	return err
}
