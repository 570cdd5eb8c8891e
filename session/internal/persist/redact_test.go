package persist

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hide replaces two words.
func hide(text []byte) ([]byte, int) {
	n := bytes.Count(text, []byte("hunter\n2")) + bytes.Count(text, []byte("hidden"))
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("hunter\n2"), []byte("[x]")), []byte("hidden"), []byte("[x]")), n
}

func TestRedactReachesEveryTextAndNothingThatIsSigned(t *testing.T) {
	deep := strings.Repeat(`{"`+strings.Repeat("k", 1000)+`":`, 100)
	ends := strings.Repeat("}", 100)
	for in, want := range map[string]string{
		`{"type":"custom","data":{"a":"hunter\n2","b":["x hunter\n2 y",{"c":1}]}}`:                             `{"type":"custom","data":{"a":"[x]","b":["x [x] y",{"c":1}]}}`,
		`{"message":{"content":[{"type":"text","text":"hunter\n2"}]}}`:                                         `{"message":{"content":[{"type":"text","text":"[x]"}]}}`,
		`{"message":{"content":[{"type":"text","text":"hunter\n2","textSignature":"s"}]}}`:                     ``,
		`{"message":{"content":[{"textSignature":"s","type":"text","text":"hunter\n2"}]}}`:                     ``,
		`{"message":{"content":[{"type":"thinking","thinking":"hunter\n2","thinkingSignature":"s"}]}}`:         ``,
		`{"message":{"content":[{"type":"thinking","thinking":"hunter\n2"}]}}`:                                 `{"message":{"content":[{"type":"thinking","thinking":"[x]"}]}}`,
		`{"message":{"content":[{"type":"toolCall","arguments":{"a":"hunter\n2"},"thoughtSignature":"s"}]}}`:   ``,
		`{"message":{"content":[{"type":"toolCall","arguments":{"a":"hunter\n2"}}]}}`:                          `{"message":{"content":[{"type":"toolCall","arguments":{"a":"[x]"}}]}}`,
		`{"message":{"content":[{"type":"redactedThinking","data":"hunter\n2"}]}}`:                             ``,
		`{"message":{"content":[{"type":"reasoning","summary":"hunter\n2","encrypted_content":"hunter\n2"}]}}`: ``,
		`{"message":{"content":[{"type":"anthropicServerTool","block":{"a":"hunter\n2"}}]}}`:                   ``,
		`{"details":{"encrypted_content":"hunter\n2","thinkingSignature":"hunter\n2","b":"hunter\n2"}}`:        `{"details":{"encrypted_content":"hunter\n2","thinkingSignature":"hunter\n2","b":"[x]"}}`,
		`{"message":{"content":[{"type":"image","mimeType":"image/png","data":"hunter\n2"},"hunter\n2"]}}`:     `{"message":{"content":[{"type":"image","mimeType":"image/png","data":"hunter\n2"},"[x]"]}}`,
		`{"image_url":"data:image/png;base64,hunter\n2"}`:                                                      ``,
		`{"type":"hidden"}`: ``, `{"message":{"role":"hidden","content":"hidden","stopReason":"hidden"}}`: `{"message":{"role":"hidden","content":"[x]","stopReason":"hidden"}}`,
		`{"type":"hidden 1"}`: `{"type":"[x] 1"}`, `{"data":{"types":["hidden"],"type":["hidden 2"]}}`: `{"data":{"types":["[x]"],"type":["[x] 2"]}}`,
		deep + `"hunter\n2"` + ends: deep + `"[x]"` + ends,
		`{"hunter\n2":1}`:           ``,
	} {
		if want == "" {
			want = in
		}
		got, err := Redact([]byte(in), hide)
		if err != nil {
			t.Errorf("%.200s: %v", in, err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%.200s (-want +got):\n%s", in, diff)
		}
	}
}

func TestAnEntryWithoutSecretsComesBackAsTheVerySlice(t *testing.T) {
	in := []byte(`{"type":"custom","data":"\u00e9 nothing"}`)
	got, err := Redact(in, hide)
	if err != nil || &got[0] != &in[0] {
		t.Errorf("got %s, %v", got, err)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"message":{"content":[{"type":"text","text":"hunter\n2","textSignature":"s"}]}}`))
	f.Add([]byte(`{"a":[{"b":"hunter\n2"}],"type":"image","data":"x"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := Redact(in, hide)
		if err != nil {
			return
		}
		again, err := Redact(out, hide)
		if err != nil || !bytes.Equal(again, out) {
			t.Errorf("%q became %q, and that %q, %v", in, out, again, err)
		}
	})
}
