// Package screen says what a person would have seen at a terminal: the lines that scrolled off it, and the screen at
// the end, as text.
//
// A [Screen] is fed what a program writes to its terminal. The emulation is that of tcell's package vt; the two
// screens of a terminal, and what scrolls off the main one, are kept here.
//
// # What is promised
//
//   - The text is a function of the bytes and the size: how they were cut into pieces changes nothing.
//   - A line that was broken at the right margin is one line again. Of a line that was written over, as by a progress
//     bar, there is what it was when it scrolled off, or at the end. Spaces at the ends of lines are left out.
//   - What an alternate screen showed (a pager, an editor) is part of the text only if the program did not leave it
//     before [Screen.Keep]; it then stands behind the lines of the main screen.
//   - The text is valid UTF-8 without control characters other than newlines.
//   - Whatever the bytes are: memory is bounded (about 128 KiB, two screens, and 256 KiB of bytes where the emulation
//     was given up), and so is time: sequences that keep the emulator busy for more than [Budget] end the emulation.
//     A line in brackets then says from which byte on; behind it comes the screen that the last 256 KiB make alone.
//   - Long runs of plain lines, coloured or not, are not emulated but for the last screenful: their text is known.
//
// # Not emulated
//
// Queries of the program (cursor position, attributes) get no answer. Line drawing characters of ISO 2022 stay the
// letters that stand for them; programs in a UTF-8 locale use the ones of Unicode. Insert mode, origin mode and the
// sequence that erases what scrolled off (CSI 3 J) do nothing.
package screen

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/gdamore/tcell/v3/vt"
)

// Size is that of a terminal, in characters.
type Size struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Sizes of terminals. DEC's VT100 had the default one.
const (
	DefaultRows = 24
	DefaultCols = 80
	MaxRows     = 500
	MaxCols     = 1000
)

// WithDefaults is s with the default in place of zeros.
func (s Size) WithDefaults() Size {
	if s.Rows == 0 {
		s.Rows = DefaultRows
	}
	if s.Cols == 0 {
		s.Cols = DefaultCols
	}
	return s
}

// Check returns an error that says so if there is no terminal of that size here.
func (s Size) Check() error {
	if s.Rows < 1 || s.Cols < 1 || s.Rows > MaxRows || s.Cols > MaxCols {
		return fmt.Errorf("a terminal of %d columns and %d rows: give 1 to %d columns and 1 to %d rows", s.Cols, s.Rows, MaxCols, MaxRows)
	}
	return nil
}

// String writes it as 80x24, columns first, as xterm's -geometry has it.
func (s Size) String() string { return fmt.Sprintf("%dx%d", s.Cols, s.Rows) }

// Budget is how much the emulator may do for a stream, in units of about twenty nanoseconds: a byte and a cell are one,
// scrolling is an eighth of the cells.
const Budget = 1 << 29

const (
	bufferSize = 64 << 10  // bytes that are looked at together
	tailSize   = 256 << 10 // of which the last screen is made where the emulation was given up
	tailBudget = 16 << 20
	maxSilence = 64 << 10 // bytes of a control string after which it is ended
)

// Screen makes text of what is written to a terminal. Use [New]. It may be resized while another goroutine writes;
// otherwise it belongs to one.
type Screen struct {
	mu    sync.Mutex
	size  Size
	cells *cells
	em    emulator
	buf   []byte // not looked at yet
	text  func([]byte)
	out   []byte // for text
	exact bool

	ready   bool // the cursor is at the beginning of the last row, behind a newline that scrolled the whole screen
	margin  bool // the last character was put in the last column
	silence int
	spaces  int   // at the end of a row that goes on, not handed out yet
	began   bool  // the line has text that was handed out
	seen    int64 // bytes that were emulated, or passed by

	kept []row // of an alternate screen that was left since

	lost   bool // the emulation was given up
	why    string
	lostAt int64
	tail   []byte
}

// New returns a screen of a size that was checked. text is handed lines and pieces of them, and must not keep them.
func New(size Size, text func([]byte)) (*Screen, error) {
	s := &Screen{size: size, text: text, exact: true}
	if err := s.restart(Budget); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Screen) restart(budget int64) (err error) {
	s.cells = newCells(vt.Coord{X: vt.Col(s.size.Cols), Y: vt.Row(s.size.Rows)}, s.tell)
	s.cells.work = budget
	s.em, err = newEmulator(s.cells)
	return err
}

// Write takes what the program wrote. It gives no error.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := min(len(rest), bufferSize-len(s.buf))
		s.buf = append(s.buf, rest[:n]...)
		rest = rest[n:]
		if len(s.buf) == bufferSize {
			s.process(false)
		}
	}
	return len(p), nil
}

// Exact reports, behind Finish, whether the text is all that was written, line ends apart.
func (s *Screen) Exact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exact
}

// Resize makes the terminal another size, which was checked, from the next byte on.
func (s *Screen) Resize(size Size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size == s.size {
		return
	}
	s.settle()
	s.size, s.ready = size, false
	s.cells.resize(vt.Coord{X: vt.Col(size.Cols), Y: vt.Row(size.Rows)})
	if em, err := newEmulator(s.cells); err == nil { // it took the old one
		s.em = em
	}
	s.guard(func() { s.em.feed(s.cells.place()) })
}

// Keep keeps what the alternate screen shows now, if that is shown: it is part of the text also when the program leaves
// it. It is for programs that are about to be ended, and clean up.
func (s *Screen) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	if !s.cells.alt || s.lost {
		return
	}
	s.kept = make([]row, len(s.cells.rows))
	for i := range s.kept {
		s.kept[i] = row{cells: slices.Clone(s.cells.rows[i].cells), wraps: s.cells.rows[i].wraps}
	}
}

// Shown is what the screen shows now: its rows, without blank ones at the end.
func (s *Screen) Shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	if s.lost {
		return ""
	}
	var b []byte
	rows := s.cells.rows
	for n := len(rows); n > 0 && rows[n-1].blank(); n-- {
		rows = rows[:n-1]
	}
	for i := range rows {
		b = append(bytes.TrimRight(rows[i].appendText(b), " "), '\n')
	}
	return string(b)
}

// settle looks at what came until now, but for an end whose meaning what follows may change.
func (s *Screen) settle() {
	whole := s.buf
	for n := 1; n < utf8.UTFMax && n <= len(whole); n++ {
		if last := whole[len(whole)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole = whole[:len(whole)-n]
			}
			break
		}
	}
	whole = bytes.TrimRight(whole, "\r ")
	rest := slices.Clone(s.buf[len(whole):])
	s.buf = whole
	s.process(true)
	s.buf = append(s.buf, rest...)
}

// Finish hands out what is left.
func (s *Screen) Finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process(true)
	if s.lost {
		s.finishLost()
	} else {
		s.showScreens()
	}
	s.flush()
}

// process looks at what came: whole lines, or all of it.
func (s *Screen) process(all bool) {
	p := s.buf
	if i := bytes.LastIndexByte(p, '\n'); !all && (i >= 0 || len(p) < bufferSize) {
		p = p[:i+1]
	}
	n := len(p)
	for len(p) > 0 && !s.lost {
		if s.ready {
			if run := s.plainRun(p); run.lines > s.size.Rows+8 {
				p = p[s.pass(p, run):]
				continue
			} else if run.bytes > 0 {
				s.emulate(p[:run.bytes])
				p = p[run.bytes:]
				continue
			}
		}
		line := p
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			line = p[:i+1]
		}
		s.exact = s.exact && (plainLine(line, nil) == plainExact || len(line) == len(p) && plainText(line, nil) == plainExact)
		s.emulate(line)
		p = p[len(line):]
	}
	if s.lost {
		s.exact = false
		s.keepTail(p)
	}
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.flush()
}

// emulate gives bytes to the emulator.
func (s *Screen) emulate(p []byte) {
	done := 0
	c := s.cells
	ok := s.guard(func() {
		for _, b := range p {
			c.before()
			done++
			y := c.pos.Y
			(*s.em.step)(b)
			if c.half != "" {
				s.em.feed(c.half) // the emulator is about to go to the next row, and this is the first there
			}
			if s.margin && b == '\r' && c.touched {
				s.em.feed(c.place()) // it would break the line that is written over this one
			}
			s.margin = c.printed && int(c.pos.X) == s.size.Cols-1
			if c.printed && int(c.pos.Y) == int(y)+1-c.shifts && c.pos.Y > 0 {
				c.rows[c.pos.Y-1].wraps = true
			}
			if c.asked != 0 {
				s.switchScreens()
			}
			if s.silence++; c.touched {
				s.silence = 0
			} else if s.silence == maxSilence { // in a control string that nobody ends, and that the emulator keeps
				s.em.feed("\a")
				s.silence = 0
			}
		}
		s.ready = c.full && c.pos.X == 0 && int(c.pos.Y) == s.size.Rows-1 && !c.alt && p[len(p)-1] == '\n'
	})
	s.seen += int64(done)
	if !ok {
		s.give()
		s.keepTail(p[done:])
	}
}

// guard reports whether f came to its end: the emulator may panic, and be stopped.
func (s *Screen) guard(f func()) (ok bool) {
	defer func() {
		if !ok {
			if _, busy := recover().(budgetSpent); busy {
				s.why = "what was written there keeps a terminal too busy"
			} else {
				s.why = "the terminal emulator failed"
			}
		}
	}()
	f()
	return true
}

// switchScreens does what the emulator knows nothing of.
func (s *Screen) switchScreens() {
	c := s.cells
	mode, on := c.asked, c.on
	switch {
	case mode == saveCursor && on:
		s.em.feed("\x1b7")
	case mode == saveCursor:
		s.em.feed("\x1b8")
	case on == c.alt:
	case on:
		c.switchTo(true)
		s.em.feed("\x1b[2J" + c.place()) // its own copy of the cells is of the other screen
	default:
		c.still = true
		s.em.feed("\x1b[2J")
		c.still = false
		if mode != vt.PmAltScreen {
			c.mainAt = c.pos
		}
		c.switchTo(false)
		s.em.feed(c.place())
	}
	s.ready = false
}

// tell hands out a row that has left the screen.
func (s *Screen) tell(r *row) {
	if r.told {
		return
	}
	before := len(s.out)
	s.out = append(s.out, spacesOf(min(s.spaces, len(blanks)))...)
	lead := len(s.out)
	s.out = r.appendText(s.out)
	n := len(bytes.TrimRight(s.out[lead:], " "))
	if n == 0 {
		s.spaces += len(s.out) - lead
		s.out = s.out[:before]
	} else {
		s.spaces = len(s.out) - lead - n
		s.out = s.out[:lead+n]
		s.began = true
	}
	if !r.wraps {
		s.out = append(s.out, '\n')
		s.spaces, s.began = 0, false
	}
	if len(s.out) >= bufferSize {
		s.flush()
	}
}

var blanks = bytes.Repeat([]byte{' '}, 4096)

func spacesOf(n int) []byte { return blanks[:n] }

func (s *Screen) flush() {
	if len(s.out) > 0 {
		s.text(s.out)
		s.out = s.out[:0]
	}
}

// showScreens hands out what is on the screen: the main one, and the alternate one where that is shown.
func (s *Screen) showScreens() {
	c := s.cells
	if !c.alt {
		if s.kept != nil {
			s.show(c.rows, vt.Coord{Y: vt.Row(len(c.rows))})
			s.show(s.kept, vt.Coord{})
			return
		}
		s.show(c.rows, c.pos)
		return
	}
	s.show(c.main, vt.Coord{Y: vt.Row(len(c.main))})
	s.show(c.rows, c.pos)
}

// show hands out rows down to the last one with text. Where the cursor is at its end, it stays open.
func (s *Screen) show(rows []row, at vt.Coord) {
	last := len(rows) - 1
	for last >= 0 && rows[last].blank() {
		last--
	}
	for i := range rows[:last+1] {
		r := rows[i]
		if i == last {
			r.wraps = true // its end is decided on here
		}
		s.tell(&r)
	}
	if last >= 0 && int(at.Y) <= last || last < 0 && !s.began {
		return
	}
	s.out = append(s.out, '\n')
	s.spaces, s.began = 0, false
}

// give gives the emulation up.
func (s *Screen) give() {
	s.lost, s.lostAt, s.exact = true, s.seen, false
	c := s.cells
	if c.alt {
		c.rows = c.main
	}
	s.show(c.rows, vt.Coord{Y: vt.Row(len(c.rows))})
}

func (s *Screen) keepTail(p []byte) {
	s.tail = append(s.tail, p[max(0, len(p)-2*tailSize):]...)
	s.seen += int64(len(p))
	if over := len(s.tail) - tailSize; over > tailSize {
		s.tail = s.tail[:copy(s.tail, s.tail[over:])]
	}
}

// finishLost shows the screen that the last bytes make alone.
func (s *Screen) finishLost() {
	s.out = fmt.Appendf(s.out, "[The screen is not known from byte %d on: %s. What follows is the last screen.]\n", s.lostAt, s.why)
	tail := s.tail[max(0, len(s.tail)-tailSize):]
	if s.seen-s.lostAt > int64(len(tail)) {
		if i := bytes.IndexByte(tail, '\n'); i >= 0 {
			tail = tail[i+1:]
		}
	}
	s.silence, s.spaces, s.began = 0, 0, false
	if s.restart(tailBudget) != nil {
		return
	}
	s.cells.scrolled = func(*row) {}
	s.lost = false // so that a second time is noticed
	s.emulate(tail)
	if s.lost {
		return // the remark says what there is to say
	}
	s.cells.scrolled = s.tell
	s.showScreens()
}
