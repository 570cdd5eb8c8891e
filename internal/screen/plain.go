package screen

import (
	"bytes"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// Kinds of lines, by what a terminal makes of them.
type kind int

const (
	notPlain   kind = iota
	plain           // text, tabs, colours and spaces at the end: what they leave on the screen is known
	plainExact      // nothing but text
)

// run is a number of plain lines.
type run struct{ bytes, lines int }

// plainRun finds the plain lines at the beginning of p.
func (s *Screen) plainRun(p []byte) run {
	var r run
	for r.bytes < len(p) {
		i := bytes.IndexByte(p[r.bytes:], '\n')
		if i < 0 {
			break
		}
		k := plainLine(p[r.bytes:r.bytes+i+1], &s.size.Cols)
		if k == notPlain {
			break
		}
		s.exact = s.exact && k == plainExact
		r.bytes += i + 1
		r.lines++
	}
	return r
}

// pass hands out a run of plain lines without emulating them, but for as many of the last ones as the screen has
// rows: when these have come, nothing that is on the screen now is left on it. It returns how much of p was done.
func (s *Screen) pass(p []byte, r run) int {
	c := s.cells
	for i := range c.rows[:len(c.rows)-1] { // the last one is empty
		s.tell(&c.rows[i])
	}
	for i := range c.rows {
		c.rows[i].clear()
		c.rows[i].told = i < len(c.rows)-1
	}
	keep := len(c.rows)
	n := 0
	for range r.lines - keep {
		i := bytes.IndexByte(p[n:], '\n')
		s.out = appendPlain(s.out, p[n:n+i-1])
		if n += i + 1; len(s.out) >= bufferSize {
			s.flush()
		}
	}
	s.seen += int64(n)
	s.emulate(p[n:r.bytes])
	return r.bytes
}

// class of a byte below 0x80 in a plain line.
var text = func() (t [256]bool) {
	for b := ' '; b < 0x7f; b++ {
		t[b] = true
	}
	return t
}()

// plainLine tells the kind of a line, which ends with a newline. Lines that are wider than cols columns and have
// tabs are not plain; nil says that it does not matter.
func plainLine(line []byte, cols *int) kind {
	if len(line) < 2 || line[len(line)-1] != '\n' || line[len(line)-2] != '\r' {
		return notPlain
	}
	return plainText(line[:len(line)-2], cols)
}

// plainText is plainLine for a line without its end.
func plainText(line []byte, cols *int) kind {
	k, tabs, wide := plainExact, false, false
	if n := len(line); n > 0 && line[n-1] == ' ' {
		k = plain
	}
	for i := 0; i < len(line); {
		switch b := line[i]; {
		case text[b]:
			i++
		case b == '\t':
			k, tabs = plain, true
			i++
		case b == 0x1b:
			n := colour(line[i:])
			if n == 0 {
				return notPlain
			}
			k = plain
			i += n
		case b >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError || r < 0xa0 || displaywidth.Rune(r) == 0 {
				return notPlain
			}
			wide = true
			i += n
		default:
			return notPlain
		}
	}
	if tabs && cols != nil && (wide || len(appendPlain(nil, line)) >= *cols) {
		return notPlain
	}
	return k
}

// colour returns the length of the sequence SGR at the beginning of p, 0 if there is none.
func colour(p []byte) int {
	if len(p) < 3 || p[1] != '[' {
		return 0
	}
	for i := 2; i < len(p); i++ {
		switch b := p[i]; {
		case b == 'm':
			return i + 1
		case b >= '0' && b <= '9' || b == ';' || b == ':':
		default:
			return 0
		}
	}
	return 0
}

// appendPlain appends the text of a plain line, and a newline.
func appendPlain(out, line []byte) []byte {
	start := len(out)
	for len(line) > 0 {
		i := bytes.IndexFunc(line, func(r rune) bool { return r == '\t' || r == 0x1b })
		if i < 0 {
			i = len(line)
		}
		out = append(out, line[:i]...)
		if line = line[i:]; len(line) == 0 {
			break
		}
		if line[0] == '\t' {
			out = append(out, "        "[(len(out)-start)&7:]...)
			line = line[1:]
		} else {
			line = line[colour(line):]
		}
	}
	for len(out) > start && out[len(out)-1] == ' ' {
		out = out[:len(out)-1]
	}
	return append(out, '\n')
}
