package toolset

import (
	"fmt"
	"slices"
	"strings"
)

// simpleTypes are what a schema may ask for, JSON Schema 2020-12, validation, 6.1.1.
var simpleTypes = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

// Where a schema has schemas, JSON Schema 2020-12, core, 10 and 11, and what drafts before it had.
var (
	ofOne  = []string{"items", "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
	ofList = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	ofMap  = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)

// checkTypes refuses a type that there is not: no value would be of it, which nobody means.
func checkTypes(at string, schema any) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if err := checkType(at, s["type"]); err != nil {
		return err
	}
	for _, key := range ofOne {
		if err := checkTypes(at+"/"+key, s[key]); err != nil {
			return err
		}
	}
	for _, key := range ofList {
		list, _ := s[key].([]any)
		for i, inner := range list {
			if err := checkTypes(fmt.Sprintf("%s/%s/%d", at, key, i), inner); err != nil {
				return err
			}
		}
	}
	for _, key := range ofMap {
		of, _ := s[key].(map[string]any)
		for name, inner := range of {
			if err := checkTypes(at+"/"+key+"/"+name, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkType(at string, value any) error {
	names, several := value.([]any)
	if !several {
		names = []any{value}
	}
	for _, name := range names {
		if text, ok := name.(string); ok && !slices.Contains(simpleTypes, text) {
			return fmt.Errorf("the schema asks for the type %.40q%s: there are %s", text, place(at), strings.Join(simpleTypes, ", "))
		}
	}
	return nil
}

// place is where something in a schema is, "" for the whole.
func place(at string) string {
	if at == "" {
		return ""
	}
	return fmt.Sprintf(" at %.80s", at)
}
