// Package literal finds where a text has a literal, faster than package bytes in large texts: it looks
// for the byte of the literal that is rarest in texts and programs, as long as it is rare in the text
// at hand too.
//
// All functions are safe for concurrent use.
package literal

import (
	"bytes"
	"strings"
	"unicode"
)

// common are the characters of texts and programs, the most frequent first.
const common = " etaoinsrhldcumfpgwybv-_.,0123456789()=\"'/:;x"

// Finder looks for one literal. It is safe for concurrent use.
type Finder struct {
	literal []byte
	at      int // where its rarest byte is
}

// NewFinder returns a Finder for a literal, which nobody changes.
func NewFinder(lit []byte) Finder { return Finder{lit, rarest(lit)} }

// Index is Index of the literal.
func (f Finder) Index(text []byte) int {
	lit, at := f.literal, f.at
	if len(lit) == 0 {
		return 0
	}
	for from, wrong := at, 0; from < len(text); {
		k := bytes.IndexByte(text[from:], lit[at])
		if k < 0 {
			return -1
		}
		k += from
		if start := k - at; start+len(lit) <= len(text) && bytes.Equal(text[start:start+len(lit)], lit) {
			return start
		}
		from = k + 1
		if wrong++; wrong > 32 && wrong*64 > from {
			start := from - at
			if k = bytes.Index(text[start:], lit); k >= 0 {
				k += start
			}
			return k
		}
	}
	return -1
}

// Index is bytes.Index.
func Index(text, lit []byte) int { return NewFinder(lit).Index(text) }

// Finders are Finders for several literals.
func Finders(lits [][]byte) []Finder {
	all := make([]Finder, len(lits))
	for i, lit := range lits {
		all[i] = NewFinder(lit)
	}
	return all
}

// IndexAny is where the first of some literals is. It looks at a stretch after the other, each
// longer, so that a rare one is not looked for to the end each time that a frequent one is
// near.
func IndexAny(text []byte, lits []Finder) int {
	for start, size := 0, 512; start < len(text); start, size = start+size, min(4*size, 64<<10) {
		first := -1
		for _, lit := range lits {
			end := min(start+size+len(lit.literal)-1, len(text))
			if first >= 0 {
				end = min(first+len(lit.literal), end)
			}
			if k := lit.Index(text[start:end]); k >= 0 && (first < 0 || start+k < first) {
				first = start + k
			}
		}
		if first >= 0 {
			return first
		}
	}
	return -1
}

// rarest is where the byte of a literal is that is rarest in texts.
func rarest(lit []byte) int {
	at, best := 0, -1
	for i, b := range lit {
		r := strings.IndexByte(common, b)
		if r < 0 {
			r = len(common)
		}
		if r > best {
			at, best = i, r
		}
	}
	return at
}

// IndexFold is bytes.Index for an ASCII literal in lower case, in any case.
func IndexFold(text, lit []byte) int {
	at := rarest(lit)
	low := lit[at]
	up := byte(unicode.ToUpper(rune(low)))
	nextLow, nextUp := -2, -2 // where each is next; -1 for nowhere, -2 for not known
	for from := at; from+len(lit)-at <= len(text); {
		if nextLow != -1 && nextLow < from {
			if nextLow = bytes.IndexByte(text[from:], low); nextLow >= 0 {
				nextLow += from
			}
		}
		if up == low {
			nextUp = -1
		} else if nextUp != -1 && nextUp < from {
			if nextUp = bytes.IndexByte(text[from:], up); nextUp >= 0 {
				nextUp += from
			}
		}
		k := nextLow
		if k < 0 || nextUp >= 0 && nextUp < k {
			k = nextUp
		}
		if k < 0 || k-at+len(lit) > len(text) {
			return -1
		}
		if equalFold(text[k-at:k-at+len(lit)], lit) {
			return k - at
		}
		from = k + 1
	}
	return -1
}

func equalFold(text, lit []byte) bool {
	for i, b := range text {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != lit[i] {
			return false
		}
	}
	return true
}
