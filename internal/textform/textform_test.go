package textform

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/charset"
)

func TestDecodeKnowsTheForm(t *testing.T) {
	utf16le := func(s string) string {
		var b strings.Builder
		for _, r := range s {
			b.WriteByte(byte(r))
			b.WriteByte(byte(r >> 8))
		}
		return b.String()
	}
	sjis := func(s string) string {
		out, err := charset.ShiftJIS.Encode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, c := range []struct {
		name, data, text string
		form             Form
	}{
		{"nothing", "", "", Form{}},
		{"plain", "a\nb\n", "a\nb\n", Form{FinalNewline: true}},
		{"without a last newline", "a\nb", "a\nb", Form{}},
		{"with a byte order mark", "\xef\xbb\xbfa", "a", Form{BOM: true}},
		{"carriage returns", "a\r\nb\r\n", "a\r\nb\r\n", Form{CRLF: true, FinalNewline: true}},
		{"some carriage returns", "a\r\nb\n", "a\r\nb\n", Form{Mixed: true, FinalNewline: true}},
		{"UTF-16 with a mark", "\xff\xfe" + utf16le("grün\n"), "grün\n", Form{Encoding: UTF16LE, BOM: true, FinalNewline: true}},
		{"UTF-16, the other order", "\xfe\xff\x00a\x00b", "ab", Form{Encoding: UTF16BE, BOM: true}},
		{"UTF-16 without a mark", utf16le("hello world\r\n"), "hello world\r\n", Form{Encoding: UTF16LE, CRLF: true, FinalNewline: true}},
		{"characters of two units", "\xff\xfe\x3d\xd8\x00\xde", "😀", Form{Encoding: UTF16LE, BOM: true}},
		{"Latin-1", "gr\xfcn\n", "grün\n", Form{Encoding: Latin1, FinalNewline: true}},
		{"Windows-1252", "\x80 5\n", "€ 5\n", Form{Encoding: Windows1252, FinalNewline: true}},
		{"Shift-JIS", sjis("吾輩は猫である。名前はまだ無い。\r\n"), "吾輩は猫である。名前はまだ無い。\r\n", Form{Encoding: Other, charset: charset.ShiftJIS, CRLF: true, FinalNewline: true}},
		{"damaged UTF-8", "grün grün \xfc", "grün grün \xfc", Form{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, f, err := Decode([]byte(c.data))
			if err != nil || string(text) != c.text || f != c.form {
				t.Fatalf("%q, %+v, %v", text, f, err)
			}
			if again, err := f.Encode(text); err != nil || string(again) != c.data {
				t.Errorf("encoded: %q, %v", again, err)
			}
		})
	}
}

func TestDecodeRefusesWhatIsNoText(t *testing.T) {
	for _, data := range []string{"a\x00b", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00", "\xff\xfe\x00\x00a\x00\x00\x00", "\xff\xfea", "\xff\xfe\x00\xd8a\x00"} {
		if text, f, err := Decode([]byte(data)); !errors.Is(err, ErrBinary) {
			t.Errorf("%q: %q, %+v, %v", data, text, f, err)
		}
	}
}

func TestEncodeRefusesWhatTheEncodingHasNot(t *testing.T) {
	for _, f := range []Form{{Encoding: Latin1}, {Encoding: Windows1252}, {Encoding: Other, charset: charset.ShiftJIS}} {
		if out, err := f.Encode([]byte("ё✓é")); err == nil || !strings.Contains(err.Error(), "convert the file first") {
			t.Errorf("%s: %q, %v", f.Encoding, out, err)
		}
	}
}

// What Decode takes, Encode gives back to the byte.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"a\r\nb", "\xff\xfea\x00", "\xfe\xff\x00a", "\xef\xbb\xbfx", "gr\xfcn", "a\x00\x00\x00", "a\x00b\x00c\x00d\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, form, err := Decode(data)
		if err != nil {
			return
		}
		again, err := form.Encode(text)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q is %q as %+v, encoded %q, %v", data, text, form, again, err)
		}
	})
}
