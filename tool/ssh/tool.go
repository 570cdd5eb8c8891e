package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
)

// Tool offers scripts on other hosts to a model. It records nothing, as [bash.Tool] does not, and is neither idempotent nor
// safe beside other calls.
type Tool struct {
	Options Options
	// Allowed are the hosts that may be reached; none are without it.
	Allowed Patterns
	// Off is why no host may be reached, whatever is allowed; nil when hosts may.
	Off error
	// Artifacts is where output goes that is more than a view; nil keeps the view alone.
	Artifacts *artifacts.Dir
	// Sink bounds the view; nil means outputsink.DefaultOptions().
	Sink *outputsink.Options
	// Live gets the output as it comes, see bash.Options.Live; nil for nobody.
	Live io.Writer
	// Redact replaces secrets in the output, see bash.Options.Redact; nil does not.
	Redact *redact.Redactor
}

var _ tool.Tool = (*Tool)(nil)

// Name implements [tool.Tool], here and below.
func (*Tool) Name() string { return "ssh" }

func (t *Tool) Description() string {
	d := "Runs a script on another host over ssh and returns what it printed, stdout and stderr together in the order of writing. " +
		"bash runs it there, as the user that the configuration of ssh names; standard input is empty and there is no terminal. " +
		"Every call starts anew: directory and variables do not carry over. Files and URLs of this machine are not there."
	if len(t.Allowed) > 0 {
		d += " Hosts that may be named: " + t.Allowed.String() + "."
	}
	return d
}

func (*Tool) Schema() json.RawMessage { return schema }

func (*Tool) Idempotent() bool { return false }

func (*Tool) ParallelSafe() bool { return false }

var schema = json.RawMessage(`{
  "type": "object",
  "properties": {
    "host": {"type": "string", "minLength": 1, "maxLength": 320, "description": "The host: a name of the configuration of ssh, or [USER@]NAME[:PORT]."},
    "command": {"type": "string", "minLength": 1, "description": "The script to run."},
    "timeout": {"type": "number", "minimum": 0, "maximum": 3600, "default": 300, "description": "Seconds after which the script is ended; 0 for no limit."},
    "cwd": {"type": "string", "description": "The directory on the host to run in; where a login begins by default."}
  },
  "required": ["host", "command"],
  "additionalProperties": false
}`)

// input is what schema describes.
type input struct {
	Host    string   `json:"host"`
	Command string   `json:"command"`
	Timeout *float64 `json:"timeout,omitempty"`
	Cwd     string   `json:"cwd"`
}

// Call runs the script.
func (t *Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	host, err := ParseHost(in.Host)
	if err != nil {
		return tool.Refuse(err), nil
	}
	if t.Off != nil {
		return tool.Refuse(t.Off), nil
	}
	if !t.Allowed.Allow(host) {
		return tool.Refuse(&ForbiddenError{host, t.Allowed}), nil
	}
	if err := CheckScript(in.Command); err != nil {
		return tool.Refuse(err), nil
	}
	client, err := New(t.Options)
	if err != nil {
		return tool.Refuse(err), nil
	}
	script, err := json.Marshal(struct {
		Command string   `json:"command"`
		Timeout *float64 `json:"timeout,omitempty"`
	}{in.Command, in.Timeout})
	if err != nil {
		return tool.Result{}, fmt.Errorf("running a script on %s: %w", host, err)
	}
	shell := &bash.Tool{Shell: client.On(host, in.Cwd), Host: host.String(), Artifacts: t.Artifacts, Sink: t.Sink, Live: t.Live, Redact: t.Redact}
	return shell.Call(ctx, script)
}

// ForbiddenError is the answer for a host that is not allowed.
type ForbiddenError struct {
	Host    Host
	Allowed Patterns
}

func (e *ForbiddenError) Error() string {
	if len(e.Allowed) == 0 {
		return fmt.Sprintf("%s may not be reached: no host is allowed here; who owns this machine allows some as ssh.hosts in config.json of the home", e.Host)
	}
	return fmt.Sprintf("%s may not be reached: the hosts that are allowed (ssh.hosts in config.json of the home) are %s", e.Host, e.Allowed)
}
