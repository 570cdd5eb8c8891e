package outputsink

import (
	"bytes"
	"math"
	"unicode/utf8"
)

// Control characters, which text never holds, mark lines inside of the tail window; they are never shown.
const (
	markShortened = 0x01 // at the end: the line was shortened to MaxColumns
	markHeadless  = 0x02 // at the beginning: the line was larger than all windows, this is its end
	markOpen      = 0x03 // instead of the newline that the last line does not have
)

const ellipsis = "…"

// view builds what is shown of a stream from its text. Lines come in whole or in pieces; a line is decided on when
// it ends, since it may be rewritten until then.
//
// What is shown is a function of the lines and the options alone. Let a line's size be that of its shortened text and
// newline. If all lines together have at most maxBytes and maxLines, all are shown. Else the head is the longest run
// of first lines within headBytes and headLines, and the tail the longest run of last lines within what the head
// left of maxBytes and maxLines. Only where not even one line fits is a part of it shown: of the first line its
// beginning, if it is larger than the head; of the last line its end, if it is larger than the tail.
type view struct {
	maxBytes, headBytes, maxLines, headLines int
	maxColumns                               int // 0: lines are not shortened
	lineLimit                                int // longer lines are either shortened or larger than all windows

	head       []byte // text of whole first lines, or of a part of the first line
	headCount  int    // whole lines in head
	headPart   bool   // head is the beginning of line 1, which is also in the tail
	headClosed bool
	headCut    int64  // shortened lines in head
	tail       window // all lines behind the head, marked
	tailSize   int64  // bytes of them, without marks
	tailLost   bool   // a line behind the head was larger than all windows
	cur        []byte // beginning of the unfinished line, at most lineLimit bytes
	curLen     int64  // length of the unfinished line
	curEnd     window // its end, once it is larger than all windows
	cutAny     bool   // some line is shortened or larger than all windows
}

func newView(o Options) *view {
	v := &view{
		maxBytes: o.MaxBytes, headBytes: o.HeadBytes, maxLines: o.MaxLines,
		headLines:  math.MaxInt,
		maxColumns: o.MaxColumns,
		lineLimit:  o.MaxColumns,
	}
	if o.MaxLines == 0 {
		v.maxLines = math.MaxInt
	} else {
		v.headLines = int(int64(o.MaxLines) * int64(o.HeadBytes) / int64(o.MaxBytes))
	}
	// Lines that are longer than everything that can be shown are not shortened at their end only.
	if o.MaxColumns == 0 || o.MaxColumns >= o.MaxBytes {
		v.maxColumns, v.lineLimit = 0, o.MaxBytes
	}
	v.headClosed = o.HeadBytes == 0 || v.headLines == 0
	return v
}

// tailCap is the capacity of the tail window. Marks need room beside maxBytes of lines; a marked line has at least
// the four bytes of "…" and a newline, except one headless line.
func (v *view) tailCap() int { return v.maxBytes + v.maxBytes/4 + 8 }

// size returns the size of all lines that have ended.
func (v *view) size() int64 {
	if v.headPart {
		return v.tailSize
	}
	return int64(len(v.head)) + v.tailSize
}

// whole reports whether every line that has ended can still be shown as it is.
func (v *view) whole() bool { return !v.cutAny && v.size() <= int64(v.maxBytes) }

// text implements lines.
func (v *view) text(b []byte) {
	for len(b) > 0 {
		if v.headClosed && v.curLen == 0 {
			// The way of nearly all output: whole short lines go to the tail together.
			if n := shortLines(b, v.lineLimit); n > 0 {
				v.tail.add(b[:n], v.tailCap())
				v.tailSize += int64(n)
				b = b[n:]
				continue
			}
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			v.extend(b)
			return
		}
		v.extend(b[:i])
		v.endLine(true)
		b = b[i+1:]
	}
}

// erase implements lines.
func (v *view) erase() {
	v.cur, v.curLen = v.cur[:0], 0
	v.curEnd.reset()
}

// extend adds to the unfinished line.
func (v *view) extend(b []byte) {
	v.curLen += int64(len(b))
	n := min(v.lineLimit+utf8.UTFMax-len(v.cur), len(b)) // a little more, so that it can be cut between characters
	v.cur = append(v.cur, b[:n]...)
	if n < len(b) && v.maxColumns == 0 {
		v.curEnd.add(b[n:], v.maxBytes)
	}
}

// finish ends the last line, if it is still open.
func (v *view) finish(open bool) {
	if open {
		v.endLine(false)
	}
}

// endLine decides on the unfinished line.
func (v *view) endLine(newline bool) {
	line, cut, tooLarge := v.cur, false, false
	if v.curLen > int64(v.lineLimit) {
		v.cutAny = true
		if cut = v.maxColumns > 0; cut {
			line = append(line[:runeFloor(line, max(0, v.maxColumns-len(ellipsis)))], ellipsis...)
		} else {
			tooLarge = true
		}
	}
	size := len(line)
	if newline {
		size++
	}
	if !v.headClosed {
		if !tooLarge && v.headCount < v.headLines && len(v.head)+size <= v.headBytes {
			v.head = append(v.head, line...)
			if newline {
				v.head = append(v.head, '\n')
			}
			v.headCount++
			if cut {
				v.headCut++
			}
			v.cur = line
			v.erase()
			return
		}
		v.headClosed = true
		if v.headCount == 0 {
			v.headPart = true
			v.head = append(v.head, line[:runeFloor(line, v.headBytes)]...)
		}
	}
	v.toTail(line, cut, tooLarge, newline)
	v.tailSize += int64(size)
	v.cur = line
	v.erase()
}

// toTail adds a line to the tail window.
func (v *view) toTail(line []byte, cut, tooLarge, newline bool) {
	if tooLarge {
		v.tailLost = true
		end := v.curEnd.appendTo(nil)
		if !v.curEnd.evicted() { // the beginning and the end of the line overlap or touch
			end = append(bytes.Clone(line), end...)
		}
		v.tail.add([]byte{markHeadless}, v.tailCap())
		line = end[runeCeil(end, max(0, len(end)-v.maxBytes)):]
	}
	if cut {
		line = append(line, markShortened)
	}
	if newline {
		line = append(line, '\n')
	} else {
		line = append(line, markOpen)
	}
	v.tail.add(line, v.tailCap())
}
