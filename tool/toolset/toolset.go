// Package toolset offers several tools together, and checks the input of each call
// against the schema of its tool.
//
// A model's input is hostile. [Set.Call] takes only one JSON value in UTF-8 of at most [MaxInput]
// bytes, nested no deeper than [MaxDepth], in which no object names a member twice, and which the
// schema allows; every other is answered by a [tool.Result] with IsError and one sentence
// that says what is wrong with it and where, and the tool is not called. A tool that
// panics is answered so too.
//
// A Set is safe for concurrent use; whether two calls may run at once is what
// [tool.Tool.ParallelSafe] says.
package toolset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/tool"
)

// Bounds of an input.
const (
	// MaxInput is its size in bytes: that of the largest file that tools write, as JSON.
	MaxInput = 128 << 20
	// MaxDepth is how deep arrays and objects may be in each other.
	MaxDepth = 64
)

// Set is tools of different names.
type Set struct {
	tools []*member
}

// member is a tool with its schema, which is compiled for the first call.
type member struct {
	tool.Tool
	schema func() (*jsonschema.Resolved, error)
}

// New returns a set. Two tools of one name, and names that a model cannot call, are
// errors.
func New(tools ...tool.Tool) (*Set, error) {
	s := &Set{}
	for _, t := range tools {
		switch {
		case !callable(t.Name()):
			return nil, fmt.Errorf("offering the tool %q: a name has 1 to 64 lower-case letters, digits, _ and -", t.Name())
		case s.find(t.Name()) != nil:
			return nil, fmt.Errorf("offering the tool %s: there are two of that name", t.Name())
		}
		s.tools = append(s.tools, &member{t, sync.OnceValues(func() (*jsonschema.Resolved, error) { return compile(t) })})
	}
	return s, nil
}

func callable(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// Tools are the tools, in the order in which they were given.
func (s *Set) Tools() []tool.Tool {
	list := make([]tool.Tool, len(s.tools))
	for i, m := range s.tools {
		list[i] = m.Tool
	}
	return list
}

// Tool returns the tool of a name, nil if there is none.
func (s *Set) Tool(name string) tool.Tool {
	if m := s.find(name); m != nil {
		return m.Tool
	}
	return nil
}

func (s *Set) find(name string) *member {
	if i := slices.IndexFunc(s.tools, func(m *member) bool { return m.Name() == name }); i >= 0 {
		return s.tools[i]
	}
	return nil
}

// UnknownError is returned for a tool that is not in the set.
type UnknownError struct {
	Name  string
	Names []string // those there are
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no tool %.80q; there are %s", e.Name, strings.Join(e.Names, ", "))
}

// Knows returns an *UnknownError for a tool that is not in the set.
func (s *Set) Knows(name string) error {
	if s.find(name) != nil {
		return nil
	}
	unknown := &UnknownError{Name: name}
	for _, m := range s.tools {
		unknown.Names = append(unknown.Names, m.Name())
	}
	return unknown
}

// Call calls a tool with an input that its schema allows.
func (s *Set) Call(ctx context.Context, name string, input json.RawMessage) (res tool.Result, err error) {
	if err := s.Knows(name); err != nil {
		return tool.Result{}, err
	}
	m := s.find(name)
	if err := ctx.Err(); err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: %w", name, err)
	}
	schema, err := m.schema()
	if err != nil {
		return tool.Result{}, err
	}
	if err := Check(schema, input); err != nil {
		return tool.Result{Text: fmt.Sprintf("[%s was not called: %v]", name, err), IsError: true, Refused: true}, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("calling %s: it panicked: %v", name, p)
			res.IsError = true
		}
	}()
	return m.Call(ctx, input)
}

func compile(t tool.Tool) (*jsonschema.Resolved, error) {
	resolved, err := Compile(t.Schema())
	if err != nil {
		return nil, fmt.Errorf("reading the schema of the tool %s: %w", t.Name(), err)
	}
	return resolved, nil
}

// Compile reads a schema, which refers to nothing outside of itself: nobody loads it. It is hostile.
func Compile(raw json.RawMessage) (*jsonschema.Resolved, error) {
	if err := wellFormed(raw); err != nil {
		return nil, err
	}
	if err := checkRefs(raw); err != nil {
		return nil, err
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	if err := checkTypes("", doc); err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, err
	}
	return schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
}

// Check returns what is wrong with an input, in one sentence.
func Check(schema *jsonschema.Resolved, input json.RawMessage) error {
	switch {
	case len(input) > MaxInput:
		return fmt.Errorf("the arguments have %s, and %s are the most", quantity.Bytes(int64(len(input))), quantity.Size(MaxInput))
	case !utf8.Valid(input):
		return errors.New("the arguments are no UTF-8")
	}
	if err := wellFormed(input); err != nil {
		return err
	}
	var value any
	err := json.Unmarshal(input, &value)
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) { // of what can be anything only numbers have bounds
		return fmt.Errorf("%.60s is larger than numbers can be", "the "+mistyped.Value)
	}
	if err != nil {
		return fmt.Errorf("the arguments are no JSON that can be used: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		what := explain(schema.Schema(), value, "")
		if what == "" {
			what = describe(err.Error())
		}
		return errors.New("the arguments are not as the schema says: " + bounded(what))
	}
	return nil
}

// wellFormed looks for what decoders disagree about: what follows the value, members that are
// there twice, and depth.
func wellFormed(input json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	type level struct {
		seen map[string]bool // nil for an array
		key  bool            // a name comes next
	}
	var levels []level
	for first := true; ; first = false {
		token, err := d.Token()
		if err == io.EOF && !first && len(levels) == 0 {
			return nil
		}
		if err == io.EOF {
			return errors.New("the arguments are no JSON: they end too early")
		}
		if err != nil {
			return fmt.Errorf("the arguments are no JSON: %w", err)
		}
		if !first && len(levels) == 0 {
			return errors.New("the arguments are no JSON: something follows the object")
		}
		top := len(levels) - 1
		if top >= 0 && levels[top].seen != nil {
			if name, ok := token.(string); ok && levels[top].key {
				if levels[top].seen[name] {
					return fmt.Errorf("the arguments name %.80q twice in one object", name)
				}
				levels[top].seen[name], levels[top].key = true, false
				continue
			}
			levels[top].key = true
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{seen: map[string]bool{}, key: true})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:top]
		}
		if len(levels) > MaxDepth {
			return fmt.Errorf("the arguments are more than %d levels deep", MaxDepth)
		}
	}
}

// bounds finds whole numbers beyond a bound, which an error has as "minimum: -1/1 is less than 0.000000".
var bounds = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?:exclusiveM|m)(?:in|ax)imum: -?\d+)/1( is [a-z ]+ -?\d+)(?:\.0+|(\.\d*?[1-9])0*)()$`)
})

// bounded is a sentence on one line, and not a long one.
func bounded(text string) string {
	const most = 500
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\n", " "), "")
}

// describe makes a sentence of an error that names each schema on the way to the one
// that was not met: "validating root: validating /properties/a: type: ...".
func describe(text string) string {
	at := ""
	for {
		rest, ok := strings.CutPrefix(text, "validating ")
		path, what, found := strings.Cut(rest, ": ")
		if !ok || !found {
			break
		}
		at, text = path, what
	}
	text = strings.Replace(text, "type: <invalid reflect.Value> has", "type: null has", 1)
	text = bounds().ReplaceAllString(text, "$1$2$3$4")
	if at == "" || at == "root" {
		return text
	}
	at = strings.NewReplacer("/properties/", ".", "/items", "[]").Replace(at)
	return fmt.Sprintf("at %.200s: %s", strings.TrimPrefix(at, "."), text)
}
