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
		{`{"n":0}`, "at n: minimum"},
		{`{"n":1.5}`, `at n: type: 1.5 has type "number", want "integer"`},
		{`{"n":1,"list":["a",2]}`, `at list[]: type: 2 has type "integer", want "string"`},
		{`{}`, `missing properties: ["n"]`},
		{`{"n":1,"m":2}`, `unexpected additional properties ["m"]`},
		{`{"n":1e400}`, "cannot unmarshal number"},
		{`{"n":1,"n":2}`, `name "n" twice`},
		{`[]`, `has type "array", want "object"`},
		{`null`, `has type "null", want "object"`},
		{``, "they end too early"},
		{`{"n":1`, "they end too early"},
		{`null`, `type: null has type "null", want "object"`},
		{`{"n":-1}`, "at n: minimum: -1 is less than 1]"},
		{`{"n":1}{}`, "something follows"},
		{`{"n":1}]`, "no JSON"},
		{`{"n":01}`, "no JSON"},
		{"{\"n\":1,\"\xff\":2}", "no UTF-8"},
		{`{"list":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "levels deep"},
		{`{"n":1,"list":["` + strings.Repeat("x", 1000) + `",` + `{"a":"` + strings.Repeat("y", 1000) + `"}]}`, "…"},
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
			if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 3000) {
				t.Errorf("%q", err)
			}
		}
		if res, err := s.Call(t.Context(), "f", json.RawMessage(in)); err != nil || !res.IsError && res.Text != in {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
