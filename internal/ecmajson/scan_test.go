package ecmajson

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestValidAgreesWithEncodingJSON(t *testing.T) {
	for _, s := range seeds {
		if got, want := Valid([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("Valid(%q) = %v, encoding/json says %v", s, got, want)
		}
	}
}

func TestNestingIsNoMatterOfTheGoStack(t *testing.T) {
	for _, depth := range []int{1, 511, 512, 513, 577, 9_000, 1_000_000} {
		for _, pair := range [][2]string{{"[", "]"}, {`{"k":`, "}"}, {`[{"k":`, "}]"}} {
			open, shut := strings.Repeat(pair[0], depth), strings.Repeat(pair[1], depth)
			if depth == 1_000_000 && pair[0] == `[{"k":` {
				continue // the two others show it
			}
			b := []byte(open + "1" + shut)
			if !Valid(b) {
				t.Fatalf("%d levels of %s refused", depth, pair[0])
			}
			if Valid(b[:len(b)-1]) || Valid([]byte(open+"1"+shut+"]")) {
				t.Fatalf("%d levels of %s: unbalanced brackets accepted", depth, pair[0])
			}
			out, err := AppendNormal(nil, b)
			if err != nil || string(out) != string(b) {
				t.Fatalf("%d levels of %s: AppendNormal changed them, or failed: %v", depth, pair[0], err)
			}
			if end := ValueEnd(b, 0); end != len(b) {
				t.Fatalf("%d levels of %s: ValueEnd = %d of %d", depth, pair[0], end, len(b))
			}
		}
	}
}

func TestScanFindsTheEndOfTheFirstValue(t *testing.T) {
	for in, want := range map[string]int{
		`{"a":1}{"b":2}`: 7, ` [1] x`: 4, `"a"b`: 3, `1 2`: 1, `truefalse`: 4, "\x00": -1, `{"a":1`: -2, ``: -2, `"\u12`: -2, `nul`: -2, `-`: -2, `1.`: -2, `{"a" 1}`: -1, `01`: 1,
	} {
		end, err := Scan([]byte(in))
		switch {
		case want >= 0 && (err != nil || end != want):
			t.Errorf("Scan(%q) = %d, %v; want %d", in, end, err, want)
		case want == -1 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)):
			t.Errorf("Scan(%q): error %v, want one that is no truncation", in, err)
		case want == -2 && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("Scan(%q): error %v, want a truncation", in, err)
		}
	}
}

var seeds = []string{
	``, ` `, `{}`, `[]`, `null`, `true`, `false`, `nul`, `tru`, `nulll`, `0`, `-0`, `-`, `01`, `1.`, `.5`, `1e`, `1e+`, `1e5`, `1E-5`, `0.1`, `-1.5e300`, `1e400`,
	`""`, `"`, `"a`, `"\u12`, `"\u12g4"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\x"`, "\"\x01\"", "\"\x7f\"", "\"\xff\"", "\"\xed\xa0\x80\"", `"\/"`,
	`{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{,}`, `{"a":1 "b":2}`, `[1,]`, `[,1]`, `[1 2]`, `[1}`, `{"a":1]`, ` { "a" : [ 1 , 2 ] } `, `{"a":1}{"b":2}`, `[[[[]]]]`,
	`{"b":1,"a":2,"b":3}`, `{"10":1,"2":2,"x":3,"1":4}`, `{"__proto__":1,"a":{"9":1,"1":2,"9":3}}`, `{"x":{"z":1,"0":{"a":1,"a":2}},"0":0}`,
	`{"4294967294":1,"4294967295":2,"0":3,"00":4,"-1":5,"1.5":6}`, "\ufeff{}", "{}\n", "\t{}", "\v{}", `"01234567\n89abcdef"`, "\"0123456\x00\"",
}

func FuzzValid(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if strings.Count(string(b), "[")+strings.Count(string(b), "{") > 9_000 {
			t.Skip("encoding/json gives up at 10,000 levels")
		}
		if got, want := Valid(b), json.Valid(b); got != want {
			t.Fatalf("Valid(%q) = %v, encoding/json says %v", b, got, want)
		}
	})
}

func FuzzScan(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add([]byte(s + s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := Scan(b)
		if err == nil {
			if !Valid(b[:end]) {
				t.Fatalf("Scan(%q) = %d, but that prefix is not valid", b, end)
			}
			return
		}
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset > len(b) || syntax.Truncated != (syntax.Offset == len(b)) {
			t.Fatalf("Scan(%q): odd error %#v", b, err)
		}
		// The walkers trust their input, but must survive any.
		for range Object(b) {
		}
		for range Array(b) {
		}
	})
}
