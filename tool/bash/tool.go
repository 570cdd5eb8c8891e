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
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool"
)

// Limits of the timeout that a model may ask for, those of oh-my-pi's bash tool.
const (
	DefaultTimeout = 300 * time.Second
	MaxTimeout     = time.Hour
)

// DefaultJobTimeout is how long a job may run when nobody says otherwise.
const DefaultJobTimeout = 24 * time.Hour

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
	// Sandbox is what scripts may do; nil is everything. A model can not change it. Shell has its own, and must be nil.
	Sandbox *sandbox.Policy
	// Host is where Shell runs them, when that is not here.
	Host string
	// Live gets the output as it comes, see Options.Live; nil for nobody.
	Live io.Writer
	// Redact replaces secrets in the output, see Options.Redact; nil does not.
	Redact *redact.Redactor
	// Background runs the scripts that may go on as jobs, in place of Shell; nil offers that to nobody.
	Background Background
}

// Background runs a script as [Run] does, for so long at most: then it goes on as a job, and what is known of it by then is
// returned. The package supervisor has one. Of the options Script, Runs, Dir, Env, Timeout, MaxOutput, Separate, Kill,
// Move, Unrecorded, Terminal and Live count.
type Background interface {
	RunOrMove(ctx context.Context, o Options, after time.Duration) (Result, *Moved, error)
}

var _ tool.Tool = (*Tool)(nil)

// Name implements [tool.Tool], here and below.
func (*Tool) Name() string { return "bash" }

func (t *Tool) Description() string {
	if t.Shell != nil {
		return "Runs a script with bash and returns what it printed, stdout and stderr together in the order of writing. " +
			"Long output is shortened in the middle; the notice at its end names the URL that holds all of it. " +
			"Directory, variables, functions, aliases and options carry over to the next call. " +
			"Standard input is empty and there is no terminal, unless pty is true."
	}
	return "Runs a script with bash and returns what it printed, stdout and stderr together in the order of writing. " +
		"Long output is shortened in the middle; the notice at its end names the URL that holds all of it. " +
		"Every call starts anew: directory and variables do not carry over. " +
		"Processes left running in the background are ended with the script."
}

func (t *Tool) Schema() json.RawMessage {
	if t.Background != nil {
		return backgroundSchema
	}
	return schema
}

func (*Tool) Idempotent() bool { return false }

func (*Tool) ParallelSafe() bool { return false }

var (
	schema           = schemaWith("")
	backgroundSchema = schemaWith(`,
    "background_after": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "description": "Seconds after which the script goes on in the background, as a job; its result is told when it has ended."}`)
)

func schemaWith(more string) json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "command": {"type": "string", "minLength": 1, "description": "The script to run."},
    "timeout": {"type": "number", "minimum": 0, "maximum": 3600, "default": 300, "description": "Seconds after which the script is ended; 0 for no limit."},
    "cwd": {"type": "string", "description": "The directory to run in; a relative one starts at the working directory."},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Environment variables to add."},
    "pty": {"type": "boolean", "default": false, "description": "Run at a terminal. The result is then the screen as a person would see it at the end, with what scrolled off it. Nobody types: what asks a question waits for the timeout."},
    "rows": {"type": "integer", "minimum": 1, "maximum": 500, "default": 24, "description": "Rows of the terminal."},
    "cols": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 80, "description": "Columns of the terminal."}` + more + `
  },
  "required": ["command"],
  "additionalProperties": false
}`)
}

// input is what schema describes.
type input struct {
	Command string            `json:"command"`
	Timeout *float64          `json:"timeout"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`

	PTY  bool `json:"pty"`
	Rows *int `json:"rows"`
	Cols *int `json:"cols"`

	BackgroundAfter *float64 `json:"background_after"`
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
	timeout, clamped := ClampTimeout(in.Timeout)
	o := Options{Script: in.Command, Dir: in.Cwd, Timeout: timeout, Artifacts: t.Artifacts, Sink: t.Sink, Live: t.Live, Shell: t.Shell, Sandbox: t.Sandbox, Redact: t.Redact, Host: t.Host}
	if !filepath.IsAbs(o.Dir) && (o.Dir != "" || t.Shell == nil) {
		o.Dir = filepath.Join(t.Dir, o.Dir)
	}
	for _, k := range slices.Sorted(maps.Keys(in.Env)) {
		o.Env = append(o.Env, k+"="+in.Env[k])
	}
	if in.PTY {
		o.Terminal = &Terminal{Size: in.size()}
	}
	if in.BackgroundAfter != nil {
		if t.Background == nil {
			return tool.Refuse(errNoBackground), nil
		}
		if o.Unrecorded = true; in.Timeout == nil {
			o.Timeout = DefaultJobTimeout
		}
	}
	var moved *Moved
	var res Result
	if in.BackgroundAfter != nil {
		res, moved, err = t.Background.RunOrMove(ctx, o, seconds(*in.BackgroundAfter))
	} else {
		res, err = Run(ctx, o)
	}
	if moved != nil && err == nil {
		return t.moved(moved, clamped)
	}
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
	if out.Text = WithRemarks(res.Output, remarks); out.Text == "" {
		out.Text = "(no output)"
	}
	var encodeErr error
	out.Details, encodeErr = json.Marshal(details{res.Finish, res.Code, res.Cancelled, res.Summary.Truncated})
	return out, errors.Join(err, encodeErr)
}

// moved is the answer of a script that goes on.
func (t *Tool) moved(m *Moved, clamped string) (tool.Result, error) {
	var remarks []string
	if clamped != "" {
		remarks = append(remarks, clamped)
	}
	job := fmt.Sprintf("job://%d", *m.Artifact)
	remarks = append(remarks, fmt.Sprintf("[It goes on in the background as %s; all of its output is artifact://%d, and its result is told when it has ended]", job, *m.Artifact))
	out := tool.Result{Text: WithRemarks(m.Summary.View, remarks), Artifact: m.Summary.Artifact}
	var err error
	out.Details, err = json.Marshal(movedDetails{m.Run, job, m.Summary.Artifact, m.Summary.TotalBytes})
	return out, err
}

// movedDetails are for programs.
type movedDetails struct {
	Run        string `json:"run"`
	Job        string `json:"job"`
	Artifact   string `json:"artifact"`
	TotalBytes int64  `json:"totalBytes"` // until then
}

var errNoBackground = errors.New("nothing can go on in the background here: leave background_after out")

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func decode(raw json.RawMessage) (input, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return in, fmt.Errorf("the input is not as the schema says: %w", err)
	}
	if b := in.BackgroundAfter; b != nil && !(*b > 0 && *b <= MaxTimeout.Seconds()) {
		return in, fmt.Errorf("the input is not as the schema says: background_after is %g, and has to be more than 0 and %g at most", *b, MaxTimeout.Seconds())
	}
	if err := in.size().Check(); err != nil {
		return in, fmt.Errorf("the input is not as the schema says: %w", err)
	}
	if !in.PTY && (in.Rows != nil || in.Cols != nil) {
		return in, errors.New("rows and cols are those of a terminal: give pty too")
	}
	for k := range in.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return in, fmt.Errorf("the input is not as the schema says: %q can not name a variable", k)
		}
	}
	return in, nil
}

// size is that of the terminal.
func (in *input) size() TerminalSize {
	s := TerminalSize{}.WithDefaults()
	if in.Rows != nil {
		s.Rows = *in.Rows
	}
	if in.Cols != nil {
		s.Cols = *in.Cols
	}
	return s
}

// ClampTimeout brings what a model asked for within the limits, and says so.
func ClampTimeout(seconds *float64) (time.Duration, string) {
	if seconds == nil {
		return DefaultTimeout, ""
	}
	asked, limit := *seconds, MaxTimeout.Seconds()
	switch {
	case asked == 0:
		return 0, ""
	case asked > limit:
		return MaxTimeout, fmt.Sprintf("[Timeout clamped to %s (requested %ss; allowed range 1s to %[1]s)]", quantity.Time(MaxTimeout), digits(asked))
	case asked < 1:
		return time.Second, fmt.Sprintf("[Timeout clamped to 1s (requested %ss; allowed range 1s to %s)]", digits(asked), quantity.Time(MaxTimeout))
	}
	return time.Duration(asked * float64(time.Second)), ""
}

// digits are those of a number as a person writes it, and not all of one that nobody does.
func digits(f float64) string {
	const most = 20
	if text := strconv.FormatFloat(f, 'f', -1, 64); len(text) <= most {
		return text
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
