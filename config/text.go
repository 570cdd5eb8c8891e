package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// Text is a setting that is a text, a path or a name.
type Text string

var errText = errors.New("give a text that is not empty; leave it out for none")

// UnmarshalJSON reads a text without control characters.
func (t *Text) UnmarshalJSON(data []byte) error {
	var s *string
	if json.Unmarshal(data, &s) != nil || s == nil || *s == "" || strings.ContainsFunc(*s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errText
	}
	*t = Text(*s)
	return nil
}

// Hosts are patterns of hosts, [USER@]NAME[:PORT] with * and ?.
type Hosts []string

var errHosts = errors.New(`give a list of hosts such as ["build", "test-*", "*@box:2222"], in which * and ? stand for letters; leave it out for none`)

// UnmarshalJSON reads a list of patterns. It lets pass what may be one; who uses them reads them whole.
func (h *Hosts) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) != nil || list == nil {
		return errHosts
	}
	for _, s := range list {
		if s == "" || s[0] == '-' || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-@:[]*?") != "" {
			return errHosts
		}
	}
	*h = list
	return nil
}

// Hooks is the list of the commands that are run at points of an agent's run, as it is written: package agent/hook reads it.
type Hooks json.RawMessage

// UnmarshalJSON reads a list.
func (h *Hooks) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil || list == nil {
		return errors.New(`give a list such as [{"on": "before-tool", "tool": "bash", "command": "./check"}]; leave it out for none`)
	}
	*h = Hooks(bytes.Clone(data))
	return nil
}
