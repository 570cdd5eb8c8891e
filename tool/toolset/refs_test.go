package toolset_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/tool/toolset"
)

// doubling is a schema of n parts, each of which has the next one check a value twice.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%[2]d"}]},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/a0","$defs":{%s"a%d":true}}`, b.String(), n)
}

func TestASchemaThatCannotComeToAnEndIsRefused(t *testing.T) {
	for _, raw := range []string{
		`{"$ref":"#"}`,
		`{"anyOf":[{"type":"integer"},{"$ref":"#"}]}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"if":{"$ref":"#/$defs/a"}}}}`,
		`{"properties":{"x":{"$ref":"#/properties/x"}}}`,
		`{"$ref":"#me","$defs":{"x":{"$anchor":"me","dependentSchemas":{"a/b":{"$ref":"#me"}}}}}`,
		`{"$dynamicAnchor":"me","$dynamicRef":"#me"}`,
		`{"$defs":{"x":{"$id":"http://a/b","$ref":"#"}},"$ref":"#/$defs/x"}`,
		`{"$ref":"#/$defs/a%20b","$defs":{"a b":{"oneOf":[{"$ref":"#/$defs/a b"}]}}}`,
		doubling(40),
	} {
		if _, err := toolset.Compile(json.RawMessage(raw)); err == nil {
			t.Errorf("%s was taken", raw)
		}
	}
}

func TestASchemaThatRefersToItselfForPartsOfAValueIsTaken(t *testing.T) {
	for _, raw := range []string{
		`{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}}`,
		`{"$ref":"#/$defs/tree","$defs":{"leaf":{"type":"integer"},"tree":{"anyOf":[{"$ref":"#/$defs/leaf"},{"additionalProperties":{"$ref":"#/$defs/tree"}}]}}}`,
		doubling(5),
	} {
		schema, err := toolset.Compile(json.RawMessage(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if err := toolset.Check(schema, json.RawMessage(`{"children":[]}`)); err != nil && !strings.Contains(raw, "tree") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestASchemaThatAsksForATypeThatThereIsNotIsRefused(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"foo"}`:                                                    `the type "foo": there are null, boolean`,
		`{"type":["string","strng"]}`:                                       `the type "strng"`,
		`{"properties":{"a":{"items":{"type":"int"}}}}`:                     `the type "int" at /properties/a/items`,
		`{"anyOf":[true,{"prefixItems":[{"not":{"type":"Object"}}]}]}`:      `the type "Object" at /anyOf/1/prefixItems/0/not`,
		`{"$defs":{"x":{"additionalProperties":{"type":"date"}}}}`:          `the type "date" at /$defs/x/additionalProperties`,
		`{"properties":{"type":{"type":"string"}},"const":{"type":"date"}}`: "",
		`{"properties":{"properties":{"enum":[{"type":"date"}]}}}`:          "",
	} {
		_, err := toolset.Compile(json.RawMessage(raw))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
