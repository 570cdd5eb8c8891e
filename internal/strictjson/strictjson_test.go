package strictjson

import (
	"strings"
	"testing"
)

func TestOneValueWithoutUnknownMembersIsRead(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":1}`:           "",
		" {\"a\":1}\n\t ":   "",
		`{}`:                "",
		`null`:              "",
		`{"a":1,"b":2}`:     `unknown field "b"`,
		`{"a":1}{}`:         "something follows the value",
		`{"a":1} x`:         "something follows the value",
		`{"a":1}]`:          "something follows the value",
		`{"a":"1"}`:         "cannot unmarshal",
		`{"a":1`:            "unexpected EOF",
		``:                  "EOF",
		`{"n":{"a":1}}`:     "",
		`{"n":{"other":1}}`: `unknown field "other"`,
	} {
		var into struct {
			A int
			N struct{ A int }
		}
		err := Decode([]byte(data), &into)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", data, err, want)
		}
	}
}
