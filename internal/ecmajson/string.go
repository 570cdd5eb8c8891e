package ecmajson

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// ErrNotString means that the bytes are not one string literal in quotes.
var ErrNotString = errors.New("not a JSON string literal")

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, by the high bit of its byte, the first byte of eight in w that
// is a quote, a backslash or a control character. Marks above the first may be
// false (a borrow runs upward); the lowest never is. Bytes of 0x80 and more are
// none of these and would spoil the subtractions, hence the &^ w.
func special(w uint64) uint64 {
	quote, slash := w^'"'*ones, w^'\\'*ones
	return ((quote - ones) | (slash - ones) | (w - 0x20*ones)) &^ w & highs
}

// stringEnd reads the string literal that opens at i and returns the index
// after its closing quote, or the offset of the byte that does not fit.
func stringEnd(b []byte, i int) (end int, ok bool) {
	i++
	for {
		for len(b)-i >= 8 {
			if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
			i++ // only behind the last eight bytes
		}
		if i >= len(b) {
			return len(b), false
		}
		switch b[i] {
		case '"':
			return i + 1, true
		case '\\':
			if i, ok = escapeEnd(b, i); !ok {
				return i, false
			}
		default:
			return i, false
		}
	}
}

// escapeEnd reads the escape sequence whose backslash is at i.
func escapeEnd(b []byte, i int) (end int, ok bool) {
	i++
	if i == len(b) {
		return i, false
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, true
	case 'u':
		for k := 1; k <= 4; k++ {
			if i+k >= len(b) || unhex[b[i+k]] > 15 {
				return min(i+k, len(b)), false
			}
		}
		return i + 5, true
	}
	return i, false
}

// unhex holds the value of a hexadecimal digit, 255 for any other byte.
var unhex = func() (t [256]byte) {
	for c := range t {
		switch c := byte(c); {
		case '0' <= c && c <= '9':
			t[c] = c - '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			t[c] = (c | 0x20) - 'a' + 10
		default:
			t[c] = 255
		}
	}
	return t
}()

const (
	hexDigits   = "0123456789abcdef"
	replacement = "\uFFFD"
)

// shorts maps a control character, quote or backslash to the letter of its two-character escape.
var shorts = [128]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't', '"': '"', '\\': '\\'}

// AppendString appends s as JSON.stringify would write it, quotes included.
// s is UTF-8, or WTF-8 whose lone surrogates become \udxxx; every maximal
// sequence of bytes that is neither becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	// Only read from, so the string may stand in for a slice.
	return QuoteWTF8(dst, unsafe.Slice(unsafe.StringData(s), len(s)))
}

// QuoteWTF8 is [AppendString] for bytes: the inverse of [Unquote].
func QuoteWTF8(dst, wtf8 []byte) []byte {
	dst = append(dst, '"')
	dst = appendQuoted(dst, wtf8)
	return append(dst, '"')
}

func appendQuoted(dst, s []byte) []byte {
	done, i := 0, 0
	for i < len(s) {
		if i = quotedEnd(s, i); i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[done:i]...), c)
			i++
			done = i
			continue
		}
		if _, size := utf8.DecodeRune(s[i:]); size > 1 {
			i += size
			continue
		}
		dst = append(dst, s[done:i]...)
		if unit, ok := surrogate(s[i:]); ok {
			i += 3
			if low, ok := surrogate(s[i:]); ok && isHigh(unit) && isLow(low) {
				// Two halves written apart are one character all the same.
				i += 3
				dst = utf8.AppendRune(dst, join(unit, low))
			} else {
				dst = appendUnit(dst, unit)
			}
		} else {
			i += badLen(s[i:])
			dst = append(dst, replacement...)
		}
		done = i
	}
	return append(dst, s[done:]...)
}

// quotedEnd gives the index of the first byte at or after i that is not plain
// ASCII, or len(s).
func quotedEnd(s []byte, i int) int {
	for len(s)-i >= 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		if m := special(w) | w&highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(s) && s[i] != '"' && s[i] != '\\' && s[i] >= 0x20 && s[i] < utf8.RuneSelf {
		i++
	}
	return i
}

func appendEscape(dst []byte, c byte) []byte {
	if short := shorts[c]; short != 0 {
		return append(dst, '\\', short)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

func appendUnit(dst []byte, u uint16) []byte {
	return append(dst, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// surrogate reads the WTF-8 form of a surrogate at the start of s.
func surrogate(s []byte) (unit uint16, ok bool) {
	if len(s) < 3 || s[0] != 0xED || s[1]&0xE0 != 0xA0 || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | uint16(s[1]&0x3F)<<6 | uint16(s[2]&0x3F), true
}

func isHigh(u uint16) bool { return u&0xFC00 == 0xD800 }
func isLow(u uint16) bool  { return u&0xFC00 == 0xDC00 }

func join(high, low uint16) rune {
	return (rune(high)-0xD800)<<10 + (rune(low) - 0xDC00) + 0x10000
}

// badLen is the length of the maximal subpart at the start of s, which is not
// UTF-8: how many bytes one U+FFFD stands for in the decoder of the WHATWG
// Encoding Standard, and so in every JavaScript engine.
func badLen(s []byte) int {
	lo, hi, need := byte(0x80), byte(0xBF), 0
	switch c := s[0]; {
	case 0xC2 <= c && c <= 0xDF:
		need = 1
	case 0xE0 <= c && c <= 0xEF:
		need = 2
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case 0xF0 <= c && c <= 0xF4:
		need = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	}
	n := 1
	for ; n <= need && n < len(s) && lo <= s[n] && s[n] <= hi; n++ {
		lo, hi = 0x80, 0xBF
	}
	return n
}

// Unquote decodes a string literal, quotes included, to WTF-8. The result
// aliases lit when there is nothing to decode, so it must not be written to.
// A pair of surrogate escapes gives one character, half a pair is kept as it
// is, and bytes that are not UTF-8 give U+FFFD.
func Unquote(lit []byte) ([]byte, error) {
	if len(lit) < 2 || lit[0] != '"' || lit[len(lit)-1] != '"' {
		return nil, ErrNotString
	}
	body := lit[1 : len(lit)-1]
	if quotedEnd(body, 0) == len(body) {
		return body, nil // plain ASCII
	}
	if end, ok := stringEnd(lit, 0); !ok || end != len(lit) {
		return nil, ErrNotString
	}
	if bytes.IndexByte(body, '\\') < 0 && utf8.Valid(body) {
		return body, nil
	}
	return appendUnquoted(make([]byte, 0, len(body)), body), nil
}

// appendUnquoted decodes the inside of a valid literal.
func appendUnquoted(dst, s []byte) []byte {
	done, i := 0, 0
	for i < len(s) {
		if i = quotedEnd(s, i); i == len(s) {
			break
		}
		if s[i] >= utf8.RuneSelf {
			if _, size := utf8.DecodeRune(s[i:]); size > 1 {
				i += size
				continue
			}
			dst = append(append(dst, s[done:i]...), replacement...)
			i += badLen(s[i:])
			done = i
			continue
		}
		dst = append(dst, s[done:i]...)
		r, size := unescape(s[i:])
		dst = appendWTF8(dst, r)
		i += size
		done = i
	}
	return append(dst, s[done:]...)
}

// unescape reads one valid escape sequence, or a pair of them that makes one
// character. A lone surrogate comes back as its code unit.
//
// An escape that is cut off is one U+FFFD: some callers look at text before it is
// known to be JSON.
func unescape(s []byte) (r rune, size int) {
	if len(s) < 2 || s[1] == 'u' && len(s) < 6 {
		return utf8.RuneError, len(s)
	}
	switch c := s[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		high := unit(s)
		if isHigh(high) && len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
			if low := unit(s[6:]); isLow(low) {
				return join(high, low), 12
			}
		}
		return rune(high), 6
	default:
		return rune(c), 2
	}
}

// unit reads the four digits of a valid \uxxxx.
func unit(s []byte) uint16 {
	_ = s[5]
	return uint16(unhex[s[2]])<<12 | uint16(unhex[s[3]])<<8 | uint16(unhex[s[4]])<<4 | uint16(unhex[s[5]])
}

// appendWTF8 is utf8.AppendRune without its refusal of surrogates.
func appendWTF8(dst []byte, r rune) []byte {
	if 0xD800 <= r && r <= 0xDFFF {
		return append(dst, 0xED, 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}
