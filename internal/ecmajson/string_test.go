package ecmajson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func TestAppendStringWritesAsStringifyDoes(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   `""`,
		"plain":                              `"plain"`,
		"a\"b\\c/d":                          `"a\"b\\c/d"`,
		"\b\f\n\r\t\x00\x1f\x7f":             "\"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\"",
		"<script>&\u2028\u2029é\U0001F600":   "\"<script>&\u2028\u2029é\U0001F600\"",
		"lone \xed\xa0\xbd and \xed\xb8\x80": `"lone \ud83d and \ude00"`,
		"halves \xed\xa0\xbd\xed\xb8\x80":    "\"halves \U0001F600\"",
		"\xed\xa0":                           "\"\uFFFD\uFFFD\"",
		"\xf0\x9f\x98 \xff\xfe \xc0\xaf":     "\"\uFFFD \uFFFD\uFFFD \uFFFD\uFFFD\"",
	} {
		if got := AppendString([]byte("> "), in); string(got) != "> "+want {
			t.Errorf("AppendString(%q) = %s, want > %s", in, got, want)
		}
		if got := QuoteWTF8(nil, []byte(in)); string(got) != want {
			t.Errorf("QuoteWTF8(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestUnquoteKeepsHalfASurrogatePair(t *testing.T) {
	for in, want := range map[string]string{
		`""`: "", `"ab"`: "ab", `"\"\\\/\b\f\n\r\t\u0041"`: "\"\\/\b\f\n\r\tA", `"\ud83d\ude00"`: "\U0001F600", `"\ud83d"`: "\xed\xa0\xbd",
		`"\uDE00\uD83Dx"`: "\xed\xb8\x80\xed\xa0\xbdx", `"\ud83d\ud83d\ude00"`: "\xed\xa0\xbd\U0001F600", "\"\xff\xed\xa0\x80\"": "\uFFFD\uFFFD\uFFFD\uFFFD",
	} {
		if got, err := Unquote([]byte(in)); err != nil || string(got) != want {
			t.Errorf("Unquote(%s) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{``, `"`, `a`, `"a`, `"a"b`, `"a""`, `"\x"`, `"\u12"`, "\"\n\"", `1`, ` "a"`} {
		if got, err := Unquote([]byte(in)); !errors.Is(err, ErrNotString) {
			t.Errorf("Unquote(%q) = %q, %v; want ErrNotString", in, got, err)
		}
	}
}

// units is the JavaScript string that a literal stands for, by another road:
// escapes of surrogates are kept from being joined or replaced.
func unitsOf(t *testing.T, lit []byte) []uint16 {
	t.Helper()
	var out []uint16
	b, err := Unquote(lit)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		if u, ok := surrogate(b); ok {
			out, b = append(out, u), b[3:]
			continue
		}
		r, size := utf8.DecodeRune(b)
		out, b = utf16.AppendRune(out, r), b[size:]
	}
	return out
}

func FuzzString(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), 3)
	}
	f.Add([]byte("\"a\U0001F600b\\ud83d\\ude00c\\ud83d\xff\xf0\x9f\""), 4)
	f.Add([]byte(strings.Repeat("0123456\U0001F600", 9)), 40)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		lit := QuoteWTF8(nil, b)
		if !Normal(lit) || !json.Valid(lit) {
			t.Fatalf("QuoteWTF8(%q) = %s is not normal", b, lit)
		}
		if !bytes.Equal(lit, AppendString(nil, string(b))) {
			t.Fatalf("AppendString differs from QuoteWTF8 for %q", b)
		}
		whole, err := Unquote(lit)
		if err != nil || !bytes.Equal(QuoteWTF8(nil, whole), lit) {
			t.Fatalf("no round trip of %q by %s, %q, %v", b, lit, whole, err)
		}
		if utf8.Valid(b) && !bytes.Equal(whole, b) {
			t.Fatalf("%q came back as %q", b, whole)
		}
		for _, lit := range [][]byte{lit, b} {
			if len(lit) < 2 || lit[0] != '"' || !Valid(lit) || lit[len(lit)-1] != '"' {
				continue
			}
			units := unitsOf(t, lit)
			if n := UTF16Len(lit); n != len(units) {
				t.Fatalf("UTF16Len(%s) = %d, want %d", lit, n, len(units))
			}
			cut := CutUTF16(lit, limit)
			got := unitsOf(t, append(bytes.Clone(cut), '"'))
			n := max(0, min(limit, len(units)))
			if n < len(units) && n > 0 && isHigh(units[n-1]) && isLow(units[n]) {
				n--
			}
			if len(got) != n {
				t.Fatalf("CutUTF16(%s, %d) = %s: %d units, want %d", lit, limit, cut, len(got), n)
			}
			for i, u := range got {
				if u != units[i] {
					t.Fatalf("CutUTF16(%s, %d) = %s is no prefix", lit, limit, cut)
				}
			}
		}
	})
}
