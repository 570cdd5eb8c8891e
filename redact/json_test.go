package redact

import (
	"encoding/json"
	"testing"
)

func TestSecretsInStringsOfJSONAreReplacedAndItStaysJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": "x hunter2\"\\", "b" : ["hunter2more", 1, null], "hunter2more" : {"c":"\u0068unter2more"}}`: `{"a": "x [redacted:variable:1]", "b" : ["[redacted:variable:2]", 1, null], "hunter2more" : {"c":"[redacted:variable:2]"}}`,
		`"<hunter2more>\u0001"`: `"<[redacted:variable:1]>\u0001"`,
		`{"a":"\"","b":"\\"}`:   `{"a":"\"","b":"\\"}`,
		`no JSON hunter2more`:   `no JSON hunter2more`,
		``:                      ``,
	} {
		r := New(Options{Values: []string{`hunter2"\`, "hunter2more"}})
		if got, _ := r.JSON([]byte(in)); string(got) != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":["hunter2more\\\"",{"b":"hunter2more"}]}`))
	r := New(Options{Values: []string{"hunter2more", "\\\\\\\\\"\"\"\""}})
	f.Fuzz(func(t *testing.T, in []byte) {
		out, n := r.JSON(in)
		if json.Valid(in) != json.Valid(out) {
			t.Errorf("%q became %q", in, out)
		}
		if again, m := r.JSON(out); m != 0 {
			t.Errorf("%d of %q, then %d: %q", n, out, m, again)
		}
	})
}

func TestAMarkIsToldFromWhatLooksLikeOne(t *testing.T) {
	for in, want := range map[string]bool{
		"a [redacted:github:1] b": true, "[redacted:a:x] [redacted:url-password:12]": true, "[redacted:variable:0]": true,
		"": false, "[redacted:": false, "[redacted:KIND:N]": false, "[redacted:github:]": false, "[redacted:github:1": false, "redacted:github:1]": false,
	} {
		if got := HasMark([]byte(in)); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}
