// Package textform tells how a text is written down in a file, takes that off, and
// puts it back: encoding, byte order mark, line ends.
//
// Decode and [Form.Encode] are inverse to the byte: a file that Decode took apart and
// that was not changed is encoded as it was, or Decode refuses it. UTF-8 is the rule, and
// costs a look at the bytes. A byte order mark of UTF-16, or the zero bytes that text in
// it has, make a file UTF-16; what is no UTF-8 and has no zero byte is what package charset
// guesses, Windows-1252 or ISO 8859-1 if that is nothing else and it looks like text, and else UTF-8 with damage, which
// is left as it is.
//
// All functions are safe for concurrent use.
package textform

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"github.com/agentrun/agentrun/internal/charset"
)

// Encoding is how characters are bytes.
type Encoding uint8

const (
	UTF8 Encoding = iota
	UTF16LE
	UTF16BE
	Windows1252
	Latin1 // ISO 8859-1
	Other  // one of package charset, which Form.Name tells
)

// String is the name by which people know the encoding.
func (e Encoding) String() string {
	return [...]string{"UTF-8", "UTF-16LE", "UTF-16BE", "Windows-1252", "ISO-8859-1", "another encoding"}[e]
}

// ErrBinary is returned for bytes that are no text.
var ErrBinary = errors.New("it is binary")

// Form is how a text is written down.
type Form struct {
	Encoding Encoding
	charset  charset.Encoding // for Other
	BOM      bool             // it begins with a byte order mark
	// CRLF is set when every line ends with a carriage return and a newline.
	CRLF bool
	// Mixed is set when only some do.
	Mixed bool
	// FinalNewline is set when the last line has an end.
	FinalNewline bool
}

// Name is the name by which people know the encoding.
func (f Form) Name() string {
	if f.Encoding == Other {
		return f.charset.String()
	}
	return f.Encoding.String()
}

// Window is how many of the first bytes of a file Detect wants.
const Window = 8 << 10

var boms = []struct {
	bytes    string
	encoding Encoding
}{{"\xef\xbb\xbf", UTF8}, {"\xff\xfe", UTF16LE}, {"\xfe\xff", UTF16BE}}

// Detect guesses the encoding by the first bytes of a file, Window of them or all, and
// returns the size of the byte order mark. The error matches ErrBinary for what is no
// text.
func Detect(head []byte) (e Encoding, bom int, err error) {
	for _, b := range boms {
		if bytes.HasPrefix(head, []byte(b.bytes)) {
			if b.encoding == UTF16LE && bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")) {
				return UTF8, 0, fmt.Errorf("it is UTF-32: %w", ErrBinary)
			}
			return b.encoding, len(b.bytes), nil
		}
	}
	if bytes.IndexByte(head, 0) >= 0 {
		e, err := detect16(head)
		return e, 0, err
	}
	return detect8(head), 0, nil
}

// detect16 looks at bytes of which some are zero. Text of the scripts of Europe has
// them in every second place of UTF-16.
func detect16(head []byte) (Encoding, error) {
	var zero [2]int
	for i, b := range head {
		if b == 0 {
			zero[i%2]++
		}
	}
	switch half := len(head) / 2; {
	case half >= 4 && zero[1] > half*7/10 && zero[0] <= half/20:
		return UTF16LE, nil
	case half >= 4 && zero[0] > half*7/10 && zero[1] <= half/20:
		return UTF16BE, nil
	}
	return UTF8, ErrBinary
}

// detect8 looks at bytes of which none is zero.
func detect8(head []byte) Encoding {
	if utf8.Valid(head) {
		return UTF8
	}
	good, bad, control, c1, undefined := 0, 0, 0, 0, 0
	for i := 0; i < len(head); {
		switch b := head[i]; {
		case b < ' ' && b != '\n' && b != '\r' && b != '\t' && b != '\f' && b != 0x1b:
			control++
		case b == 0x81 || b == 0x8d || b == 0x8f || b == 0x90 || b == 0x9d:
			undefined++
		case b >= 0x80 && b < 0xa0:
			c1++
		}
		r, n := utf8.DecodeRune(head[i:])
		switch {
		case r != utf8.RuneError || n > 1:
			if n > 1 {
				good++
			}
		case i+utf8.UTFMax > len(head) && !utf8.FullRune(head[i:]):
			// the window cuts a character
		default:
			bad++
		}
		i += n
	}
	switch {
	case bad == 0 || good > bad || control > len(head)/50:
		return UTF8 // with damage
	case c1 > 0 && undefined == 0:
		return Windows1252
	}
	return Latin1
}

// Decode returns the text of a file in UTF-8, without a byte order mark and with line
// ends as they are, and how it was written down. For UTF-8 the text is a part of data.
// The error matches ErrBinary for what is no text.
func Decode(data []byte) ([]byte, Form, error) {
	e, bom, err := Detect(data[:min(len(data), Window)])
	if err == nil && e == UTF8 && bytes.IndexByte(data, 0) >= 0 {
		err = ErrBinary
	}
	if err != nil {
		return nil, Form{}, err
	}
	if e >= Windows1252 {
		e = detect8(data) // of all of it
	}
	f := Form{Encoding: e, BOM: bom > 0}
	text := data[bom:]
	if e >= Windows1252 {
		if decoded, c, ok := other(data); ok {
			f.Encoding, f.charset = Other, c
			f.ends(decoded)
			return decoded, f, nil
		}
	}
	if e != UTF8 {
		text = e.Append(nil, text)
		if again, err := f.Encode(text); err != nil || !bytes.Equal(again, data) {
			return nil, Form{}, fmt.Errorf("it seems to be %s and is damaged: %w", e, ErrBinary)
		}
	}
	f.ends(text)
	return text, f, nil
}

// other decodes a text that is neither UTF-8 nor Western.
func other(data []byte) ([]byte, charset.Encoding, bool) {
	var check charset.Checker
	_, _ = check.Write(data) // never fails
	c := check.Guess()
	if c.IsUTF8() || c.Western() {
		return nil, c, false
	}
	text, err := c.Decode(data)
	return text, c, err == nil
}

func (f *Form) ends(text []byte) {
	newlines := bytes.Count(text, newline)
	both := 0
	if newlines > 0 {
		both = bytes.Count(text, crlf)
	}
	f.CRLF = both > 0 && both == newlines
	f.Mixed = both > 0 && both < newlines
	f.FinalNewline = bytes.HasSuffix(text, newline)
}

var (
	newline = []byte("\n")
	crlf    = []byte("\r\n")
)

// Append decodes whole characters of src and appends them to dst. What is none becomes
// U+FFFD.
func (e Encoding) Append(dst, src []byte) []byte {
	switch e {
	case UTF16LE, UTF16BE:
		units := make([]uint16, 0, len(src)/2+1)
		for ; len(src) >= 2; src = src[2:] {
			units = append(units, e.unit(src))
		}
		for i := 0; i < len(units); i++ {
			r := rune(units[i])
			if utf16.IsSurrogate(r) {
				second := utf8.RuneError
				if i+1 < len(units) {
					second = rune(units[i+1])
				}
				if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
					i++
				}
			}
			dst = utf8.AppendRune(dst, r)
		}
		if len(src) == 1 {
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
		return dst
	case Windows1252:
		for _, b := range src {
			dst = utf8.AppendRune(dst, charmap.Windows1252.DecodeByte(b))
		}
		return dst
	case Latin1:
		for _, b := range src {
			dst = utf8.AppendRune(dst, rune(b))
		}
		return dst
	}
	return append(dst, src...)
}

func (e Encoding) unit(b []byte) uint16 {
	if e == UTF16LE {
		return uint16(b[0]) | uint16(b[1])<<8
	}
	return uint16(b[0])<<8 | uint16(b[1])
}

// Encode writes a text down in the encoding of f, with its byte order mark. Line ends
// stay as they are. A character that the encoding does not have is an error.
func (f Form) Encode(text []byte) ([]byte, error) {
	var out []byte
	if f.BOM {
		for _, b := range boms {
			if b.encoding == f.Encoding {
				out = append(out, b.bytes...)
			}
		}
	}
	if f.Encoding == UTF8 {
		if !f.BOM {
			return text, nil
		}
		return append(out, text...), nil
	}
	if f.Encoding == Other {
		out, err := f.charset.Encode(text)
		if err != nil {
			return nil, fmt.Errorf("the file is %s, which does not have all of these characters; use others, or convert the file first", f.Name())
		}
		return out, nil
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return nil, fmt.Errorf("the text is no UTF-8 at byte %d", i)
		}
		i += n
		switch f.Encoding {
		case Windows1252, Latin1:
			b, ok := byte(r), r < 0x100
			if f.Encoding == Windows1252 {
				b, ok = charmap.Windows1252.EncodeRune(r)
			}
			if !ok {
				return nil, fmt.Errorf("the file is %s, which has no %q; use other characters, or convert the file first", f.Encoding, r)
			}
			out = append(out, b)
		default:
			if r1, r2 := utf16.EncodeRune(r); r1 != utf8.RuneError {
				out = f.Encoding.appendUnit(f.Encoding.appendUnit(out, r1), r2)
			} else {
				out = f.Encoding.appendUnit(out, r)
			}
		}
	}
	return out, nil
}

func (e Encoding) appendUnit(out []byte, u rune) []byte {
	if e == UTF16LE {
		return append(out, byte(u), byte(u>>8))
	}
	return append(out, byte(u>>8), byte(u))
}

// CRLF ends each line of text with a carriage return and a newline, those that do so
// already as well.
func CRLF(text []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(text, crlf, newline), newline, crlf)
}
