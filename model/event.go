package model

import (
	"time"

	"github.com/agentrun/agentrun/session/entry"
)

// Event is something that happens while a model answers: one of the types of this file,
// by value, and no other.
//
// Block numbers count the blocks of the answer in the order in which they began, and are
// their places in the content of [Stop].Message. Blocks may grow by turns, as parallel tool
// calls do. The deltas of a block, one behind the other, are its text; each is valid UTF-8.
type Event interface{ event() }

// TextDelta is more of a text.
type TextDelta struct {
	Block int
	Text  string
}

// ThinkingDelta is more of the reasoning that a provider shows.
type ThinkingDelta struct {
	Block int
	Text  string
}

// ToolCallStart is the beginning of a tool call; its arguments follow.
type ToolCallStart struct {
	Block    int
	ID, Name string
}

// ToolCallDelta is more of the arguments of a tool call: a piece of JSON that may end
// anywhere, also within an escape.
type ToolCallDelta struct {
	Block int
	JSON  string
}

// BlockEnd is the end of a block, with all of it: an entry.TextBlock, ThinkingBlock with
// its signature, ToolCallBlock, or a block that comes only whole, such as an
// entry.RedactedThinkingBlock. A tool call ends so.
type BlockEnd struct {
	Block   int
	Content entry.Block
}

// UsageSoFar is what the answer has taken so far, with its cost. Later ones replace it. It
// may come again with nothing new in it, as a sign that the provider is still at work.
type UsageSoFar struct {
	Usage entry.Usage
}

// Retry says that a try failed and when the next one begins. Nothing of the failed try
// counts: blocks begin anew.
type Retry struct {
	Err  *Error
	Wait time.Duration
}

// Stop is the end of an answer, with all of it as it belongs into the log. Its StopReason
// is stop (there is no tool call), toolUse (there is one), or length (the answer ends where
// MaxTokens or the window did; there may be calls, and the arguments of the last one may
// have been cut).
type Stop struct {
	Message entry.AssistantMessage
}

func (TextDelta) event()     {}
func (ThinkingDelta) event() {}
func (ToolCallStart) event() {}
func (ToolCallDelta) event() {}
func (BlockEnd) event()      {}
func (UsageSoFar) event()    {}
func (Retry) event()         {}
func (Stop) event()          {}
