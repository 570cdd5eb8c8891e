package bash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
)

// Limits of the timeout that a model may ask for, those of oh-my-pi's bash tool.
const (
	DefaultTimeout = 300 * time.Second
	MaxTimeout     = time.Hour
)

// Tool offers a shell to a model. It records nothing: the call and its result are messages of the session that the
// model works in. It is neither idempotent nor safe beside other calls, because a script may do anything.
type Tool struct {
	// Dir is the directory a script starts in when it names none, and that relative ones start from; "" is that of
	// this process.
	Dir string
	// Artifacts is where output goes that is more than a view; nil keeps the view alone.
	Artifacts *artifacts.Dir
	// Sink bounds the view; nil means outputsink.DefaultOptions().
	Sink *outputsink.Options
	// Shell runs the scripts, so that one finds what the one before left; nil starts a shell for each.
	Shell Runner
	// Live gets the output as it comes, see Options.Live; nil for nobody.
	Live io.Writer
}

var _ tool.Tool = (*Tool)(nil)

// Name implements [tool.Tool], here and below.
func (*Tool) Name() string { return "bash" }

func (t *Tool) Description() string {
	if t.Shell != nil {
		return "Runs a script with bash and returns what it printed, stdout and stderr together in the order of writing. " +
			"Long output is shortened in the middle; the notice at its end names the URL that holds all of it. " +
			"Directory, variables, functions, aliases and options carry over to the next call. " +
			"Standard input is empty and there is no terminal."
	}
	return "Runs a script with bash and returns what it printed, stdout and stderr together in the order of writing. " +
		"Long output is shortened in the middle; the notice at its end names the URL that holds all of it. " +
		"Every call starts anew: directory and variables do not carry over. " +
		"Processes left running in the background are ended with the script."
}

func (*Tool) Schema() json.RawMessage { return schema }

func (*Tool) Idempotent() bool { return false }

func (*Tool) ParallelSafe() bool { return false }

var schema = json.RawMessage(`{
  "type": "object",
  "properties": {
    "command": {"type": "string", "minLength": 1, "description": "The script to run."},
    "timeout": {"type": "number", "minimum": 0, "maximum": 3600, "default": 300, "description": "Seconds after which the script is ended; 0 for no limit."},
    "cwd": {"type": "string", "description": "The directory to run in; a relative one starts at the working directory."},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Environment variables to add."}
  },
  "required": ["command"],
  "additionalProperties": false
}`)

// input is what schema describes.
type input struct {
	Command string            `json:"command"`
	Timeout *float64          `json:"timeout"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
}

// details are for programs.
type details struct {
	Finish
	ExitCode  int  `json:"exitCode"`
	Cancelled bool `json:"cancelled"`
	Truncated bool `json:"truncated"`
}

// Call runs the script. A timeout outside the limits is brought within them, and the text says so.
func (t *Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	in, err := decode(raw)
	if err != nil {
		return tool.Refuse(err), nil
	}
	timeout, clamped := clamp(in.Timeout)
	o := Options{Script: in.Command, Dir: in.Cwd, Timeout: timeout, Artifacts: t.Artifacts, Sink: t.Sink, Live: t.Live, Shell: t.Shell}
	if !filepath.IsAbs(o.Dir) && (o.Dir != "" || t.Shell == nil) {
		o.Dir = filepath.Join(t.Dir, o.Dir)
	}
	for _, k := range slices.Sorted(maps.Keys(in.Env)) {
		o.Env = append(o.Env, k+"="+in.Env[k])
	}
	res, err := Run(ctx, o)
	if err != nil && res.Run == "" {
		if ctx.Err() != nil {
			return tool.Result{}, err
		}
		return tool.Refuse(err), nil
	}
	out := tool.Result{Artifact: res.Summary.Artifact, IsError: err != nil || res.Code != 0 || res.Cancelled}
	var remarks []string
	if clamped != "" {
		remarks = append(remarks, clamped)
	}
	if res.Code != 0 && !res.TimedOut && res.Start == nil {
		remarks = append(remarks, fmt.Sprintf("[Command exited with code %d]", res.Code))
	}
	if out.Text = withRemarks(res.Output, remarks); out.Text == "" {
		out.Text = "(no output)"
	}
	var encodeErr error
	out.Details, encodeErr = json.Marshal(details{res.Finish, res.Code, res.Cancelled, res.Summary.Truncated})
	return out, errors.Join(err, encodeErr)
}

func decode(raw json.RawMessage) (input, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return in, fmt.Errorf("the input is not as the schema says: %w", err)
	}
	for k := range in.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return in, fmt.Errorf("the input is not as the schema says: %q can not name a variable", k)
		}
	}
	return in, nil
}

// clamp brings what a model asked for within the limits, and says so.
func clamp(seconds *float64) (time.Duration, string) {
	if seconds == nil {
		return DefaultTimeout, ""
	}
	asked, limit := *seconds, MaxTimeout.Seconds()
	switch {
	case asked == 0:
		return 0, ""
	case asked > limit:
		return MaxTimeout, fmt.Sprintf("[Timeout clamped to %v (requested %gs; allowed range 1s to %v)]", MaxTimeout, asked, MaxTimeout)
	case asked < 1:
		return time.Second, fmt.Sprintf("[Timeout clamped to 1s (requested %gs; allowed range 1s to %v)]", asked, MaxTimeout)
	}
	return time.Duration(asked * float64(time.Second)), ""
}
