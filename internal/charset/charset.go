// Package charset guesses in which encoding a text is that is no UTF-8, and decodes it.
//
// It knows UTF-16 and what people wrote in before UTF-8: Shift-JIS, EUC-JP, GB18030, Big5, EUC-KR,
// KOI8-R, the code pages of Windows and ISO 8859. A guess is a guess: an encoding of two
// bytes a character is believed only if all of the sample is text in it, and anything that
// is not clearly something else is Windows-1252.
//
// All functions are safe for concurrent use; a decoder belongs to one goroutine.
package charset

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gogs/chardet"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Encoding is how characters are bytes. The zero value is UTF-8.
type Encoding struct {
	name string
	enc  encoding.Encoding
}

// UTF-16 in either order of bytes, without its byte order mark.
var (
	UTF16LE = Encoding{"UTF-16LE", unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)}
	UTF16BE = Encoding{"UTF-16BE", unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)}

	// ShiftJIS is that of Japanese before Unicode.
	ShiftJIS = Encoding{"Shift-JIS", japanese.ShiftJIS}

	windows1252 = Encoding{"Windows-1252", charmap.Windows1252}
	latin1      = Encoding{"ISO-8859-1", charmap.ISO8859_1}
)

// String is the name by which people know the encoding.
func (e Encoding) String() string {
	if e.enc == nil {
		return "UTF-8"
	}
	return e.name
}

// IsUTF8 reports whether there is nothing to decode.
func (e Encoding) IsUTF8() bool { return e.enc == nil }

// Western reports whether the encoding is one that a guess falls back to.
func (e Encoding) Western() bool { return e.name == windows1252.name || e.name == latin1.name }

// NewDecoder returns a transformer to UTF-8. What is no character becomes U+FFFD. It may begin
// at any character.
func (e Encoding) NewDecoder() transform.Transformer {
	if e.enc == nil {
		return transform.Nop
	}
	return e.enc.NewDecoder().Transformer
}

// Decode returns a text in UTF-8. The error is set when it is not to be had back: it has what is
// no character in the encoding.
func (e Encoding) Decode(data []byte) ([]byte, error) {
	if e.enc == nil {
		return data, nil
	}
	text, err := e.enc.NewDecoder().Bytes(data)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", e, err)
	}
	if again, err := e.Encode(text); err != nil || !bytes.Equal(again, data) {
		return nil, fmt.Errorf("decoding %s: %w", e, ErrDamaged)
	}
	return text, nil
}

// ErrDamaged is returned for a text that is not all of characters.
var ErrDamaged = errors.New("it has what is no character in it")

// Encode is the inverse of Decode. A character that the encoding does not have is an error.
func (e Encoding) Encode(text []byte) ([]byte, error) {
	if e.enc == nil {
		return text, nil
	}
	return e.enc.NewEncoder().Bytes(text)
}

// kind is what the characters of an encoding look like.
type kind int

const (
	single kind = iota // Latin letters, some above ASCII
	script             // other letters: whole words above ASCII
	double             // more than a byte a character
)

// candidate is an encoding, and of how much of a hundred chardet has to be sure.
type candidate struct {
	Encoding
	of   kind
	sure int
}

// known are encodings by the names that chardet gives.
var known = map[string]candidate{
	"Shift_JIS":    {ShiftJIS, double, 30},
	"EUC-JP":       {Encoding{"EUC-JP", japanese.EUCJP}, double, 30},
	"GB18030":      {Encoding{"GB18030", simplifiedchinese.GB18030}, double, 30},
	"Big5":         {Encoding{"Big5", traditionalchinese.Big5}, double, 30},
	"EUC-KR":       {Encoding{"EUC-KR", korean.EUCKR}, double, 30},
	"KOI8-R":       {Encoding{"KOI8-R", charmap.KOI8R}, script, 15},
	"windows-1251": {Encoding{"Windows-1251", charmap.Windows1251}, script, 15},
	"ISO-8859-5":   {Encoding{"ISO-8859-5", charmap.ISO8859_5}, script, 15},
	"ISO-8859-7":   {Encoding{"ISO-8859-7", charmap.ISO8859_7}, script, 15},
	"windows-1253": {Encoding{"Windows-1253", charmap.Windows1253}, script, 15},
	"ISO-8859-8":   {Encoding{"ISO-8859-8", charmap.ISO8859_8}, script, 15},
	"ISO-8859-8-I": {Encoding{"ISO-8859-8", charmap.ISO8859_8}, script, 15},
	"windows-1255": {Encoding{"Windows-1255", charmap.Windows1255}, script, 15},
	"ISO-8859-6":   {Encoding{"ISO-8859-6", charmap.ISO8859_6}, script, 15},
	"windows-1256": {Encoding{"Windows-1256", charmap.Windows1256}, script, 15},
	"ISO-8859-2":   {Encoding{"ISO-8859-2", charmap.ISO8859_2}, single, 45},
	"windows-1250": {Encoding{"Windows-1250", charmap.Windows1250}, single, 45},
	"ISO-8859-9":   {Encoding{"ISO-8859-9", charmap.ISO8859_9}, single, 45},
}

// Guess names the encoding of a text that is no UTF-8, by a sample of the lines that have
// bytes above ASCII. It returns UTF-8 for a text in UTF-8 of which little is damaged.
func Guess(sample []byte) Encoding {
	good, bad, c1, undefined := 0, 0, 0, 0
	for i := 0; i < len(sample); {
		switch b := sample[i]; {
		case b == 0x81 || b == 0x8d || b == 0x8f || b == 0x90 || b == 0x9d:
			undefined++
		case b >= 0x80 && b < 0xa0:
			c1++
		}
		r, n := utf8.DecodeRune(sample[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			bad++
		case n > 1:
			good++
		}
		i += n
	}
	if bad == 0 || good >= bad {
		return Encoding{}
	}
	list, _ := chardet.NewTextDetector().DetectAll(sample) // its error is that there is none
	slices.SortFunc(list, func(a, b chardet.Result) int {
		return cmp.Or(b.Confidence-a.Confidence, strings.Compare(a.Charset, b.Charset))
	})
	if len(list) > 0 {
		best := list[0]
		switch e := known[best.Charset]; {
		case e.enc == nil, best.Confidence < e.sure:
		case e.of == single || e.of == double && e.fits(sample) || e.of == script && e.mostly(sample):
			return e.Encoding
		}
	}
	if c1 > 0 && undefined == 0 {
		return windows1252
	}
	return latin1
}

// fits reports whether all of a sample is text in the encoding, except for a character that
// its end cuts.
func (e Encoding) fits(sample []byte) bool {
	text, err := e.enc.NewDecoder().Bytes(sample)
	if err != nil {
		return false
	}
	at := bytes.IndexRune(text, utf8.RuneError)
	return at < 0 || at+utf8.RuneLen(utf8.RuneError) == len(text)
}

// mostly reports whether characters above ASCII stand together, as in scripts that are not
// Latin: those of the West are single ones in words of ASCII.
func (e Encoding) mostly(sample []byte) bool {
	together, single := 0, 0
	for i, b := range sample {
		switch {
		case b < 0x80:
		case i > 0 && sample[i-1] >= 0x80 || i+1 < len(sample) && sample[i+1] >= 0x80:
			together++
		default:
			single++
		}
	}
	return together > 4*single && e.fits(sample)
}
