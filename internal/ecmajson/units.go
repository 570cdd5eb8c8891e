package ecmajson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// UTF16Len is the length that JavaScript reports for the valid string literal
// lit: its UTF-16 code units, counted without decoding it.
func UTF16Len(lit []byte) int {
	units, _ := countUnits(lit, len(lit))
	return units
}

// CutUTF16 returns the longest prefix of the valid string literal lit, opening
// quote included, that holds at most the given number of UTF-16 units and splits
// neither a surrogate pair nor an escape sequence. A closing quote makes it a
// literal again.
func CutUTF16(lit []byte, units int) []byte {
	_, end := countUnits(lit, units)
	return lit[:end]
}

// countUnits walks the inside of lit until the next character would take it
// beyond limit units, and returns what it counted and where it stopped.
func countUnits(lit []byte, limit int) (units, end int) {
	i, last := 1, len(lit)-1
	for i < last {
		if last-i >= 8 && limit-units >= 8 {
			w := binary.LittleEndian.Uint64(lit[i:])
			if m := special(w) | w&highs; m == 0 {
				i, units = i+8, units+8
				continue
			} else if n := bits.TrailingZeros64(m) >> 3; n > 0 {
				i, units = i+n, units+n
				continue
			}
		}
		size, width := 1, 1
		switch c := lit[i]; {
		case c == '\\':
			var r rune
			if r, size = unescape(lit[i:last]); r > 0xFFFF {
				width = 2
			}
		case c >= utf8.RuneSelf:
			var r rune
			if r, size = utf8.DecodeRune(lit[i:last]); size == 1 {
				size = badLen(lit[i:last]) // one U+FFFD
			} else if r > 0xFFFF {
				width = 2
			}
		}
		if units+width > limit {
			break
		}
		i, units = i+size, units+width
	}
	return units, i
}
