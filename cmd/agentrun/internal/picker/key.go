package picker

import (
	"unicode"
	"unicode/utf8"
)

// Key is a key by its name, or the one character that it types.
type Key string

// Keys that type nothing.
const (
	Up        Key = "up"
	Down      Key = "down"
	PageUp    Key = "page up"
	PageDown  Key = "page down"
	Home      Key = "home"
	End       Key = "end"
	Enter     Key = "enter"
	Esc       Key = "esc"
	Tab       Key = "tab"
	Backspace Key = "backspace"
	CtrlC     Key = "ctrl-c"
	CtrlU     Key = "ctrl-u"
	Unknown   Key = "unknown"
)

// text reports whether the key types a character.
func (k Key) text() bool {
	r, n := utf8.DecodeRuneInString(string(k))
	return n == len(k) && n > 0 && r != utf8.RuneError && !unicode.IsControl(r)
}

var controls = map[byte]Key{
	0x03: CtrlC, 0x08: Backspace, '\t': Tab, '\n': Enter, 0x0e: Down, '\r': Enter, 0x10: Up, 0x15: CtrlU, 0x7f: Backspace,
}

// sequences are what terminals send behind ESC [ and ESC O (xterm, VT220, rxvt).
var sequences = map[string]Key{
	"A": Up, "B": Down, "H": Home, "F": End,
	"1~": Home, "7~": Home, "4~": End, "8~": End, "5~": PageUp, "6~": PageDown,
}

// maxSequence is how long a sequence of a key may be; real ones have at most 12 bytes.
const maxSequence = 32

// decode returns the first key of what a terminal sent, and its bytes; 0 when more has
// to come. With last nothing more comes: ESC alone is a key then.
func decode(buf []byte, last bool) (Key, int) {
	if len(buf) == 0 {
		return Unknown, 0
	}
	if buf[0] == 0x1b {
		return decodeEscape(buf, last)
	}
	if k, ok := controls[buf[0]]; ok {
		return k, 1
	}
	if !utf8.FullRune(buf) && !last {
		return Unknown, 0
	}
	r, n := utf8.DecodeRune(buf)
	if r == utf8.RuneError && n <= 1 || unicode.IsControl(r) {
		return Unknown, n
	}
	return Key(buf[:n]), n
}

func decodeEscape(buf []byte, last bool) (Key, int) {
	switch {
	case len(buf) == 1 && last:
		return Esc, 1
	case len(buf) == 1:
		return Unknown, 0
	case buf[1] == 0x1b:
		return Esc, 1
	case buf[1] != '[' && buf[1] != 'O':
		_, n := utf8.DecodeRune(buf[1:])
		return Unknown, 1 + n // a key with alt
	}
	for n := 2; n < len(buf); n++ {
		switch c := buf[n]; {
		case c >= 0x40 && c <= 0x7e:
			if k, ok := sequences[string(buf[2:n+1])]; ok {
				return k, n + 1
			}
			return Unknown, n + 1
		case c < 0x20 || n >= maxSequence:
			return Unknown, n
		}
	}
	if last {
		return Unknown, len(buf)
	}
	return Unknown, 0
}
