package supervisor

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// exact is a string that comes over as it is. JSON has no bytes that are no UTF-8, and scripts, variables and paths may
// have some: such a string is sent as {"bytes": BASE64}.
type exact string

type exactBytes struct {
	Bytes []byte `json:"bytes"`
}

func (e exact) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(e)) {
		return json.Marshal(string(e))
	}
	return json.Marshal(exactBytes{[]byte(e)})
}

func (e *exact) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*e = exact(s)
		return nil
	}
	var raw exactBytes
	if err := json.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("reading a string: %w", err)
	}
	*e = exact(raw.Bytes)
	return nil
}

// exacts are strings that come over as they are.
type exacts []string

func (e exacts) MarshalJSON() ([]byte, error) {
	list := make([]exact, len(e))
	for i, s := range e {
		list[i] = exact(s)
	}
	return json.Marshal(list)
}

func (e *exacts) UnmarshalJSON(b []byte) error {
	var list []exact
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*e = make(exacts, len(list))
	for i, s := range list {
		(*e)[i] = string(s)
	}
	return nil
}
