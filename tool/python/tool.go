package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
)

// Tool offers Python to a model. It records nothing: the call and its result are messages of the session that the
// model works in. It is neither idempotent nor safe beside other calls, because code may do anything.
type Tool struct {
	// Dir is the directory in which a kernel starts, and that relative ones start from; "" is that of this process.
	Dir string
	// Kernel runs the cells, so that one finds what the one before left; nil starts a kernel for each.
	Kernel Runner
	// Path is that of the interpreter where Kernel is nil; "" is found.
	Path string
	// Artifacts is where output goes that is more than a view; nil keeps the view alone.
	Artifacts *artifacts.Dir
	// Blobs is where what cells display is kept; nil keeps nothing.
	Blobs Blobs
	// Sink bounds the view; nil means outputsink.DefaultOptions().
	Sink *outputsink.Options
	// Services answer what the code asks for; nil refuses.
	Services *Services
	// Sandbox is what code may do where Kernel is nil; nil is everything. Scripts that code asks Services for have that
	// of Services.Bash.
	Sandbox *sandbox.Policy
	// Redact replaces secrets in what cells print and display; nil does not.
	Redact *redact.Redactor
}

var _ tool.Tool = (*Tool)(nil)

// Name implements [tool.Tool], here and below.
func (*Tool) Name() string { return language }

func (t *Tool) Description() string {
	const what = "Runs Python code as a cell of a notebook and returns what it printed and the value of its last expression; " +
		"figures of matplotlib and images are shown. Long output is shortened in the middle; the notice at its end names the URL that holds all of it. "
	const more = "await stands anywhere; display(value) shows more values. agentrun.read(url_or_path), agentrun.bash(script) and " +
		"agentrun.artifact(name, data) are there. input() fails. No % or ! commands."
	if t.Kernel != nil {
		return what + "Variables, imports and the working directory carry over to the next call. " + more
	}
	return what + "Every call starts anew: variables do not carry over. " + more
}

func (*Tool) Schema() json.RawMessage { return schema }

func (*Tool) Idempotent() bool { return false }

func (*Tool) ParallelSafe() bool { return false }

var schema = json.RawMessage(`{
  "type": "object",
  "properties": {
    "code": {"type": "string", "minLength": 1, "description": "The code to run."},
    "timeout": {"type": "number", "minimum": 0, "maximum": 3600, "default": 300, "description": "Seconds after which the cell is interrupted; 0 for no limit."},
    "cwd": {"type": "string", "description": "The directory to change to before; a relative one starts at the working directory."}
  },
  "required": ["code"],
  "additionalProperties": false
}`)

// input is what schema describes.
type input struct {
	Code    string   `json:"code"`
	Timeout *float64 `json:"timeout"`
	Cwd     string   `json:"cwd"`
}

// details are for programs.
type details struct {
	finish
	ExitCode  int  `json:"exitCode"`
	Cancelled bool `json:"cancelled"`
	Truncated bool `json:"truncated"`
}

// Call runs the code. A timeout outside the limits is brought within them, and the text says so.
func (t *Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	timeout, clamped := bash.ClampTimeout(in.Timeout)
	o := RunOptions{
		Options: bash.Options{Script: in.Code, Dir: in.Cwd, Timeout: timeout, Artifacts: t.Artifacts, Sink: t.Sink, Redact: t.Redact},
		Kernel:  t.Kernel, Blobs: t.Blobs,
	}
	if t.Services != nil {
		o.Host = t.Services.Host
	}
	if o.Dir != "" && !filepath.IsAbs(o.Dir) {
		o.Dir = filepath.Join(t.Dir, o.Dir)
	}
	if o.Kernel == nil {
		k, err := New(Options{Path: t.Path, Dir: t.Dir, Single: true, Sandbox: t.Sandbox})
		if err != nil {
			return tool.Refuse(err), nil
		}
		defer k.Close()
		o.Kernel = k
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
	out.Images, remarks = res.pictures()
	if clamped != "" {
		remarks = append(remarks, clamped)
	}
	if out.Text = bash.WithRemarks(res.Output, remarks); out.Text == "" {
		out.Text = "(no output)"
	}
	d := details{finish{Finish: res.Finish, Result: res.Outcome.Result, Lost: res.Lost}, res.Code, res.Cancelled, res.Summary.Truncated}
	for i, shown := range res.Displays {
		d.Displays = append(d.Displays, displayed{shown.MIMEType, res.Kept[i]})
	}
	var encodeErr error
	out.Details, encodeErr = json.Marshal(d)
	return out, errors.Join(err, encodeErr)
}

// pictures are the images that a model is shown, as small as it takes them, and a remark for each that it is not.
func (r *Result) pictures() (images []tool.Image, remarks []string) {
	n := 0
	for i, d := range r.Displays {
		if !d.Image() {
			continue
		}
		n++
		p, err := picture.Fit(d.Data, d.MIMEType)
		if err != nil {
			why := err.Error()
			if r.Kept[i] != "" {
				why += "; it is " + r.Kept[i]
			}
			remarks = append(remarks, fmt.Sprintf("[Image %d is not shown: %s]", n, why))
			continue
		}
		if p.Made {
			remarks = append(remarks, fmt.Sprintf("[Image %d of %d x %d pixels is shown with %d x %d]", n, p.Was.X, p.Was.Y, p.Width, p.Height))
		}
		images = append(images, tool.Image{MIMEType: p.MIMEType, Data: p.Data, Original: r.Kept[i]})
	}
	return images, remarks
}
