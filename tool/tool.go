// Package tool defines what an agent can call.
//
// A [Tool] has a name, a description and a JSON schema for a model to read, and a Call that does the work. The
// package holds the contract, and how inputs are decoded and refused, which is the same for all: tools live in packages
// of their own below this one (tool/bash, tool/read) and know no model vendor; whoever drives a model turns a [Result]
// into that vendor's blocks.
//
// Promised: a Tool may be described from any number of goroutines. Whether it may be called from several at once is
// what [Tool.ParallelSafe] says. A Result's text is bounded by the tool itself, and whatever the bound leaves out is
// whole behind [Result.Artifact].
//
// Refused: a Call whose input does not match the schema answers with a Result whose IsError is set, so that the
// model can read what to do; the error return is for agentrun's own failure (a session that can not be written, a
// cancelled context before anything was done).
package tool

import (
	"context"
	"encoding/json"
	"errors"
)

// ErrUnfinished is matched by the error of a call that is idempotent and has no outcome yet, because what it has to put on
// a disk could not be. A model is not told of it as of a result: the run ends, and makes the call again when it is resumed.
var ErrUnfinished = errors.New("the call is not finished, and goes on when the run is resumed")

// Tool is one ability offered to a model or to another program.
type Tool interface {
	// Name is what a model calls it by: lower-case letters, digits, '_' and '-', at most 64 bytes, unique among the
	// tools offered together.
	Name() string

	// Description tells a model what the tool does, when to use it, and what its result looks like.
	Description() string

	// Schema is the JSON Schema (an object schema, draft 2020-12) of the input of Call. Callers do not change it.
	Schema() json.RawMessage

	// Idempotent reports whether a call that may or may not have run can be run again with the same outcome, so
	// that a driver that died in between repeats it instead of asking.
	Idempotent() bool

	// ParallelSafe reports whether calls of one turn may run at the same time without one changing what another
	// sees.
	ParallelSafe() bool

	// Call does the work. Input is hostile until checked. A cancelled ctx ends the work as soon as it can be ended
	// cleanly; what was done until then is in the Result. The Result is meaningful also beside a non-nil error:
	// output that could not be recorded is still output.
	Call(ctx context.Context, input json.RawMessage) (Result, error)
}

// KnowsCalls is implemented by an idempotent tool that knows a call which is made again by its id: what it does then does not
// depend on the arguments.
type KnowsCalls interface {
	Tool
	KnowsCalls()
}

// Result is what a call gives back.
type Result struct {
	// Text is what a model is shown: bounded, sanitised, with the tool's own remarks in brackets at its end.
	Text string

	// Images are shown to a model behind Text, in this order.
	Images []Image

	// Details is a JSON object for programs (exit code, counts, ids), or nil. It is not shown to a model.
	Details json.RawMessage

	// Artifact is the URL that holds everything when Text does not ("artifact://3"), else "".
	Artifact string

	// IsError marks a call that failed in the model's sense: a command with a non-zero exit, an invalid input.
	IsError bool

	// Refused says that nothing was done: the call is against the schema, the rules or the state of things. IsError is set too.
	Refused bool
}

// Image is a picture as a provider takes it.
type Image struct {
	MIMEType string // image/png, image/jpeg, image/gif or image/webp
	Data     []byte
	// Original is the blob reference of the picture as it was when Data is a smaller one,
	// and of Data itself otherwise; "" when it is not kept.
	Original string
}
