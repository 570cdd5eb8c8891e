package ecmajson

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"unicode/utf8"
)

// AppendNormal appends the one JSON value in src, white space around it
// allowed, to dst in its normal form (see the package comment). Input that is
// normal already is checked in one pass, without allocation, and copied in one
// piece. dst and src must not overlap. On error, a [*SyntaxError], dst comes
// back as it was.
func AppendNormal(dst, src []byte) ([]byte, error) {
	c := checkers.Get().(*checker)
	defer c.release()
	if c.check(src) && len(c.unordered) == 0 {
		return append(dst, src...), nil
	}
	end, err := Scan(src)
	if err != nil {
		return dst, err
	}
	if tail := skipSpace(src, end); tail != len(src) {
		return dst, &SyntaxError{Offset: tail}
	}
	start := len(dst)
	dst = appendTokens(dst, src[:end])
	if !c.check(dst[start:]) {
		panic("ecmajson: normal tokens found not normal")
	}
	if len(c.unordered) == 0 {
		return dst, nil
	}
	return appendOrdered(dst[:start], slices.Clone(dst[start:]), c.unordered), nil
}

// Normal reports whether b is one JSON value in normal form.
func Normal(b []byte) bool {
	c := checkers.Get().(*checker)
	defer c.release()
	return c.check(b) && len(c.unordered) == 0
}

// appendTokens copies valid JSON token by token: white space goes, strings and
// numbers become normal. The order of members stays.
func appendTokens(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case isSpace(c):
			i++
		case c == '"':
			end, _ := stringEnd(src, i)
			dst = appendNormalString(dst, src[i:end])
			i = end
		case c == '-' || c-'0' <= 9:
			end, _ := numberEnd(src, i)
			dst = appendNumber(dst, src[i:end])
			i = end
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

func appendNormalString(dst, lit []byte) []byte {
	if end, ok := normalStringEnd(lit, 0); ok && end == len(lit) {
		return append(dst, lit...)
	}
	body := lit[1 : len(lit)-1]
	return QuoteWTF8(dst, appendUnquoted(make([]byte, 0, len(body)), body))
}

// normalStringEnd is stringEnd for literals in normal form only.
func normalStringEnd(b []byte, i int) (end int, ok bool) {
	i++
	start, ascii := i, true
	for {
		for len(b)-i >= 8 {
			w := binary.LittleEndian.Uint64(b[i:])
			m := special(w)
			if w&highs != 0 {
				ascii = false // perhaps of a byte behind the string: checked in vain, never wrongly
			}
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
			ascii = ascii && b[i] < utf8.RuneSelf
			i++
		}
		if i == len(b) {
			return i, false
		}
		switch b[i] {
		case '"':
			return i + 1, ascii || utf8.Valid(b[start:i])
		case '\\':
			size := normalEscapeLen(b[i:])
			if size == 0 {
				return i, false
			}
			i += size
		default:
			return i, false
		}
	}
}

// normalEscapeLen is the length of the escape at the start of s if JSON.stringify writes it so, else 0.
func normalEscapeLen(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
	default:
		return 0
	}
	if len(s) < 6 {
		return 0
	}
	for _, c := range s[2:6] {
		if unhex[c] > 15 || 'A' <= c && c <= 'F' {
			return 0
		}
	}
	switch u := unit(s); {
	case u < 0x20:
		if shorts[u] != 0 {
			return 0
		}
	case isHigh(u):
		if len(s) >= 12 && s[6] == '\\' {
			if end, ok := escapeEnd(s, 6); ok && end == 12 && isLow(unit(s[6:])) {
				return 0 // a pair is written as the character itself
			}
		}
	case !isLow(u):
		return 0
	}
	return 6
}

// appendOrdered appends text, which is normal but for the order of members in
// the objects given, with those in order. Each byte is copied once: an object
// inside a member is put in order when the walk gets there.
func appendOrdered(dst, text []byte, objects []unordered) []byte {
	slices.SortFunc(objects, func(a, b unordered) int { return a.open - b.open })
	type stretch struct {
		from, to int
		comma    bool
	}
	todo := []stretch{{from: 0, to: len(text)}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.comma {
			dst = append(dst, ',')
		}
		k := sort.Search(len(objects), func(k int) bool { return objects[k].open >= s.from })
		if k == len(objects) || objects[k].open >= s.to {
			dst = append(dst, text[s.from:s.to]...)
			continue
		}
		o := objects[k]
		dst = append(dst, text[s.from:o.open+1]...)
		todo = append(todo, stretch{from: o.close, to: s.to})
		for i := len(o.members) - 1; i >= 0; i-- {
			todo = append(todo, stretch{from: o.members[i].start, to: o.members[i].end, comma: i > 0})
		}
	}
	return dst
}

var checkers = sync.Pool{New: func() any { return new(checker) }}

// release gives a checker back, without what an unusual input made it grow to.
func (c *checker) release() {
	if cap(c.frames) > 1<<12 || cap(c.keys) > 1<<12 {
		c.frames, c.keys = nil, nil
	}
	c.large, c.unordered = nil, nil
	checkers.Put(c)
}
