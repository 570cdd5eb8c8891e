package blobref_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
)

const (
	testHex  = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	testText = "blob:sha256:" + testHex
)

func TestOfIsTheSHA256OfTheBytes(t *testing.T) {
	ref := blobref.Of([]byte("test"))
	if got := ref.String(); got != testText {
		t.Errorf("String() = %q, want %q", got, testText)
	}
	if got := ref.Hex(); got != testHex {
		t.Errorf("Hex() = %q, want %q", got, testHex)
	}
	if got, want := ref.Sum(), sha256.Sum256([]byte("test")); got != want {
		t.Errorf("Sum() = %x, want %x", got, want)
	}
	if got := blobref.FromSum(ref.Sum()); got != ref {
		t.Errorf("FromSum(Sum()) = %v, want %v", got, ref)
	}
	if got := string(ref.AppendTo([]byte("see "))); got != "see "+testText {
		t.Errorf("AppendTo = %q", got)
	}
	if len(testText) != blobref.TextLen {
		t.Errorf("TextLen = %d, want %d", blobref.TextLen, len(testText))
	}
}

func TestParseRefusesEverythingButTheOneForm(t *testing.T) {
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"prefix alone", blobref.Prefix},
		{"digest without prefix", testHex},
		{"upper-case digits", blobref.Prefix + strings.ToUpper(testHex)},
		{"one upper-case digit", blobref.Prefix + "F" + testHex[1:]},
		{"upper-case prefix", strings.ToUpper(blobref.Prefix) + testHex},
		{"63 digits", testText[:len(testText)-1]},
		{"65 digits", testText + "0"},
		{"a letter after f", blobref.Prefix + "g" + testHex[1:]},
		{"a space in front", " " + testText},
		{"a newline behind", testText + "\n"},
		{"a space for a digit", blobref.Prefix + " " + testHex[1:]},
		{"an extension", testText + ".png"},
		{"a path", blobref.Prefix + "../../../../../../../../../../../../../../../../../../etc/passwd"[:64]},
		{"a NUL for a digit", blobref.Prefix + "\x00" + testHex[1:]},
		{"another hash", "blob:sha512:" + testHex},
		{"a digit of another script", blobref.Prefix + "٣" + testHex[2:]},
		{"long hostile text", strings.Repeat("x", 1<<20)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ref, err := blobref.Parse(tt.text)
			if !errors.Is(err, blobref.ErrInvalid) {
				t.Fatalf("Parse = %v, %v; want ErrInvalid", ref, err)
			}
			if !ref.IsZero() {
				t.Errorf("Parse returned %v beside an error", ref)
			}
			if len(err.Error()) > 800 || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("error is no short line: %.900q", err.Error())
			}
			kept := blobref.Of(nil)
			if err := kept.UnmarshalText([]byte(tt.text)); !errors.Is(err, blobref.ErrInvalid) {
				t.Errorf("UnmarshalText = %v, want ErrInvalid", err)
			}
			if kept != blobref.Of(nil) {
				t.Error("a failed UnmarshalText changed the Ref")
			}
		})
	}
}

func TestParseHexRefusesThePrefixAndUpperCase(t *testing.T) {
	if ref, err := blobref.ParseHex(testHex); err != nil || ref != blobref.Of([]byte("test")) {
		t.Errorf("ParseHex = %v, %v", ref, err)
	}
	for _, bad := range []string{"", testText, strings.ToUpper(testHex), testHex[1:], testHex + "0", testHex[:62] + "/."} {
		if ref, err := blobref.ParseHex(bad); !errors.Is(err, blobref.ErrInvalid) || !ref.IsZero() {
			t.Errorf("ParseHex(%q) = %v, %v; want ErrInvalid", bad, ref, err)
		}
	}
}

func TestZeroNamesNoBlob(t *testing.T) {
	var zero blobref.Ref
	if !zero.IsZero() {
		t.Error("the zero Ref says it is not zero")
	}
	if zero.Verify(nil) {
		t.Error("the zero Ref verifies the empty blob")
	}
	if blobref.Of(nil).IsZero() {
		t.Error("the Ref of the empty blob is zero")
	}
	// The grammar knows no exception, so 64 zeros parse, and to nothing else.
	if ref, err := blobref.Parse(zero.String()); err != nil || !ref.IsZero() {
		t.Errorf("Parse(%q) = %v, %v", zero.String(), ref, err)
	}
}

func TestVerifyKnowsItsBytesFromOthers(t *testing.T) {
	ref := blobref.Of([]byte("test"))
	if !ref.Verify([]byte("test")) {
		t.Error("Verify refuses the bytes it was made of")
	}
	for _, other := range []string{"", "tesT", "test\x00", "tes"} {
		if ref.Verify([]byte(other)) {
			t.Errorf("Verify(%q) is true", other)
		}
	}
}

func TestJSONIsTheTextAndARefIsAMapKey(t *testing.T) {
	type doc struct {
		Ref  blobref.Ref         `json:"ref"`
		None blobref.Ref         `json:"none,omitzero"`
		Map  map[blobref.Ref]int `json:"map"`
	}
	ref := blobref.Of([]byte("test"))
	in := doc{Ref: ref, Map: map[blobref.Ref]int{ref: 7}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"ref":%q,"map":{%q:7}}`, testText, testText); string(text) != want {
		t.Errorf("Marshal = %s, want %s", text, want)
	}
	var out doc
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	if out.Ref != ref || out.Map[ref] != 7 {
		t.Errorf("Unmarshal = %+v", out)
	}
	if err := json.Unmarshal([]byte(`{"ref":"blob:sha256:00"}`), &out); !errors.Is(err, blobref.ErrInvalid) {
		t.Errorf("Unmarshal of a short ref = %v, want ErrInvalid", err)
	}
}

func TestARefIs32Bytes(t *testing.T) {
	if size := unsafe.Sizeof(blobref.Ref{}); size != 32 {
		t.Errorf("a Ref takes %d bytes, want 32", size)
	}
}

func TestParsingAndAppendingAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, blobref.TextLen)
	text := []byte(testText)
	allocs := testing.AllocsPerRun(100, func() {
		ref, err := blobref.Parse(testText)
		if err != nil {
			t.Fatal(err)
		}
		buf = ref.AppendTo(buf[:0])
		if err := ref.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func TestEveryDigestSurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum [32]byte
		copy(sum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sum"))
		ref := blobref.FromSum(sum)
		if got, want := ref.Hex(), hex.EncodeToString(sum[:]); got != want {
			t.Fatalf("Hex() = %q, want %q", got, want)
		}
		back, err := blobref.Parse(ref.String())
		if err != nil || back != ref {
			t.Fatalf("Parse(String()) = %v, %v; want %v", back, err, ref)
		}
		back, err = blobref.ParseHex(ref.Hex())
		if err != nil || back != ref {
			t.Fatalf("ParseHex(Hex()) = %v, %v; want %v", back, err, ref)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		testText, "", blobref.Prefix, testHex, strings.ToUpper(testText), testText + "\n",
		blobref.Prefix + strings.Repeat("0", 64), blobref.Prefix + strings.Repeat("f", 63) + "G",
		"blob:sha256:../../../../../../../../../../../../../../../../../../../../../etc",
	} {
		f.Add(seed)
	}
	grammar := regexp.MustCompile(`\Ablob:sha256:[0-9a-f]{64}\z`)
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := blobref.Parse(text)
		if ok := grammar.MatchString(text); ok != (err == nil) {
			t.Fatalf("Parse(%q) = %v, %v; the grammar says %v", text, ref, err, ok)
		}
		if err == nil && ref.String() != text {
			t.Fatalf("Parse(%q).String() = %q", text, ref.String())
		}
		var other blobref.Ref
		if err2 := other.UnmarshalText([]byte(text)); (err2 == nil) != (err == nil) || other != ref {
			t.Fatalf("UnmarshalText(%q) = %v, %v; Parse = %v, %v", text, other, err2, ref, err)
		}
	})
}
