package edit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Tool is editing as an agent calls it.
type Tool struct {
	Workspace *workspace.Workspace
	Output    Output
}

var _ tool.Tool = Tool{}

// Name implements [tool.Tool], here and below.
func (Tool) Name() string { return "edit" }

func (Tool) Description() string {
	return "Changes parts of a text file and returns the difference. Give edits: each exchanges old, a text exactly as it is in the file " +
		"with its indentation, for new. old must be there once, or all must be set. All edits are looked for in the file as it is " +
		"before the call; all are made or none. Or give patch, a unified diff of this one file, which may have moved a little. " +
		"Line ends, encoding and mode of the file stay. A file that changed since you read it is refused: read it again."
}

func (Tool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string", "minLength": 1, "description": "The file to change; a relative path begins at the working directory."},
    "edits": {
      "type": "array",
      "minItems": 1,
      "maxItems": 1000,
      "description": "What to exchange for what.",
      "items": {
        "type": "object",
        "properties": {
          "old": {"type": "string", "minLength": 1, "description": "The text to exchange, exactly as it is in the file."},
          "new": {"type": "string", "description": "What comes in its place."},
          "all": {"type": "boolean", "default": false, "description": "Exchange it wherever it is."}
        },
        "required": ["old", "new"],
        "additionalProperties": false
      }
    },
    "patch": {"type": "string", "minLength": 1, "description": "A unified diff of this file, in place of edits."}
  },
  "required": ["path"],
  "additionalProperties": false
}`)
}

// Idempotent is false: a second call does not find what the first has changed.
func (Tool) Idempotent() bool { return false }

// ParallelSafe is false: two edits of one file depend on their order.
func (Tool) ParallelSafe() bool { return false }

type input struct {
	Path  string `json:"path"`
	Edits []Edit `json:"edits"`
	Patch string `json:"patch"`
}

// Call edits a file. What is refused is a Result with IsError, for the model to correct.
func (t Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return tool.Result{}, fmt.Errorf("editing: %w", err)
	}
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	res, err := Do(ctx, t.Workspace, Request(in), t.Output)
	var record *workspace.RecordError
	switch {
	case errors.As(err, &record): // the file is changed
	case err != nil && ctx.Err() != nil:
		return tool.Result{}, err
	case err != nil:
		return tool.Refuse(err), nil
	}
	out := tool.Result{Text: res.Text(), Artifact: res.Diff.Artifact, IsError: err != nil}
	var jerr error
	out.Details, jerr = res.details()
	return out, errors.Join(err, jerr)
}

// Text is the diff, with remarks in brackets behind it.
func (r *Result) Text() string {
	text := r.Diff.View
	if remarks := r.remarks(); len(remarks) > 0 {
		text = strings.TrimSuffix(text, "\n") + "\n" + string(remarks)
	}
	return text
}
