package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/grep"
	"github.com/agentrun/agentrun/tool/read"
	"github.com/agentrun/agentrun/tool/toolset"
	"github.com/agentrun/agentrun/tool/workspace"
	"github.com/agentrun/agentrun/tool/write"
)

// schemas are those of all tools that `agentrun tools` lists.
func schemas(t testing.TB) (set *toolset.Set, list []*jsonschema.Schema) {
	t.Helper()
	set, err := toolsOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range set.Tools() {
		s := &jsonschema.Schema{}
		if err := json.Unmarshal(tool.Schema(), s); err != nil {
			t.Fatalf("%s: %v", tool.Name(), err)
		}
		list = append(list, s)
	}
	return set, list
}

// right is a value that a schema allows.
func right(s *jsonschema.Schema) any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == "object":
		o := map[string]any{}
		for _, name := range s.Required {
			o[name] = right(s.Properties[name])
		}
		return o
	case s.Type == "array":
		if s.Items == nil {
			return []any{}
		}
		return []any{right(s.Items)}
	case s.Type == "integer", s.Type == "number":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	case s.Type == "boolean":
		return true
	}
	return strings.Repeat("x", max(1, deref(s.MinLength)))
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// wrong are values that a schema does not allow.
func wrong(s *jsonschema.Schema) []any {
	values := []any{nil, "x", 1.5, true, []any{}, map[string]any{}, map[string]any{"nosuch": 1}, []any{nil}}
	allowed := map[string]func(any) bool{
		"string":  func(v any) bool { _, ok := v.(string); return ok },
		"integer": func(any) bool { return false },
		"number":  func(v any) bool { _, ok := v.(float64); return ok },
		"boolean": func(v any) bool { _, ok := v.(bool); return ok },
		"array":   func(v any) bool { _, ok := v.([]any); return ok },
		"object":  func(v any) bool { _, ok := v.(map[string]any); return ok },
	}[s.Type]
	if allowed == nil {
		return nil // of several types
	}
	values = slices.DeleteFunc(values, allowed)
	if s.Minimum != nil {
		values = append(values, *s.Minimum-1)
	}
	if s.Maximum != nil {
		values = append(values, *s.Maximum+1)
	}
	if deref(s.MinLength) > 0 {
		values = append(values, "")
	}
	if len(s.Enum) > 0 {
		values = append(values, "nosuch")
	}
	if s.Type == "array" && s.Items != nil {
		for _, v := range wrong(s.Items) {
			values = append(values, []any{v})
		}
		if deref(s.MinItems) > 0 {
			values = append(values, []any{})
		}
	}
	if s.Type == "object" && s.Properties != nil {
		whole := right(s).(map[string]any)
		with := func(name string, v any) map[string]any {
			o := maps.Clone(whole)
			o[name] = v
			return o
		}
		for name, p := range s.Properties {
			for _, v := range wrong(p) {
				values = append(values, with(name, v))
			}
		}
		for _, name := range s.Required {
			o := maps.Clone(whole)
			delete(o, name)
			values = append(values, o)
		}
		if s.AdditionalProperties != nil {
			values = append(values, with("nosuch", 1))
		}
	}
	return values
}

// refused reports what is wrong with the answer to arguments that a schema does not allow.
func refused(t testing.TB, set *toolset.Set, name, in string) {
	t.Helper()
	res, err := set.Call(t.Context(), name, json.RawMessage(in))
	if err != nil || !res.IsError || !strings.HasPrefix(res.Text, "["+name+" was not called: ") || strings.Contains(res.Text, "\n") || len(res.Text) > 3000 {
		t.Errorf("%s %.200s: %t, %.300q, %v", name, in, res.IsError, res.Text, err)
	}
}

func TestEveryToolRefusesWhatItsSchemaDoesNotAllow(t *testing.T) {
	set, list := schemas(t)
	for i, tool := range set.Tools() {
		resolved, err := list[i].Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		good, err := json.Marshal(right(list[i]))
		if err != nil {
			t.Fatal(err)
		}
		if err := toolset.Check(resolved, good); err != nil {
			t.Errorf("%s does not take %s: %v", tool.Name(), good, err)
		}
		bad := wrong(list[i])
		if len(bad) < 10 {
			t.Errorf("%s: only %d wrong arguments", tool.Name(), len(bad))
		}
		for _, v := range bad {
			in, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, set, tool.Name(), string(in))
		}
		for _, in := range []string{"", "{", string(good) + "{}", string(good[:len(good)-1]), "\xff", "nul", strings.Repeat("[", 1000), `{"nosuch":1,"nosuch":2}`} {
			refused(t, set, tool.Name(), in)
		}
	}
}

// Arguments of any form are answered: those that the schema does not allow without the tool
// being called, the others by those tools that run nothing.
func FuzzArgumentsOfEveryTool(f *testing.F) {
	set, list := schemas(f)
	for i := range list {
		for _, v := range append(wrong(list[i])[:8], right(list[i])) {
			in, err := json.Marshal(v)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), string(in))
		}
	}
	for _, in := range []string{`{"path":"a","edits":[{"old":"o","new":"n","all":true}]}`, `{"path":"a","patch":"--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two\n"}`, `{"path":"a:1@2"}`, `{"pattern":"(","paths":["a","artifact://"]}`, `{"glob":"**/[","paths":["."]}`, `{"path":"../x","content":"y"}`} {
		for i := range list {
			f.Add(uint8(i), in)
		}
	}
	dir := f.TempDir()
	w, err := workspace.Open(workspace.Options{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { w.Close() })
	files, err := toolset.New(read.Tool{Files: w}, edit.Tool{Workspace: w}, write.Tool{Workspace: w}, grep.Tool{Workspace: w}, find.Tool{Workspace: w})
	if err != nil {
		f.Fatal(err)
	}
	resolved := make([]*jsonschema.Resolved, len(list))
	for i, s := range list {
		if resolved[i], err = s.Resolve(nil); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, in string) {
		i := int(which) % len(list)
		name := set.Tools()[i].Name()
		if toolset.Check(resolved[i], json.RawMessage(in)) != nil {
			refused(t, set, name, in)
			return
		}
		if files.Knows(name) != nil {
			return // it would run something
		}
		if err := os.WriteFile(filepath.Join(dir, "a"), []byte("one\n"), 0o600); err != nil {
			t.Skip(err) // a directory by that name was made
		}
		res, err := files.Call(t.Context(), name, json.RawMessage(in))
		if err != nil || len(res.Text) > 200<<10 || res.Details == nil && !res.IsError {
			t.Errorf("%s %.200s: %+v, %v", name, in, fmt.Sprintf("%.300v", res), err)
		}
	})
}
