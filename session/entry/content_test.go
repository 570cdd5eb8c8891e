package entry

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestContentKeepsItsForm(t *testing.T) {
	for _, tt := range []struct {
		json string
		want Content
	}{
		{`"hi"`, PlainText("hi")},
		{`""`, PlainText("")},
		{`[]`, Blocks([]Block{}...)},
		{`[{"type":"text","text":"hi"}]`, Blocks(TextBlock{Text: "hi"})},
		{`[{"type":"someday","x":1},7]`, Blocks(UnknownBlock{Type: "someday", Raw: json.RawMessage(`{"type":"someday","x":1}`)}, UnknownBlock{Raw: json.RawMessage("7")})},
	} {
		var c Content
		if err := json.Unmarshal([]byte(tt.json), &c); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(c, tt.want) && len(c.Blocks()) > 0 {
			t.Errorf("%s is %+v, want %+v", tt.json, c, tt.want)
		}
		if got, err := json.Marshal(c); err != nil || string(got) != tt.json {
			t.Errorf("%s became %s, %v", tt.json, got, err)
		}
		if c.IsPlain() != (tt.json[0] == '"') {
			t.Errorf("%s: IsPlain() = %v", tt.json, c.IsPlain())
		}
	}
}

func TestContentRefusesOtherForms(t *testing.T) {
	for _, s := range []string{`7`, `{}`, `true`, `[{"type":"image","data":7}]`} {
		var c Content
		if err := json.Unmarshal([]byte(s), &c); err == nil {
			t.Errorf("%s is %+v", s, c)
		}
	}
}
