package find

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Tool is finding as an agent calls it.
type Tool struct {
	Workspace *workspace.Workspace
	Sources   Sources        // lists URLs; nil refuses them
	Artifacts *artifacts.Dir // where a list goes that is more than a view; nil keeps the view alone
	Sink      *outputsink.Options
}

var _ tool.Tool = Tool{}

// Name implements [tool.Tool], here and below.
func (Tool) Name() string { return "find" }

func (Tool) Description() string {
	return "Lists files by name, without those that git ignores. glob chooses by the path below each of paths, such as src/**/*.{go,mod}, " +
		"or by the file name alone when it has no slash, such as *_test.go. paths are directories, files, and URLs: artifact://, agent:// " +
		"and session:// list all of a kind."
}

func (Tool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "glob": {"type": "string", "description": "Which files: *, ?, [a-z], {a,b}, ** for any directories."},
    "paths": {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "Where to look; the working directory if none is given."},
    "all": {"type": "boolean", "default": false, "description": "List files that git ignores too."}
  },
  "additionalProperties": false
}`)
}

// Idempotent is true: finding changes nothing.
func (Tool) Idempotent() bool { return true }

// ParallelSafe is true: finding changes nothing.
func (Tool) ParallelSafe() bool { return true }

type input struct {
	Glob  string   `json:"glob"`
	Paths []string `json:"paths"`
	All   bool     `json:"all"`
}

// Call lists files. What is refused is a Result with IsError, for the model to correct.
func (t Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	l, err := List(ctx, t.Workspace, t.Sources, Options{Globs: OneGlob(in.Glob), All: in.All, Hidden: tool.HiddenOf(ctx)}, in.Paths...)
	switch {
	case err != nil && ctx.Err() != nil:
		return tool.Result{}, err
	case err != nil:
		return tool.Refuse(err), nil
	}
	defer l.Close()
	options := outputsink.DefaultOptions()
	if t.Sink != nil {
		options = *t.Sink
	}
	options.Open = nil
	if t.Artifacts != nil {
		options.Open = func() (outputsink.File, error) {
			return t.Artifacts.Create(ctx, "find", artifacts.Provenance{Call: tool.OriginOf(ctx)})
		}
	}
	sink := outputsink.New(options)
	for _, item := range l.Items {
		fmt.Fprintln(sink.Stdout(), item.Name) // a sink takes everything
	}
	sum, _ := sink.Close() // its error is what ArtifactState tells
	text := sum.View
	if len(l.Items) == 0 {
		text = "(no files)"
	}
	out := tool.Result{Text: tool.WithProblems(text, l.Problems), Artifact: sum.Artifact}
	out.Details, err = json.Marshal(struct {
		Files     int      `json:"files"`
		Problems  []string `json:"problems,omitempty"`
		Truncated bool     `json:"truncated"`
	}{len(l.Items), l.Problems[:min(len(l.Problems), tool.MaxProblems)], sum.Truncated})
	return out, err
}

// OneGlob is the argument glob of a tool as [Options] have it.
func OneGlob(glob string) []string {
	if glob == "" {
		return nil
	}
	return []string{glob}
}
