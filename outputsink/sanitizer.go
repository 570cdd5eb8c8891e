package outputsink

import "bytes"

// MaxHeld is how many bytes of an unfinished line a [Sanitizer] holds back.
const MaxHeld = 64 << 10

// Sanitizer turns the output of a program into text that can be shown, piece by piece:
//
//   - Escape sequences (CSI, OSC, DCS with sixel images, SOS, PM, APC, two-byte ones; with ESC or as U+0080 to
//     U+009F) and control characters other than tab and newline are left out.
//   - CR LF is a newline. Text behind a lone carriage return replaces the text before it: of a line that a progress
//     bar wrote many times the last state remains. CSI G, CSI K, CSI 2 K and CSI J do what they do to such a line.
//   - Invalid UTF-8 becomes one U+FFFD for each maximal subpart, as the Unicode standard recommends.
//
// Every newline of the input is one of the output and there are no others, so lines keep their numbers. A control
// string that does not end is given up after 1 MiB (a sixel image where its data stops), an OSC, SOS, PM or APC string
// at the end of its line.
//
// Since a line may be rewritten until it ends, the unfinished last line is held back. When more than MaxHeld bytes of
// it have come, they are handed out, and only what follows can still be rewritten. For any split of the input, the
// concatenated output is the same.
//
// The zero Sanitizer is ready. It belongs to one goroutine.
type Sanitizer struct {
	scan scanner
	held []byte // text of the unfinished line that has not been handed out
	dst  []byte // during a call
}

// Append takes the next bytes of the output and appends to dst the text that is certain now.
func (s *Sanitizer) Append(dst, p []byte) []byte {
	s.dst = dst
	s.scan.scan(p, (*sanitizerLines)(s))
	dst, s.dst = s.dst, nil
	return dst
}

// Flush ends the output: it appends what was held back, and the Sanitizer begins anew. An unfinished character
// becomes U+FFFD, an unfinished escape sequence nothing.
func (s *Sanitizer) Flush(dst []byte) []byte {
	s.dst = dst
	s.scan.finish((*sanitizerLines)(s))
	dst = append(s.dst, s.held...)
	*s = Sanitizer{held: s.held[:0]}
	return dst
}

// Pending returns the unfinished last line as far as it is held back, for who wants to show a prompt or a progress
// bar while it stands. The bytes are valid until the next call.
func (s *Sanitizer) Pending() []byte { return s.held }

// sanitizerLines is the Sanitizer's side towards its scanner.
type sanitizerLines Sanitizer

func (l *sanitizerLines) text(b []byte) {
	if i := bytes.LastIndexByte(b, '\n') + 1; i > 0 {
		l.dst = append(append(l.dst, l.held...), b[:i]...)
		l.held = l.held[:0]
		b = b[i:]
	}
	// Where the steps end depends on the text of the line alone, not on the chunks, and is between two characters.
	for len(l.held)+len(b) > MaxHeld {
		n := runeFloor(b, MaxHeld-len(l.held))
		l.dst = append(append(l.dst, l.held...), b[:n]...)
		l.held = l.held[:0]
		b = b[n:]
	}
	l.held = append(l.held, b...)
}

func (l *sanitizerLines) erase() { l.held = l.held[:0] }
