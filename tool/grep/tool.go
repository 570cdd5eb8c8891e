package grep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Tool is searching as an agent calls it.
type Tool struct {
	Workspace *workspace.Workspace
	Sources   find.Sources   // lists URLs; nil refuses them
	Artifacts *artifacts.Dir // where results go that are more than a view; nil keeps the view alone
	Sink      *outputsink.Options
}

var _ tool.Tool = Tool{}

// Name implements [tool.Tool], here and below.
func (Tool) Name() string { return "grep" }

func (Tool) Description() string {
	return "Finds lines by a regular expression (RE2, as in Go) in files, without those that git ignores: path:line:text, and path-line-text for lines of context. " +
		"paths are files, directories, and URLs: artifact://3 is the whole output of a tool, artifact://, agent:// and session:// are all of a kind. " +
		"Long results are shortened in the middle; the notice at their end names the URL that holds all of them."
}

func (Tool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "minLength": 1, "description": "A regular expression; ^ and $ are the ends of a line."},
    "paths": {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "Where to look; the working directory if none is given."},
    "ignoreCase": {"type": "boolean", "default": false, "description": "Take upper and lower case for the same."},
    "context": {"type": "integer", "minimum": 0, "maximum": 1000, "default": 0, "description": "Lines before and behind each match."},
    "glob": {"type": "string", "description": "Which files, as *_test.go or src/**/*.go."},
    "all": {"type": "boolean", "default": false, "description": "Search files that git ignores too."}
  },
  "required": ["pattern"],
  "additionalProperties": false
}`)
}

// Idempotent is true: searching changes nothing.
func (Tool) Idempotent() bool { return true }

// ParallelSafe is true: searching changes nothing.
func (Tool) ParallelSafe() bool { return true }

type input struct {
	Pattern    string   `json:"pattern"`
	Paths      []string `json:"paths"`
	IgnoreCase bool     `json:"ignoreCase"`
	Context    int      `json:"context"`
	Glob       string   `json:"glob"`
	All        bool     `json:"all"`
}

// Call searches. What is refused is a Result with IsError, for the model to correct.
func (t Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	if in.Pattern == "" {
		return tool.Refuse(errors.New("the pattern is empty: every line has that")), nil
	}
	options := outputsink.DefaultOptions()
	if t.Sink != nil {
		options = *t.Sink
	}
	options.Open = nil
	if t.Artifacts != nil {
		options.Open = func() (outputsink.File, error) {
			return t.Artifacts.Create(ctx, "grep", artifacts.Provenance{Call: tool.OriginOf(ctx)})
		}
	}
	sink := outputsink.New(options)
	res, err := Search(ctx, t.Workspace, t.Sources, Options{
		Pattern: in.Pattern, IgnoreCase: in.IgnoreCase, Context: in.Context, Options: find.Options{Globs: find.OneGlob(in.Glob), All: in.All, Hidden: tool.HiddenOf(ctx)},
	}, sink.Stdout(), in.Paths...)
	sum, _ := sink.Close() // its error is what ArtifactState tells
	switch {
	case err != nil && ctx.Err() != nil:
		return tool.Result{}, err
	case err != nil:
		return tool.Refuse(err), nil
	}
	text := sum.View
	if res.Matches == 0 {
		text = fmt.Sprintf("(no match in %d files)", res.Searched)
	}
	out := tool.Result{Text: tool.WithProblems(text, res.Problems), Artifact: sum.Artifact}
	res.Problems = res.Problems[:min(len(res.Problems), tool.MaxProblems)]
	out.Details, err = json.Marshal(struct {
		Result
		Truncated bool `json:"truncated"`
	}{res, sum.Truncated})
	return out, err
}
