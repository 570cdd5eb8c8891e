package outputsink

import (
	"unicode/utf8"
)

// maxString is where a control string (OSC, DCS, SOS, PM, APC) that nobody ends is given up and text is text again.
// Only sixel images are larger, a photograph has some mebibytes: they go on for as long as their bytes can be of one.
const maxString = 1 << 20

const replacement = "\uFFFD" // as Unicode 16 recommends in section 3.9, one for each maximal subpart

// lines takes what a scanner finds.
type lines interface {
	// text takes valid UTF-8 without control characters other than tab and newline. It must not keep b.
	text(b []byte)
	// erase takes back the text behind the last newline.
	erase()
}

type scanState uint8

const (
	ground       scanState = iota
	escape                 // behind ESC
	intermediate           // behind ESC and 0x20-0x2f
	csi                    // behind CSI
	oscString              // in OSC, which BEL also ends
	dcsString              // in DCS, the only string that goes on over a newline: sixel images are broken in lines
	otherString            // in SOS, PM or APC
)

// scanner is the state machine below all views: it takes the bytes of a stream in any pieces and hands out text.
// The states are those of a DEC terminal (vt100.net/emu/dec_ansi_parser), with UTF-8 and, because this is for logs
// and not for screens, with these differences:
//
//   - A newline is a newline in every state, so that line n of the view is line n of the stream. It ends every
//     unfinished sequence except DCS: a sequence cut off in a log does not eat into the next line.
//   - C1 controls count as U+0080 to U+009F, never as single bytes, which are invalid UTF-8.
//   - The text of a line is replaced, not overwritten column by column: the first text behind a carriage return
//     erases what was there. See erasesLine for the sequences that do the same.
type scanner struct {
	state  scanState
	cr     bool // a carriage return (or the like) came, and no text behind it yet
	c2     bool // in a string: the last byte was 0xC2, half of a C1 control
	strLen int  // bytes of the control string so far, at most maxString
	intro  bool // in DCS: nothing but parameters so far
	sixel  bool // in DCS: the parameters ended with q

	// Of a CSI sequence only what erasesLine asks for is kept.
	param  int
	simple bool // nothing but digits so far

	// An unfinished UTF-8 sequence: the next byte must lie between lo and hi, `more` are missing.
	part     [utf8.UTFMax]byte
	partLen  int
	more     int
	partLo   byte
	partHi   byte
	in, kept int64 // bytes taken, and those that became text which stands
	lineKept int64 // of kept, those behind the last newline
}

// scan takes the next bytes of the stream.
func (s *scanner) scan(p []byte, out lines) {
	s.in += int64(len(p))
	for i := 0; i < len(p); {
		if s.partLen > 0 {
			i += s.continuePart(p[i], out)
			continue
		}
		switch {
		case s.state >= oscString:
			i += s.skipString(p[i:])
			if i < len(p) {
				i += s.inString(p[i], out)
			}
			continue
		case s.state != ground:
			i += s.control(p[i], out)
			continue
		}
		if n := textLen(p[i:]); n > 0 {
			s.emit(p[i:i+n], out)
			if i += n; i == len(p) {
				return
			}
		}
		if p[i] == 0x1b {
			i += s.escape(p[i:], out)
			continue
		}
		s.special(p[i], out)
		i++
	}
}

// escape takes ESC at the beginning of p. A CSI sequence that is whole, as nearly all are, is done at once.
func (s *scanner) escape(p []byte, out lines) int {
	if len(p) > 2 && p[1] == '[' {
		i := 2
		for i < len(p) && p[i] >= 0x20 && p[i] < 0x40 {
			i++
		}
		if i < len(p) && p[i] >= 0x40 && p[i] < 0x7f {
			if b := p[i]; b == 'm' || b == 'h' || b == 'l' {
				return i + 1 // colours and modes
			}
		}
	}
	s.state = escape
	return 1
}

// skipString returns how many bytes at the beginning of p are nothing but the content of a control string.
func (s *scanner) skipString(p []byte) int {
	i := 0
	switch {
	case s.intro:
		return 0
	case s.sixel && s.strLen == maxString:
		for i < len(p) && p[i] > 0x20 && p[i] < 0x7f {
			i++
		}
		return i
	}
	p = p[:min(len(p), maxString-s.strLen)]
	for i < len(p) && p[i] >= 0x20 && p[i] != 0xc2 && p[i] != 0x9c {
		i++
	}
	if i > 0 {
		s.c2 = false
		s.strLen += i
	}
	return i
}

// finish ends the stream: what is unfinished stays unfinished.
func (s *scanner) finish(out lines) {
	if s.partLen > 0 {
		s.replace(out)
	}
	*s = scanner{in: s.in, kept: s.kept}
}

// emit hands out text that stands in the stream as it is.
func (s *scanner) emit(b []byte, out lines) {
	s.beforeText(b[0], out)
	s.kept += int64(len(b))
	if i := lastNewline(b); i >= 0 {
		s.lineKept = int64(len(b) - i - 1)
	} else {
		s.lineKept += int64(len(b))
	}
	out.text(b)
}

func (s *scanner) beforeText(first byte, out lines) {
	if s.cr {
		s.cr = false
		if first != '\n' {
			s.erase(out)
		}
	}
}

func (s *scanner) erase(out lines) {
	s.kept -= s.lineKept
	s.lineKept = 0
	out.erase()
}

var (
	newlineText     = []byte{'\n'}
	tabText         = []byte{'\t'}
	replacementText = []byte(replacement)
)

// replace hands out U+FFFD for the unfinished character.
func (s *scanner) replace(out lines) {
	s.partLen = 0
	s.beforeText(replacement[0], out)
	out.text(replacementText)
}

// special takes a byte in the ground state that textLen did not count.
func (s *scanner) special(b byte, out lines) {
	switch {
	case b >= utf8.RuneSelf:
		s.beginPart(b, out)
	case b == 0x1b:
		s.state = escape
	case b == '\r':
		s.cr = true
	}
}

// beginPart takes the first byte of a character that is not whole in its chunk, or not valid. Which second bytes are
// allowed is in table 3-7 of the Unicode standard.
func (s *scanner) beginPart(b byte, out lines) {
	s.part[0], s.partLen = b, 1
	s.partLo, s.partHi = 0x80, 0xbf
	switch {
	case b >= 0xc2 && b <= 0xdf:
		s.more = 1
	case b >= 0xe0 && b <= 0xef:
		s.more = 2
		switch b {
		case 0xe0:
			s.partLo = 0xa0
		case 0xed:
			s.partHi = 0x9f
		}
	case b >= 0xf0 && b <= 0xf4:
		s.more = 3
		switch b {
		case 0xf0:
			s.partLo = 0x90
		case 0xf4:
			s.partHi = 0x8f
		}
	default:
		s.replace(out)
	}
}

// continuePart takes the byte behind an unfinished character and returns 1, or 0 when it does not belong to it: what
// there is of the character is then a maximal subpart.
func (s *scanner) continuePart(b byte, out lines) int {
	if b < s.partLo || b > s.partHi {
		s.replace(out)
		return 0
	}
	s.part[s.partLen] = b
	s.partLen++
	s.partLo, s.partHi = 0x80, 0xbf
	if s.more--; s.more > 0 {
		return 1
	}
	n := s.partLen
	s.partLen = 0
	if s.part[0] == 0xc2 && b < 0xa0 {
		s.c1(b)
	} else {
		s.emit(s.part[:n], out)
	}
	return 1
}

// c1 takes a C1 control character outside of strings.
func (s *scanner) c1(b byte) {
	switch b {
	case 0x90:
		s.begin('P')
	case 0x98:
		s.begin('X')
	case 0x9b:
		s.begin('[')
	case 0x9d:
		s.begin(']')
	case 0x9e:
		s.begin('^')
	case 0x9f:
		s.begin('_')
	}
}

// begin starts what ESC and the given byte start, and reports whether that is a sequence that goes on.
func (s *scanner) begin(b byte) bool {
	s.strLen, s.c2, s.intro, s.sixel = 0, false, b == 'P', false
	switch b {
	case '[':
		s.state, s.param, s.simple = csi, 0, true
	case ']':
		s.state = oscString
	case 'P':
		s.state = dcsString
	case 'X', '^', '_':
		s.state = otherString
	default:
		return false
	}
	return true
}

// control takes a byte of an escape or CSI sequence. It returns 0 when the sequence is over and the byte is text.
func (s *scanner) control(b byte, out lines) int {
	switch {
	case b >= utf8.RuneSelf:
		s.state = ground
		return 0
	case b < 0x20:
		switch b {
		case '\n':
			s.state = ground
			return 0
		case 0x18, 0x1a: // CAN, SUB
			s.state = ground
		case 0x1b:
			s.state = escape
		case '\r':
			s.cr = true
		case '\t':
			s.emit(tabText, out)
		}
		return 1
	case b == 0x7f:
		return 1
	}
	switch s.state {
	case escape:
		if b < 0x30 {
			s.state = intermediate
		} else if !s.begin(b) {
			s.state = ground
		}
	case intermediate:
		if b >= 0x30 {
			s.state = ground
		}
	case csi:
		switch {
		case b >= 0x40:
			s.state = ground
			if s.simple {
				s.dispatch(b, out)
			}
		case b >= '0' && b <= '9' && s.param < 1000:
			s.param = s.param*10 + int(b-'0')
		default:
			s.simple = false
		}
	}
	return 1
}

// dispatch acts on the few sequences with which programs rewrite their last line:
//
//	CSI G, CSI 1 G   column one: as a carriage return
//	CSI K, CSI J     erase from the cursor on: behind a carriage return, that is the line
//	CSI 2 K          erase the line
func (s *scanner) dispatch(final byte, out lines) {
	switch {
	case final == 'G' && s.param <= 1:
		s.cr = true
	case (final == 'K' || final == 'J') && s.param == 0 && s.cr, final == 'K' && s.param == 2:
		s.erase(out)
	}
}

// inString takes a byte of a control string.
func (s *scanner) inString(b byte, out lines) int {
	afterC2 := s.c2
	s.c2 = b == 0xc2
	if s.intro {
		s.sixel = b == 'q'
		s.intro = b >= '0' && b <= '9' || b == ';'
	}
	switch {
	case s.strLen == maxString && !(s.sixel && ofSixel(b)):
		s.state = ground
		return 0
	case b == '\n' && s.state == dcsString:
		s.emit(newlineText, out)
	case b == '\n':
		s.state = ground
		return 0
	case b == 0x1b:
		s.state = escape // ESC \ is the string terminator; every other sequence ends the string too
	case b == 0x18, b == 0x1a, b == 0x07 && s.state == oscString, b == 0x9c && afterC2:
		s.state = ground
	}
	s.strLen = min(s.strLen+1, maxString)
	return 1
}

// ofSixel reports whether b can stand in a sixel image or end one: its characters, its line breaks, CAN, SUB, ESC.
func ofSixel(b byte) bool {
	return b > 0x20 && b < 0x7f || b == '\n' || b == '\r' || b == 0x18 || b == 0x1a || b == 0x1b
}
