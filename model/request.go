package model

import (
	"encoding/json"

	"github.com/agentrun/agentrun/session/entry"
)

// Request is what a model is asked, in no provider's words.
type Request struct {
	// Agent and Turn say whose request it is and where in that agent's conversation:
	// "main" or the output id of a subagent ("0-Review"), and the number of answers in
	// that agent's own log so far, on all its branches, without those that failed or were
	// aborted. A script is played by them, and a recording made; providers are not told.
	Agent string
	Turn  int

	// System is the system prompt in one or several parts. A prompt cache may cut behind
	// each of them, so what never changes comes first.
	System entry.Prompt

	// Messages are the conversation, oldest first: UserMessage (also developer),
	// AssistantMessage and ToolResultMessage. Images hold their data, no references.
	Messages []entry.Message

	// Checked spares the messages that an earlier request of the same conversation had from being checked again; nil checks
	// all.
	Checked *Checked

	Tools      []ToolSpec
	ToolChoice ToolChoice

	// Answer makes the model answer in JSON that its schema allows; nil for text. A provider that
	// knows no such thing is asked in words, so the answer must be checked by whoever
	// wants to rely on it.
	Answer *AnswerSchema

	// MaxTokens limits the answer, reasoning included; 0 is as much as the model can.
	MaxTokens int64

	// Thinking is how much the model thinks first: one of the Thinking constants; "" is
	// [ThinkingOff]. It does nothing to a model that does not think.
	Thinking string

	Temperature *float64 // nil: the provider's default

	// CacheKey names the conversation, so that a provider that likes to be told can keep its
	// prompt cache near: the id of the session. It may be "".
	CacheKey string
}

// ToolSpec is a tool as a model is told of it.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // of its arguments: JSON Schema 2020-12, of an object
}

// AnswerSchema is the form of an answer.
type AnswerSchema struct {
	Name   string          `json:"name"`   // as of a tool
	Schema json.RawMessage `json:"schema"` // JSON Schema 2020-12
}

// ToolChoice says whether the model must call a tool. The zero value leaves it to the
// model.
type ToolChoice struct {
	Mode ToolMode
	Name string // with ToolOne: the tool
}

// ToolMode is how free a model is to call tools.
type ToolMode string

// The modes of a ToolChoice.
const (
	ToolAuto ToolMode = ""     // as it sees fit
	ToolAny  ToolMode = "any"  // at least one, whichever
	ToolOne  ToolMode = "one"  // the one that is named
	ToolNone ToolMode = "none" // none, though they are described
)

// Levels of thinking, as session logs name them.
const (
	ThinkingOff     = entry.ThinkingOff
	ThinkingMinimal = "minimal"
	ThinkingLow     = "low"
	ThinkingMedium  = "medium"
	ThinkingHigh    = "high"
	ThinkingXHigh   = "xhigh"
)

// ThinkingLevels are the levels, the least first.
func ThinkingLevels() []string {
	return []string{ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingXHigh}
}
