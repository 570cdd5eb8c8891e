package toolset

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// explain says in one sentence what is wrong with a value, and where; "" when it finds nothing
// in the keywords that it knows, which are those that most schemas are made of. at is the field,
// "" for the whole.
func explain(s *jsonschema.Schema, value any, at string) string {
	if s == nil {
		return ""
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isType(value, t) }) {
		return fmt.Sprintf("%s must be %s, and is %s", field(at), either(types), shown(value))
	}
	if s.Const != nil && !reflect.DeepEqual(value, *s.Const) {
		return fmt.Sprintf("%s must be %s, and is %s", field(at), literal(*s.Const), shown(value))
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return reflect.DeepEqual(value, e) }) {
		var names []string
		for _, e := range s.Enum {
			names = append(names, literal(e))
		}
		return fmt.Sprintf("%s must be one of %s, and is %s", field(at), strings.Join(names, ", "), shown(value))
	}
	switch v := value.(type) {
	case float64:
		return explainNumber(s, v, at)
	case string:
		return explainString(s, v, at)
	case []any:
		return explainArray(s, v, at)
	case map[string]any:
		return explainObject(s, v, at)
	}
	return ""
}

// field is what a place in the arguments is called.
func field(at string) string {
	if at == "" {
		return "the whole"
	}
	return at
}

func isType(value any, name string) bool {
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case string:
		return name == "string"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

var typeNames = map[string]string{
	"null": "null", "boolean": "true or false", "number": "a number", "integer": "a whole number",
	"string": "a string", "array": "an array", "object": "an object",
}

func either(types []string) string {
	var names []string
	for _, t := range types {
		names = append(names, typeNames[t])
	}
	return strings.Join(names, " or ")
}

// shown is a value in a sentence, shortened.
func shown(value any) string {
	switch v := value.(type) {
	case float64:
		return "the number " + number(v)
	case string:
		return fmt.Sprintf("the string %s", quoted(v))
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return literal(value)
}

func literal(value any) string {
	if s, ok := value.(string); ok {
		return quoted(s)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%.80s", text)
}

func quoted(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) > most {
		return strconv.Quote(string([]rune(s)[:most])) + "…"
	}
	return strconv.Quote(s)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func explainNumber(s *jsonschema.Schema, v float64, at string) string {
	say := func(rule string, bound float64) string {
		return fmt.Sprintf("%s must be %s %s, and is %s", field(at), rule, number(bound), number(v))
	}
	switch {
	case s.Minimum != nil && v < *s.Minimum:
		return say("at least", *s.Minimum)
	case s.Maximum != nil && v > *s.Maximum:
		return say("at most", *s.Maximum)
	case s.ExclusiveMinimum != nil && v <= *s.ExclusiveMinimum:
		return say("more than", *s.ExclusiveMinimum)
	case s.ExclusiveMaximum != nil && v >= *s.ExclusiveMaximum:
		return say("less than", *s.ExclusiveMaximum)
	}
	return ""
}

func explainString(s *jsonschema.Schema, v, at string) string {
	n := utf8.RuneCountInString(v)
	switch {
	case s.MinLength != nil && n < *s.MinLength && n == 0:
		return field(at) + " is empty"
	case s.MinLength != nil && n < *s.MinLength:
		return fmt.Sprintf("%s must have at least %d characters, and has %d", field(at), *s.MinLength, n)
	case s.MaxLength != nil && n > *s.MaxLength:
		return fmt.Sprintf("%s must have at most %d characters, and has %d", field(at), *s.MaxLength, n)
	}
	return ""
}

func explainArray(s *jsonschema.Schema, v []any, at string) string {
	switch {
	case s.MinItems != nil && len(v) < *s.MinItems && len(v) == 0:
		return field(at) + " is empty"
	case s.MinItems != nil && len(v) < *s.MinItems:
		return fmt.Sprintf("%s must have at least %d items, and has %d", field(at), *s.MinItems, len(v))
	case s.MaxItems != nil && len(v) > *s.MaxItems:
		return fmt.Sprintf("%s must have at most %d items, and has %d", field(at), *s.MaxItems, len(v))
	}
	if s.Items == nil || len(s.PrefixItems) > 0 {
		return ""
	}
	for i, item := range v {
		if what := explain(s.Items, item, fmt.Sprintf("%s[%d]", at, i)); what != "" {
			return what
		}
	}
	return ""
}

func explainObject(s *jsonschema.Schema, v map[string]any, at string) string {
	below := func(name string) string {
		if at == "" {
			return name
		}
		return at + "." + name
	}
	names := slices.Sorted(maps.Keys(v))
	for _, name := range names {
		if _, ok := s.Properties[name]; !ok && closed(s) {
			return unknown(s, name, at)
		}
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return below(name) + " is missing"
		}
	}
	for _, name := range names {
		if what := explain(s.Properties[name], v[name], below(name)); what != "" {
			return what
		}
	}
	return ""
}

// closed reports whether an object has no other members than those that are named.
func closed(s *jsonschema.Schema) bool {
	no := s.AdditionalProperties
	return no != nil && no.Not != nil && reflect.DeepEqual(*no.Not, jsonschema.Schema{}) && len(s.PatternProperties) == 0
}

func unknown(s *jsonschema.Schema, name, at string) string {
	where := ""
	if at != "" {
		where = " in " + at
	}
	const most = 20
	names := slices.Sorted(maps.Keys(s.Properties))
	there := "; there are " + strings.Join(names[:min(len(names), most)], ", ")
	switch {
	case len(names) == 0:
		there = ", and none else"
	case len(names) == 1:
		there = "; there is " + names[0]
	case len(names) > most:
		there += " and others"
	}
	return fmt.Sprintf("there is no field %s%s%s", quoted(name), where, there)
}
