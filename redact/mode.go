package redact

import (
	"encoding/json"
	"errors"
)

// Mode says whether secrets are replaced. It is also a flag's value, and that of a setting.
type Mode string

// Modes. The zero value is that nobody has said.
const (
	Off        Mode = "off"
	On         Mode = "on"
	Reversible Mode = "reversible" // and kept, encrypted for the owner
)

// Active reports whether something is replaced.
func (m Mode) Active() bool { return m == On || m == Reversible }

var errMode = errors.New("give off, on or reversible")

// Set reads a mode.
func (m *Mode) Set(text string) error {
	switch Mode(text) {
	case Off, On, Reversible:
		*m = Mode(text)
		return nil
	}
	return errMode
}

// UnmarshalJSON reads a string.
func (m *Mode) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return errMode
	}
	return m.Set(text)
}

// String is the mode, "" for none.
func (m *Mode) String() string { return string(*m) }

// Type is the word of a usage text.
func (m *Mode) Type() string { return "MODE" }
