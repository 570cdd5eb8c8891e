package model

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/agentrun/agentrun/session/entry"
)

// invalidJSON is the one member of the arguments of a call that had none. Anthropic's
// documentation of fine-grained tool streaming proposes this form, so models know it.
const invalidJSON = "INVALID_JSON"

// InvalidArguments reports whether the arguments that a model streamed for a call are not
// a JSON object, and returns them as they came. In the block, and so in the log, they are
//
//	{"INVALID_JSON": "<what came>"}
//
// because a log holds JSON, other programs expect an object there, and the model reads
// its own mistake when the call goes back to it. Such a call is answered by an error, and no
// tool is run.
func InvalidArguments(call entry.ToolCallBlock) (text string, invalid bool) {
	if !strings.Contains(string(call.Arguments[:min(len(call.Arguments), len(invalidJSON)+8)]), invalidJSON) {
		return "", false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(call.Arguments, &object) != nil || len(object) != 1 {
		return "", false
	}
	if json.Unmarshal(object[invalidJSON], &text) != nil {
		return "", false
	}
	return text, true
}

// arguments are the arguments of a call as a block holds them. None at all is an empty
// object, as providers stream it.
func arguments(text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return json.RawMessage("{}")
	case trimmed[0] == '{' && utf8.ValidString(text) && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return invalid(text)
}

func invalid(text string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{invalidJSON: text})
	if err != nil {
		return json.RawMessage("{}") // a string always marshals
	}
	return raw
}
