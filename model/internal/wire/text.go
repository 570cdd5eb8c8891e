package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is a string of a delta. Servers that cut texts by UTF-16 put the halves of a
// character into two deltas, as escapes of surrogates; encoding/json makes two replacement
// characters of them. Text keeps a half in the form of WTF-8, three bytes that are no UTF-8, for
// model.Answer to put together.
type Text string

// UnmarshalJSON reads a string, and null as "".
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if bytes.Contains(b, []byte(`\ud`)) || bytes.Contains(b, []byte(`\uD`)) {
		s = halves(b, s)
	}
	*t = Text(s)
	return nil
}

// halves decodes a JSON string that is valid, and keeps what is half a character. s is what it
// is without those.
func halves(quoted []byte, s string) string {
	half := func(at int) rune { // the surrogate that is escaped there, 0 if none is
		if at+6 > len(quoted) || quoted[at] != '\\' || quoted[at+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(quoted[at+2:at+6]), 16, 16)
		if r := rune(n); err == nil && utf16.IsSurrogate(r) {
			return r
		}
		return 0
	}
	lone := false
	var out []byte
	begin := 1 // of what json decodes next
	flush := func(to int) {
		var part string
		if json.Unmarshal([]byte(`"`+string(quoted[begin:to])+`"`), &part) == nil { // a part of a valid string is one
			out = append(out, part...)
		}
	}
	end := len(quoted) - 1
	for i := 1; i < end; {
		if quoted[i] != '\\' {
			i++
			continue
		}
		first := half(i)
		switch {
		case first == 0:
			i += 2 // behind \u four digits follow, which are no backslash
		case utf16.DecodeRune(first, half(i+6)) != utf8.RuneError:
			i += 12
		default:
			flush(i)
			out = append(out, 0xE0|byte(first>>12), 0x80|byte(first>>6)&0x3F, 0x80|byte(first)&0x3F)
			lone = true
			i += 6
			begin = i
		}
	}
	if !lone {
		return s
	}
	flush(end)
	return string(out)
}
