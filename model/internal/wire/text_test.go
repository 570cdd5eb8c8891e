package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/model/internal/wire"
)

func TestHalvesOfACharacterAreKept(t *testing.T) {
	for in, want := range map[string]string{
		`"plain"`:                     "plain",
		`null`:                        "",
		`"\ud83d\ude00 \u00e4"`:       "😀 ä",
		`"a\ud83d"`:                   "a\xed\xa0\xbd",
		`"\ude00b\n"`:                 "\xed\xb8\x80b\n",
		`"\ud83d\ud83d\ude00"`:        "\xed\xa0\xbd😀",
		`"\\ud83d"`:                   `\ud83d`,
		`"\\\ud83d\\"`:                "\\\xed\xa0\xbd\\",
		`"\uD83D\"x\uDE00\u0041 end"`: "\xed\xa0\xbd\"x\xed\xb8\x80A end",
	} {
		var got wire.Text
		if err := json.Unmarshal([]byte(in), &got); err != nil || string(got) != want {
			t.Errorf("%s became %q, %v", in, got, err)
		}
	}
	var got wire.Text
	if err := json.Unmarshal([]byte(`7`), &got); err == nil {
		t.Error("a number is a text")
	}
}

func FuzzText(f *testing.F) {
	f.Add(`a\ud83d`)
	f.Add(`\\\ud83d\ude00\u00e4\"`)
	f.Fuzz(func(t *testing.T, inner string) {
		quoted := `"` + inner + `"`
		var plain string
		var got wire.Text
		if json.Unmarshal([]byte(quoted), &plain) != nil {
			return
		}
		if err := json.Unmarshal([]byte(quoted), &got); err != nil {
			t.Fatal(err)
		}
		// But for the halves it is what encoding/json makes of it. That is one replacement
		// character for three bytes.
		var b strings.Builder
		for s := string(got); s != ""; {
			if len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 {
				b.WriteRune('\uFFFD')
				s = s[3:]
				continue
			}
			b.WriteByte(s[0])
			s = s[1:]
		}
		if b.String() != plain {
			t.Errorf("%s: %q and %q", quoted, got, plain)
		}
	})
}
