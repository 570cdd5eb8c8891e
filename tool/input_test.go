package tool

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestWholeNumbersAreTakenHoweverTheyAreWritten(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		err  string
	}{
		{`{"n":3}`, 3, ""},
		{`{"n":3.0,"text":"3.0"}`, 3, ""},
		{`{"n":1e2}`, 100, ""},
		{`{"n":-0.0}`, 0, ""},
		{`{"n":9223372036854775807}`, math.MaxInt64, ""},
		{`{"n":9223372036854775807,"small":2.0}`, math.MaxInt64, ""},
		{`{"n":1.5}`, 0, "n is 1.5, and a whole number is wanted"},
		{`{"n":1e30}`, 0, "n is 1e30, and a whole number is wanted"},
		{`{"n":9223372036854775808}`, 0, "n is 9223372036854775808"},
		{`{"n":1e999999999}`, 0, "n is 1e999999999"},
		{`{"n":"x"}`, 0, "n is a string, and a whole number is wanted"},
		{`{"text":5}`, 0, "text is a number, and a string is wanted"},
		{`{"list":[{"n":1.0},{"n":2.5}]}`, 0, "list.n is 2.5, and a whole number is wanted"},
		{`[]`, 0, "it is an array, and an object is wanted"},
	} {
		var in struct {
			N     int64  `json:"n"`
			Small int    `json:"small"`
			Text  string `json:"text"`
			List  []struct {
				N int `json:"n"`
			} `json:"list"`
		}
		err := Decode(json.RawMessage(c.in), &in)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "Go ")) {
			t.Errorf("%s: %v, want %q", c.in, err, c.err)
		}
		if err == nil && (in.N != c.want || in.Text != "" && in.Text != "3.0") {
			t.Errorf("%s: %+v", c.in, in)
		}
	}
}
