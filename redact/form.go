package redact

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// form is a text by which the value of a variable is told: the value itself, base64 or hexadecimal of it, or its UTF-16.
type form struct {
	text  string
	value string // which is numbered, in whatever form it stands
	lines bool   // base64, which may be broken into lines
	wide  bool   // UTF-16
	hex   bool   // hexadecimal, in which something may stand between bytes
}

// forms are those of a value.
func forms(value string) []*form {
	all := []*form{{text: value, value: value}}
	if !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		all = append(all, &form{text: strings.Join(strings.Split(value, ""), "\x00"), value: value, wide: true})
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before, skip := range []int{0, 2, 3} {
			// What stands before the value, and how it goes on, is in the first characters and the last one too: they are left out.
			text := enc.EncodeToString(append(make([]byte, before), value...))
			text = text[skip : 8*(before+len(value))/6]
			if !slices.ContainsFunc(all, func(f *form) bool { return f.text == text }) {
				all = append(all, &form{text: text, value: value, lines: true})
			}
		}
	}
	for _, verb := range []string{"%x", "%X"} {
		if text := fmt.Sprintf(verb, value); all[len(all)-1].text != text {
			all = append(all, &form{text: text, value: value, hex: true})
		}
	}
	return all
}

// Limits of what may stand between two characters of a value.
const (
	maxBreaks  = 256 // sequences that colour it, or ends of lines
	maxControl = 32  // bytes of such a sequence
)

// match matches a form at the beginning of b: as it is, or any of its characters escaped as in JSON, C or a URL, and with sequences for
// colours between them. It returns how many bytes it has there.
func (f *form) match(b []byte, whole bool) (int, verdict) {
	if v := startsWith(b, f.text, whole); v != nothing || f.wide {
		return len(f.text), v
	}
	i, breaks := 0, 0
	for j := 0; j < len(f.text); {
		n, of, v := f.char(b[i:], f.text[j:], j > 0)
		switch {
		case v == unsure && !whole:
			return 0, unsure
		case v != found:
			return 0, nothing
		}
		if of == 0 {
			if breaks++; breaks > maxBreaks {
				return 0, nothing
			}
		}
		i, j = i+n, j+of
	}
	return i, found
}

// char matches the next character: n bytes of b are of bytes of text, or of none where they are what may stand between.
func (f *form) char(b []byte, text string, within bool) (n, of int, v verdict) {
	if len(b) == 0 {
		return 0, 0, unsure
	}
	if f.hex {
		return hexDigit(b, text, within)
	}
	switch c := b[0]; {
	case c == '\\':
		n, of, v = escape(b, text)
	case c == '%':
		n, of, v = hexByte(b, 1, text)
	case c == '+' && text[0] == ' ':
		return 1, 1, found
	case c == 0x1b && within:
		n, v = control(b)
	case c == '\n' && within && f.lines:
		return 1, 0, found
	case c == '\r' && within && f.lines:
		n, v = 2, startsWith(b, "\r\n", false)
	}
	if v == nothing && b[0] == text[0] {
		return 1, 1, found
	}
	return n, of, v
}

// hexDigit matches the next digit, or what stands between two bytes.
func hexDigit(b []byte, text string, within bool) (n, of int, v verdict) {
	if within && len(text)%2 == 0 {
		if strings.IndexByte(between, b[0]) >= 0 {
			return 1, 0, found
		}
		if v := startsWith(b, `\x`, false); v != nothing {
			return 2, 0, v
		}
	}
	if b[0] == text[0] {
		return 1, 1, found
	}
	return 0, 0, nothing
}

// between is what may stand between two bytes in hexadecimal, besides \x.
const between = " :\n\r"

// escapes are those of one letter, each before what it stands for.
const escapes = "n\nr\rt\tb\bf\f\"\"''//\\\\"

// escape matches what begins with a backslash.
func escape(b []byte, text string) (n, of int, v verdict) {
	if len(b) < 2 {
		return 0, 0, unsure
	}
	switch b[1] {
	case 'x':
		return hexByte(b, 2, text)
	case 'u':
		first, v := hexUnit(b)
		if v != found {
			return 0, 0, v
		}
		r, n := rune(first), 6
		if utf16.IsSurrogate(r) {
			if v := startsWith(b[6:], `\u`, false); v != found {
				return 0, 0, v
			}
			second, v := hexUnit(b[6:])
			if v != found {
				return 0, 0, v
			}
			r, n = utf16.DecodeRune(r, rune(second)), 12
		}
		if s := string(r); strings.HasPrefix(text, s) {
			return n, len(s), found
		}
		return 0, 0, nothing
	}
	for i := 0; i < len(escapes); i += 2 {
		if escapes[i] == b[1] && escapes[i+1] == text[0] {
			return 2, 1, found
		}
	}
	return 0, 0, nothing
}

// hexByte matches a byte in hexadecimal behind a mark of at bytes.
func hexByte(b []byte, at int, text string) (n, of int, v verdict) {
	c, v := number(b, at, 2)
	switch {
	case v == found && c == uint32(text[0]):
		return at + 2, 1, found
	case v == found: // another byte
		return 0, 0, nothing
	}
	return 0, 0, v
}

// hexUnit reads \u and four digits.
func hexUnit(b []byte) (uint32, verdict) { return number(b, 2, 4) }

// number reads digits behind the first at bytes.
func number(b []byte, at, digits int) (n uint32, v verdict) {
	for i := at; i < at+digits; i++ {
		if i >= len(b) {
			return 0, unsure
		}
		d := bytes.IndexByte([]byte("0123456789abcdef"), b[i]|0x20)
		if d < 0 || b[i] < '0' {
			return 0, nothing
		}
		n = n<<4 | uint32(d)
	}
	return n, found
}

// control matches a sequence that begins with ESC [.
func control(b []byte) (n int, v verdict) {
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case i > maxControl, i == 1 && c != '[':
			return 0, nothing
		case i > 1 && c >= 0x40 && c <= 0x7e:
			return i + 1, found
		case i > 1 && (c < 0x20 || c > 0x7e):
			return 0, nothing
		}
	}
	return 0, unsure
}

// begins are the first three bytes of all that match may find.
func (f *form) begins() []string {
	if f.wide {
		return []string{f.text[:3]}
	}
	var all []string
	var grow func(begun, text string)
	grow = func(begun, text string) {
		if f.hex && len(begun) == 2 {
			for _, c := range between + `\` {
				all = append(all, begun+string(c))
			}
		}
		if len(begun) >= 3 {
			if begun = begun[:3]; !slices.Contains(all, begun) {
				all = append(all, begun)
			}
			return
		}
		for _, c := range written(text) {
			grow(begun+c.as, text[c.of:])
		}
	}
	grow("", f.text)
	return all
}

// way is how the first bytes of a text may be written.
type way struct {
	as string
	of int
}

// written are the ways in which the first character may be written. Letters and digits are never escaped.
func written(text string) []way {
	c := text[0]
	ways := []way{{text[:1], 1}}
	if alnum[c] {
		return ways
	}
	for _, digits := range []string{"0123456789abcdef", "0123456789ABCDEF"} {
		two := string([]byte{digits[c>>4], digits[c&15]})
		ways = append(ways, way{"%" + two, 1}, way{`\x` + two, 1})
	}
	for i := 0; i < len(escapes); i += 2 {
		if escapes[i+1] == c {
			ways = append(ways, way{`\` + escapes[i:i+1], 1})
		}
	}
	if c == ' ' {
		ways = append(ways, way{"+", 1})
	}
	if r, n := utf8.DecodeRuneInString(text); r != utf8.RuneError {
		if r > 0xffff {
			r, _ = utf16.EncodeRune(r)
		}
		const lower, upper = "0123456789abcdef", "0123456789ABCDEF"
		ways = append(ways, way{`\u` + lower[r>>12:r>>12+1], n}, way{`\u` + upper[r>>12:r>>12+1], n})
	}
	return ways
}

// widen writes a mark in UTF-16, without the zero byte at its end or its beginning, as it stands for text.
func widen(mark []byte) []byte {
	var out []byte
	for i, c := range mark {
		if i > 0 {
			out = append(out, 0)
		}
		out = append(out, c)
	}
	return out
}
