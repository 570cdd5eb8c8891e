package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Tool is writing as an agent calls it.
type Tool struct {
	Workspace *workspace.Workspace
	Output    edit.Output
}

var _ tool.Tool = Tool{}

// Name implements [tool.Tool], here and below.
func (Tool) Name() string { return "write" }

func (Tool) Description() string {
	return "Makes a text file, and the directories above it, or gives one that is there a new content; then it returns the difference. " +
		"To change a part of a file use edit. A file that is there keeps its mode, encoding, line ends and final newline, unless exact is set. " +
		"A file that changed since you read it is refused: read it again."
}

func (Tool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string", "minLength": 1, "description": "The file to write; a relative path begins at the working directory."},
    "content": {"type": "string", "description": "All that the file is to hold."},
    "exact": {"type": "boolean", "default": false, "description": "Write content as it is, whatever line ends and encoding the file had."}
  },
  "required": ["path", "content"],
  "additionalProperties": false
}`)
}

// Idempotent is true: the same content twice is the same file.
func (Tool) Idempotent() bool { return true }

// ParallelSafe is false: two writes of one file depend on their order.
func (Tool) ParallelSafe() bool { return false }

type input struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Exact   bool   `json:"exact"`
}

// Call writes a file. What is refused is a Result with IsError, for the model to correct.
func (t Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return tool.Result{}, fmt.Errorf("writing: %w", err)
	}
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	res, err := Do(ctx, t.Workspace, Request{in.Path, []byte(in.Content), in.Exact}, t.Output)
	var record *workspace.RecordError
	switch {
	case errors.As(err, &record): // the file is written
	case err != nil && ctx.Err() != nil:
		return tool.Result{}, err
	case err != nil:
		return tool.Refuse(err), nil
	}
	out := tool.Result{Text: res.Text(t.Output.Name(t.Workspace, res.Path)), Artifact: res.Diff.Artifact, IsError: err != nil}
	var jerr error
	out.Details, jerr = json.Marshal(struct {
		Result
		DiffBytes int64 `json:"diffBytes"`
		DiffLines int64 `json:"diffLines"`
		Truncated bool  `json:"truncated"`
	}{res, res.Diff.TotalBytes, res.Diff.TotalLines, res.Diff.Truncated})
	return out, errors.Join(err, jerr)
}

// Text is the diff, with remarks in brackets behind it; name is what they call the file.
func (r *Result) Text(name string) string {
	text := r.Diff.View
	what := fmt.Sprintf("Wrote %s, %s", name, count(r.Bytes))
	switch {
	case r.Made:
		what = fmt.Sprintf("Made %s, %s", name, count(r.Bytes))
	case r.Same:
		what = name + " holds that already: it was not written"
	}
	if len(r.Kept) > 0 {
		what += "; kept " + strings.Join(r.Kept, ", ")
	}
	if text != "" {
		text = strings.TrimSuffix(text, "\n") + "\n"
	}
	return text + "[" + what + "]"
}

func count(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}
