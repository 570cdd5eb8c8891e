package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// value has what is escaped somewhere: a slash, a quote, a plus, a space, a newline and letters beyond ASCII.
const value = "pa/\"ss\\ <+>w-örd\n🔑-=plan ted"

func TestAValueIsFoundInTheFormsInWhichProgramsTellIt(t *testing.T) {
	js, _ := json.Marshal(value)
	inner := string(js[1 : len(js)-1])
	std := base64.StdEncoding.EncodeToString([]byte(value))
	for name, in := range map[string]string{
		"as it is":                     value,
		"JSON of Go":                   inner,
		"JSON with escaped slashes":    strings.ReplaceAll(inner, "/", `\/`),
		"JSON in ASCII":                `pa/\"ss\\ <+>w-\u00f6rd\n\ud83d\udd11-=plan ted`,
		"JSON in ASCII, upper case":    `pa\u002F\"ss\\ \u003C+\u003Ew\u002D\u00F6rd\u000A\uD83D\uDD11\u002d=plan ted`,
		"a string of C":                `pa/\"ss\\ <+>w-\xc3\xb6rd\n\xf0\x9f\x94\x91-=plan ted`,
		"a part of a URL":              url.PathEscape(value),
		"a query":                      url.QueryEscape(value),
		"a query, lower case":          strings.ToLower(url.QueryEscape(value)),
		"a URL with what may stand so": "pa%2F%22ss%5C%20<+>w-%c3%b6rd%0a%f0%9f%94%91-=plan%20ted",
		"coloured":                     "pa/\x1b[01;31m\x1b[K\"ss\\ <+>w-ö\x1b[m\x1b[Krd\n🔑-=plan ted",
		"hexadecimal":                  fmt.Sprintf("%x", value),
		"hexadecimal, upper case":      fmt.Sprintf("%X", value),
		"bytes with colons":            strings.ReplaceAll(fmt.Sprintf("% x", value), " ", ":"),
		"bytes with spaces":            fmt.Sprintf("% X", value),
		"a string of bytes of C":       strings.ReplaceAll(fmt.Sprintf("% x", value), " ", `\x`),
		"hexadecimal in lines":         fmt.Sprintf("%x", value[:9]) + "\n" + fmt.Sprintf("%x", value[9:]),
		"base64 in lines":              std[:12] + "\n" + std[12:24] + "\r\n" + std[24:40],
	} {
		if name == "base64 in lines" {
			if got := redacted(in+"rest", value[:30]); !strings.HasPrefix(got, "[redacted:variable:1]") {
				t.Errorf("%s: %q became %q", name, in, got)
			}
			continue
		}
		for _, around := range []string{"%s", "a%sb", `"%s"`, "x=%s&y"} {
			in, want := fmt.Sprintf(around, in), fmt.Sprintf(around, "[redacted:variable:1]")
			if got := redacted(in, value); got != want {
				t.Errorf("%s: %q became %q", name, in, got)
			}
		}
	}
}

func TestAValueIsFoundInBase64WhateverStandsBeforeIt(t *testing.T) {
	const secret = "hunter2/hunter3?>~" // in both alphabets
	for before := range 7 {
		for after := range 4 {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
				in := enc.EncodeToString([]byte("user:xy"[:before] + secret + "\nzz\n"[:after]))
				got := redacted(in, secret)
				head, tail, ok := strings.Cut(got, "[redacted:variable:1]")
				if !ok || len(head) > 4*(before/3)+3 || len(tail) > 4*(after/3)+6 {
					t.Errorf("%d before, %d behind: %s became %s", before, after, in, got)
				}
			}
		}
	}
}

func TestInUTF16TheMarkIsUTF16Too(t *testing.T) {
	encode := func(s string, big bool) string {
		var out []byte
		for _, u := range utf16.Encode([]rune(s)) {
			if big {
				out = append(out, byte(u>>8), byte(u))
			} else {
				out = append(out, byte(u), byte(u>>8))
			}
		}
		return string(out)
	}
	for _, big := range []bool{false, true} {
		in, want := encode("é hunter2-hunter2 é", big), encode("é [redacted:variable:1] é", big)
		if got := redacted(in, "hunter2-hunter2"); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestAValueHasOneNumberInEveryForm(t *testing.T) {
	var kept []string
	r := New(Options{Values: []string{"hunter2/hunter2"}, Number: func(_ string, secret []byte) int64 {
		kept = append(kept, string(secret))
		return 1
	}})
	in := "hunter2/hunter2 hunter2%2Fhunter2 hunter2\\/hunter2 " + base64.StdEncoding.EncodeToString([]byte("hunter2/hunter2"))
	if out, n := r.Text([]byte(in)); n != 4 {
		t.Errorf("%d in %s", n, out)
	}
	for _, k := range kept {
		if k != "hunter2/hunter2" {
			t.Errorf("%q was kept", k)
		}
	}
}

func TestWhatOnlyLooksLikeAFormStays(t *testing.T) {
	for _, in := range []string{
		`hunter2\x2`, "hunter2%2", `hunter2\u002`, "hunter2%2Ghunter2", `hunter2\/hunter`, "hunter2\x1b[", "hunter2\x1b[31mx", `\u00`, "hunter2%2\x00hunter2",
		"hunter2\x1b]0;x\x07/hunter2", "hunter2\n/hunter2",
	} {
		if got := redacted(in, "hunter2/hunter2"); got != in {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func TestAValueThatStandsInMarksIsNone(t *testing.T) {
	r := New(Options{Values: []string{"redacted", "variable", "url-password"}})
	if out, n := r.Text([]byte("[redacted:variable:1] redacted url-password")); n != 0 {
		t.Errorf("became %s", out)
	}
}

func TestHowAStreamOfFormsIsCutChangesNothing(t *testing.T) {
	js, _ := json.Marshal(value)
	all := []string{
		value, string(js), url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte("xy" + value)), `\ud83d`, `\u00`, "%2", "\x1b[01;3", "\x1b[m",
		"\n", "\\", `pa/\"ss\\ <+>w-\u00f6rd\n\ud83d\udd11-=plan ted`,
	}
	values := []string{value, "🔑-=plan ted", "\\\\ud83d\\x", "%2F%2F%2F", "+ + + + + +"}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			s := rapid.SampledFrom(append(all, values...)).Draw(t, "part")
			from := 0
			if rapid.Bool().Draw(t, "cut") {
				from = rapid.IntRange(0, len(s)).Draw(t, "from")
			}
			b.WriteString(s[from:rapid.IntRange(from, len(s)).Draw(t, "to")])
			if rapid.Bool().Draw(t, "colour") {
				b.WriteString("\x1b[31m")
			}
		}
		in := b.String()
		want := redacted(in, values...)
		most := rapid.SampledFrom([]int{1, 2, 10, 100}).Draw(t, "most")
		if got := pieces(in, func() int { return rapid.IntRange(1, most).Draw(t, "size") }, values...); got != want {
			t.Fatalf("%q\nin pieces became %q\nwhole %q", in, got, want)
		}
	})
}
