package internalurl

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestParseQuery(t *testing.T) {
	key := func(s string) step { return step{key: s} }
	at := func(n int64) step { return step{index: n, kind: byIndex} }
	for q, want := range map[string][]step{
		"":                   nil,
		".":                  nil,
		".a":                 {key("a")},
		"a.b-c.d_e":          {key("a"), key("b-c"), key("d_e")},
		".a[0][12].b":        {key("a"), at(0), at(12), key("b")},
		"[0]":                {at(0)},
		`["x y"]['z']`:       {key("x y"), key("z")},
		`.a["q\"]\\"].b`:     {key("a"), key(`q"]\`), key("b")},
		"[word].0":           {key("word"), key("0")},
		`[""]`:               {key("")},
		`.__proto__["#"].@x`: nil,
	} {
		got, err := parseQuery(q)
		if strings.Contains(q, "@") {
			if err == nil || err.Error() != `Invalid query: unexpected token '@' in `+q {
				t.Errorf("%s: %v", q, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", q, got, err)
		}
	}
	for q, want := range map[string]string{
		"[":                      "Invalid query: missing ] in [",
		".a[1":                   "Invalid query: missing ] in .a[1",
		"a[]":                    "Invalid query: empty [] in a[]",
		"[0]c":                   "Invalid query: unexpected token 'c' in [0]c",
		"a..b":                   "Invalid query: unexpected token '.' in a..b",
		"a.":                     "Invalid query: nothing after the last '.' in a.",
		`["a`:                    `Invalid query: missing closing quote in ["a`,
		`["a"x]`:                 `Invalid query: missing ] in ["a"x]`,
		"[-1 ]":                  "Invalid query: unexpected token ' ' in [-1 ]",
		"[99999999999999999999]": "Invalid query: index too large in [99999999999999999999]",
		"a|b":                    "Invalid query: unexpected token '|' in a|b",
		"#.x":                    "Invalid query: unexpected token '#' in #.x",
		"*":                      "Invalid query: unexpected token '*' in *",
	} {
		if steps, err := parseQuery(q); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v; want %s", q, steps, err, want)
		}
	}
}

func TestDeepJSONIsNotIndented(t *testing.T) {
	deep := []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	if got := indent(deep); len(got) != len(deep) {
		t.Errorf("%d bytes became %d", len(deep), len(got))
	}
	if got := indent([]byte(`{"a":"]}[{\"["}`)); string(got) != "{\n  \"a\": \"]}[{\\\"[\"\n}" {
		t.Errorf("%s", got)
	}
}

// Following a query finds what decoding and indexing finds.
func FuzzFollow(f *testing.F) {
	f.Add(`{"a":[1,{"b":"c"}],"a b":{"":null}}`, ".a[1].b")
	f.Add(`{"a":{"a":1},"a":{"a":2}}`, "a.a")
	f.Add(`[[],[[]]]`, "[1][0]")
	f.Add(`{"\u0061":1}`, "a")
	f.Add(`{"x\"y":[0]}`, `["x\"y"][0]`)
	f.Fuzz(func(t *testing.T, doc, q string) {
		steps, err := parseQuery(q)
		var want any
		if err != nil || json.Unmarshal([]byte(doc), &want) != nil {
			return
		}
		if back, err := parseQuery(formatSteps(steps)); err != nil || !reflect.DeepEqual(back, steps) && len(steps) > 0 {
			t.Fatalf("%s was written as %s, %v", q, formatSteps(steps), err)
		}
		there := true
		for _, s := range steps {
			switch v := want.(type) {
			case map[string]any:
				want, there = v[s.key], s.kind == byKey
				if _, has := v[s.key]; !has {
					there = false
				}
			case []any:
				there = s.kind == byIndex && s.index < int64(len(v))
				if there {
					want = v[s.index]
				}
			default:
				there = false
			}
			if !there {
				break
			}
		}
		value, done := follow([]byte(doc), steps)
		if strings.Contains(doc, `\u`) || strings.ToValidUTF8(doc, "") != doc || strings.ToValidUTF8(q, "") != q {
			return // encoding/json replaces what is no UTF-8 and lone surrogates
		}
		if (done == len(steps)) != there {
			t.Fatalf("%s in %s: found %t, want %t", q, doc, done == len(steps), there)
		}
		var got any
		if there && (json.Unmarshal(value, &got) != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%s in %s: %s, want %v", q, doc, value, want)
		}
	})
}
