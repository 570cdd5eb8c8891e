package outputsink

import (
	"bytes"
	"unicode/utf8"
)

const (
	// BinaryWindow is how much of the output decides whether it is text, as the 8,000 bytes of git and the first
	// block of perl's -B do.
	BinaryWindow = 8 << 10

	// minInvalid spares short outputs: a few stray bytes are better shown as U+FFFD than described.
	minInvalid = 32
)

// IsBinary tells from the first bytes of some content, at most BinaryWindow of them, whether it is binary: it holds a
// NUL, or at least 32 bytes and more than a third of all are not UTF-8. A third is what perl's -B takes;
// random bytes have 44 %. whole says that nothing follows.
func IsBinary(b []byte, whole bool) bool {
	if bytes.IndexByte(b, 0) >= 0 {
		return true
	}
	total, invalid := len(b), 0
	for len(b) > 0 {
		n := textLen(b)
		if b = b[n:]; len(b) == 0 {
			break
		}
		if b[0] >= utf8.RuneSelf && !utf8.FullRune(b) && !whole {
			break // a character cut by the end of the window
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			invalid++
		}
		b = b[n:]
	}
	return invalid >= minInvalid && invalid*3 > total
}
