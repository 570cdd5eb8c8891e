package blobref_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
)

func TestMentionsAreFoundInEveryForm(t *testing.T) {
	ref := blobref.Of([]byte("a blob"))
	hex := ref.Hex()
	for name, text := range map[string]string{
		"alone":                   hex,
		"a reference":             `{"data":"blob:sha256:` + hex + `"}`,
		"a reference in a string": `"{\"data\":\"blob:sha256:` + hex + `\"}"`,
		"a URL":                   "see blob://sha256/" + hex + ":10-20",
		"behind an escape that ends with a digit": `"\b` + hex + `"`,
		"behind an escaped letter":                `"\u00e9` + hex + `"`,
		"with a word behind":                      "blob:sha256:" + hex + "abc",
		"in a long run of digits":                 strings.Repeat("0", 500) + hex,
		"at the start of a long run":              hex + strings.Repeat("0", 500),
		"with its prefix damaged":                 "blob:shb256:" + hex + `"`,
		"in binary":                               "\x00\xff" + hex + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			for _, pad := range []int{0, 1, 63, 64, 65, 1000} {
				text := strings.Repeat("x", pad) + text + strings.Repeat("y", pad)
				if !slices.Contains(blobref.AppendMentions(nil, []byte(text)), ref) {
					t.Errorf("not found with %d bytes around it", pad)
				}
			}
		})
	}
	for name, text := range map[string]string{
		"63 digits":           hex[1:],
		"upper-case digits":   strings.ToUpper(hex),
		"digits with a break": hex[:32] + "\n" + hex[32:],
	} {
		if got := blobref.AppendMentions(nil, []byte(text)); len(got) > 0 {
			t.Errorf("%s: found %v", name, got)
		}
	}
}

func TestMentionsAmongOtherTextAreAllFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		var want []blobref.Ref
		for range rapid.IntRange(0, 8).Draw(t, "parts") {
			b = append(b, rapid.StringOfN(rapid.RuneFrom([]rune("0123456789abcdef:\"\\ xyz")), 0, 100, -1).Draw(t, "text")...)
			b = append(b, ' ')
			ref := blobref.Of(b)
			want = append(want, ref)
			b = append(append(b, ref.Hex()...), ' ')
		}
		got := blobref.AppendMentions(nil, b)
		for _, ref := range want {
			if !slices.Contains(got, ref) {
				t.Fatalf("%v is not found in %q", ref, b)
			}
		}
	})
}

func FuzzAppendMentions(f *testing.F) {
	f.Add([]byte("blob:sha256:" + strings.Repeat("0a", 32)))
	f.Add(bytes.Repeat([]byte("f"), 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, ref := range blobref.AppendMentions(nil, b) {
			if !bytes.Contains(b, []byte(ref.Hex())) {
				t.Errorf("%v is not in %q", ref, b)
			}
		}
		// Whatever Parse takes is found.
		for i := 0; i+blobref.TextLen <= len(b); i++ {
			if ref, err := blobref.Parse(string(b[i : i+blobref.TextLen])); err == nil && !slices.Contains(blobref.AppendMentions(nil, b), ref) {
				t.Errorf("%v is not found", ref)
			}
		}
	})
}
