package charset

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// maxSample is how much of a text is kept to guess by.
const maxSample = 32 << 10

// Checker looks whether what is written to it is UTF-8, and keeps a sample of what is not ASCII.
// The zero value is ready; it belongs to one goroutine.
type Checker struct {
	rest    []byte // a character that has begun
	invalid bool
	sample  []byte
}

// Write takes the next bytes. It returns len(p) and no error.
func (c *Checker) Write(p []byte) (int, error) {
	n := len(p)
	for len(c.rest) > 0 && len(p) > 0 && !utf8.FullRune(c.rest) {
		c.rest, p = append(c.rest, p[0]), p[1:]
	}
	if len(c.rest) > 0 && utf8.FullRune(c.rest) {
		if r, size := utf8.DecodeRune(c.rest); r == utf8.RuneError && size == 1 {
			c.invalid = true
		}
		c.take(c.rest)
		c.rest = c.rest[:0]
	}
	if c.invalid && len(c.sample) >= maxSample {
		return n, nil
	}
	if ascii(p) {
		return n, nil
	}
	if end := lastRune(p); end < len(p) {
		c.rest = append(c.rest, p[end:]...)
		p = p[:end]
	}
	valid := utf8.Valid(p)
	if !valid && !c.invalid {
		c.invalid = true
	}
	if !valid || len(c.sample) < maxSample {
		c.take(p)
	}
	return n, nil
}

// lastRune is where a character begins that the end of p cuts, else len(p).
func lastRune(p []byte) int {
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if utf8.FullRune(p[i:]) {
				break
			}
			return i
		}
	}
	return len(p)
}

// ascii looks at eight bytes at once.
func ascii(p []byte) bool {
	const high = 0x8080808080808080
	for ; len(p) >= 32; p = p[32:] {
		if (binary.LittleEndian.Uint64(p)|binary.LittleEndian.Uint64(p[8:])|binary.LittleEndian.Uint64(p[16:])|binary.LittleEndian.Uint64(p[24:]))&high != 0 {
			return false
		}
	}
	for _, b := range p {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// take keeps the lines that are not ASCII, those that are no UTF-8 first.
func (c *Checker) take(p []byte) {
	for line := range bytes.Lines(p) {
		switch {
		case len(c.sample) >= maxSample:
			return
		case !ascii(line):
			c.sample = append(c.sample, line[:min(len(line), maxSample-len(c.sample))]...)
		}
	}
}

// Guess is the encoding of what was written: UTF-8, or what a text is that is not.
func (c *Checker) Guess() Encoding {
	if !c.invalid && len(c.rest) == 0 {
		return Encoding{}
	}
	return Guess(append(bytes.Clone(c.sample), c.rest...))
}
