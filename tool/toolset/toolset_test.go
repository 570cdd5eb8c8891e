package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/read"
	"github.com/agentrun/agentrun/tool/write"
)

// fake answers with its input.
type fake struct {
	name, schema string
	panics       bool
}

func (f fake) Name() string            { return f.name }
func (f fake) Description() string     { return "does nothing" }
func (f fake) Schema() json.RawMessage { return json.RawMessage(f.schema) }
func (f fake) Idempotent() bool        { return true }
func (f fake) ParallelSafe() bool      { return true }
func (f fake) Call(_ context.Context, in json.RawMessage) (tool.Result, error) {
	if f.panics {
		panic("oh")
	}
	return tool.Result{Text: string(in)}, nil
}

const schema = `{"type":"object","properties":{"n":{"type":"integer","minimum":1},"list":{"type":"array","items":{"type":"string"}}},"required":["n"],"additionalProperties":false}`

func set(t *testing.T, tools ...tool.Tool) *Set {
	t.Helper()
	s, err := New(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACallIsCheckedAgainstTheSchema(t *testing.T) {
	s := set(t, fake{name: "f", schema: schema})
	for _, c := range []struct{ in, want string }{
		{`{"n":1}`, ""},
		{` {"n":1,"list":["a"]} `, ""},
		{`{"n":0}`, "n must be at least 1, and is 0]"},
		{`{"n":1.5}`, `n must be a whole number, and is the number 1.5]`},
		{`{"n":1,"list":["a",2]}`, `list[1] must be a string, and is the number 2]`},
		{`{}`, `n is missing]`},
		{`{"n":1,"m":2}`, `there is no field "m"; there are list, n]`},
		{`{"n":1e400}`, "the number 1e400 is larger than numbers can be]"},
		{`{"n":1,"n":2}`, `name "n" twice`},
		{`[]`, `the whole must be an object, and is an array]`},
		{`null`, `the whole must be an object, and is null]`},
		{``, "they end too early"},
		{`{"n":1`, "they end too early"},
		{`null`, `the whole must be an object, and is null]`},
		{`{"n":-1}`, "n must be at least 1, and is -1]"},
		{`{"n":1}{}`, "something follows"},
		{`{"n":1}]`, "no JSON"},
		{`{"n":01}`, "no JSON"},
		{"{\"n\":1,\"\xff\":2}", "no UTF-8"},
		{`{"list":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "levels deep"},
		{`{"n":1,"list":["` + strings.Repeat("x", 1000) + `",` + `{"a":"` + strings.Repeat("y", 1000) + `"}]}`, "list[1] must be a string, and is an object]"},
		{`{"n":"` + strings.Repeat("y", 1000) + `"}`, `n must be a whole number, and is the string "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"…]`},
	} {
		res, err := s.Call(t.Context(), "f", json.RawMessage(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if ok := c.want == ""; res.IsError == ok || !ok && (!strings.Contains(res.Text, c.want) || strings.Contains(res.Text, "\n")) {
			t.Errorf("%s: %q, want %q", c.in, res.Text, c.want)
		}
	}
}

func TestWhatIsWrongIsSaidWithTheNameOfTheField(t *testing.T) {
	deep := `{"type":"object","required":["edits"],"properties":{
		"edits":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"object","required":["old"],"additionalProperties":false,
			"properties":{"old":{"type":"string","minLength":1,"maxLength":5},"how":{"enum":["one","all",3]}}}},
		"ratio":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},"none":{"type":"object","additionalProperties":false},
		"odd":{"type":"string","pattern":"^a"},"is":{"const":"x"}}}`
	s := set(t, fake{name: "f", schema: deep})
	for in, want := range map[string]string{
		`{"edits":[]}`: "edits is empty",
		`{"edits":[{"old":"a"},{"old":"a"},{"old":"a"}]}`: "edits must have at most 2 items, and has 3",
		`{"edits":[{"old":"a"},{}]}`:                      "edits[1].old is missing",
		`{"edits":[{"old":""}]}`:                          "edits[0].old is empty",
		`{"edits":[{"old":"abcdef"}]}`:                    "edits[0].old must have at most 5 characters, and has 6",
		`{"edits":[{"old":"a","new":"b"}]}`:               `there is no field "new" in edits[0]; there are how, old`,
		`{"edits":[{"old":"a","how":"two"}]}`:             `edits[0].how must be one of "one", "all", 3, and is the string "two"`,
		`{"edits":[{"old":"a"}],"ratio":0}`:               "ratio must be more than 0, and is 0",
		`{"edits":[{"old":"a"}],"ratio":1.5}`:             "ratio must be at most 1, and is 1.5",
		`{"edits":[{"old":"a"}],"ratio":true}`:            "ratio must be a number or null, and is true",
		`{"edits":[{"old":"a"}],"none":{"a":1}}`:          `there is no field "a" in none, and none else`,
		`{"edits":[{"old":"a"}],"odd":"b"}`:               "at odd: pattern:",
		`{"edits":[{"old":"a"}],"is":"y"}`:                `is must be "x", and is the string "y"`,
		`{"edits":[{"old":"a"}],"is":"` + "a\\nb" + `"}`:  `is must be "x", and is the string "a\nb"`,
	} {
		res, err := s.Call(t.Context(), "f", json.RawMessage(in))
		if err != nil || !res.IsError || !strings.Contains(res.Text, "the schema says: "+want) {
			t.Errorf("%s: %q, %v, want %q", in, res.Text, err, want)
		}
	}
}

func TestWhatCannotBeOfferedIsRefused(t *testing.T) {
	for _, tools := range [][]tool.Tool{{fake{name: ""}}, {fake{name: "A"}}, {fake{name: "f"}, fake{name: "f"}}, {fake{name: strings.Repeat("f", 65)}}} {
		if _, err := New(tools...); err == nil {
			t.Errorf("%v was taken", tools)
		}
	}
	s := set(t, fake{name: "bad", schema: `{"type":1}`}, fake{name: "out", schema: `{"$ref":"file:///etc/passwd"}`}, fake{name: "panics", schema: schema, panics: true})
	for _, name := range []string{"bad", "out", "panics"} {
		if res, err := s.Call(t.Context(), name, json.RawMessage(`{"n":1}`)); err == nil {
			t.Errorf("%s answered %+v", name, res)
		}
	}
	var unknown *UnknownError
	if _, err := s.Call(t.Context(), "nosuch", nil); !errors.As(err, &unknown) || len(unknown.Names) != 3 {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Call(ctx, "panics", json.RawMessage(`{"n":1}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// real are the tools there are, none of which gets to do anything.
func real() []tool.Tool {
	return []tool.Tool{&bash.Tool{}, read.Tool{}, edit.Tool{}, write.Tool{}}
}

func TestTheToolsOfTheHouseCanBeOffered(t *testing.T) {
	s := set(t, real()...)
	for _, m := range s.tools {
		if _, err := m.schema(); err != nil {
			t.Error(err)
		}
		var object struct {
			Type                 string
			OneOf, AnyOf, AllOf  []any
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(m.Schema(), &object); err != nil || object.Type != "object" || object.AdditionalProperties == nil {
			t.Errorf("%s: %+v, %v", m.Name(), object, err)
		}
		if object.OneOf != nil || object.AnyOf != nil || object.AllOf != nil {
			t.Errorf("%s: providers take no oneOf, anyOf, allOf at the top of a schema", m.Name())
		}
	}
}

// Whatever the input is, it is answered, and what the schema refuses is not called.
func FuzzCall(f *testing.F) {
	for _, in := range []string{`{"n":1}`, `{"path":"a","edits":[{"old":"a","new":"b"}]}`, `{"command":"x"}`, `{"a":{"a":[[{}]]}}`, `{"n":1e400}`, `"\ud800"`, "{\"\\u0000\":1}"} {
		f.Add(in)
	}
	s, err := New(append(real(), fake{name: "f", schema: schema})...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, m := range s.tools {
			schema, err := m.schema()
			if err != nil {
				t.Fatal(err)
			}
			err = Check(schema, json.RawMessage(in))
			if err == nil && !json.Valid([]byte(in)) {
				t.Errorf("%s takes %q", m.Name(), in)
			}
			var value any
			if err == nil && json.Unmarshal([]byte(in), &value) == nil && explain(schema.Schema(), value, "") != "" {
				t.Errorf("%s takes %q, of which is said: %s", m.Name(), in, explain(schema.Schema(), value, ""))
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 3000) {
				t.Errorf("%q", err)
			}
		}
		if res, err := s.Call(t.Context(), "f", json.RawMessage(in)); err != nil || !res.IsError && res.Text != in {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
