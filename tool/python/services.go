package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/read"
	"github.com/agentrun/agentrun/tool/workspace"
)

// MaxRead is how much agentrun.read gives to code at once, in bytes.
const MaxRead = 32 << 20

// Services answer what code in a cell asks for, with what the caller of the cell may do.
type Services struct {
	// Router opens URLs, and Files the files that may be read; nil is those that this process may.
	Router read.Opener
	Files  *workspace.Workspace
	// Bash is how scripts are run: what of it is set besides the script, its directory, its variables and its timeout. Its
	// Redact is that of artifacts too.
	Bash bash.Options
	// Artifacts is where agentrun.artifact keeps what it is given; nil refuses.
	Artifacts *artifacts.Dir
	// Task is given what agentrun.task is, JSON with the members args and kwargs, and returns a value for JSON. nil
	// refuses.
	Task func(ctx context.Context, args json.RawMessage) (any, error)
}

// Host returns the Host of a run.
func (s *Services) Host(run string) Host {
	return func(ctx context.Context, op string, args json.RawMessage) (any, error) {
		var value any
		var err error
		switch op {
		case "read":
			value, err = s.read(ctx, args)
		case "bash":
			value, err = s.bash(ctx, args)
		case "artifact":
			value, err = s.artifact(ctx, run, args)
		case "task":
			if s.Task == nil {
				return nil, errors.New("agentrun.task: no agents are at work here that could be given a task")
			}
			value, err = s.Task(ctx, args)
		default:
			err = errors.New("there is no such request")
		}
		if err != nil {
			return nil, fmt.Errorf("agentrun.%s: %w", op, err)
		}
		return value, nil
	}
}

// content is what agentrun.read is given.
type content struct {
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func (s *Services) read(ctx context.Context, args json.RawMessage) (any, error) {
	var in struct {
		URL string `json:"url"`
	}
	if err := tool.Decode(args, &in); err != nil {
		return nil, err
	}
	if ref, err := blobref.Parse(in.URL); err == nil { // as results and logs have it
		in.URL = "blob://sha256/" + ref.Hex()
	}
	var b bounded
	if _, err := read.Copy(ctx, &b, s.Router, in.URL, read.Options{Files: s.Files}); err != nil {
		return nil, err
	}
	if text := b.String(); utf8.ValidString(text) {
		return content{Text: &text}, nil
	}
	if b.Len() == 0 {
		return content{Text: new(string)}, nil
	}
	return content{Base64: b.Bytes()}, nil
}

// bounded refuses what is more than MaxRead.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxRead {
		return 0, fmt.Errorf("it has more than the %s that are read at once: name lines of it, as in artifact://3:1-5000", outputsink.FormatBytes(MaxRead))
	}
	return b.Buffer.Write(p)
}

// ranScript is what agentrun.bash returns.
type ranScript struct {
	Output   string  `json:"output"`
	ExitCode int     `json:"exitCode"`
	TimedOut bool    `json:"timedOut"`
	Artifact *string `json:"artifact"`
}

func (s *Services) bash(ctx context.Context, args json.RawMessage) (any, error) {
	var in struct {
		Script  string            `json:"script"`
		Timeout *float64          `json:"timeout"`
		Dir     string            `json:"cwd"`
		Env     map[string]string `json:"env"`
	}
	if err := tool.Decode(args, &in); err != nil {
		return nil, err
	}
	o := s.Bash
	o.Script, o.Runs, o.Dir, o.Timeout = in.Script, "", in.Dir, bash.DefaultTimeout
	if in.Timeout != nil {
		if *in.Timeout < 0 || *in.Timeout > bash.MaxTimeout.Seconds() {
			return nil, fmt.Errorf("a timeout of %g s: give one of 0 (none) to %g s", *in.Timeout, bash.MaxTimeout.Seconds())
		}
		o.Timeout = time.Duration(*in.Timeout * float64(time.Second))
	}
	o.Env = slices.Clone(o.Env)
	for _, k := range slices.Sorted(maps.Keys(in.Env)) {
		o.Env = append(o.Env, k+"="+in.Env[k])
	}
	res, err := bash.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	r := ranScript{Output: res.Output, ExitCode: res.Code, TimedOut: res.TimedOut}
	if res.Summary.Artifact != "" {
		r.Artifact = &res.Summary.Artifact
	}
	return r, nil
}

func (s *Services) artifact(ctx context.Context, run string, args json.RawMessage) (any, error) {
	var in struct {
		Name string `json:"name"`
		Data []byte `json:"base64"`
	}
	if err := tool.Decode(args, &in); err != nil {
		return nil, err
	}
	if s.Artifacts == nil {
		return nil, errors.New("the session can have no artifacts")
	}
	o := outputsink.Options{MaxBytes: 1, Spill: true, Open: func() (outputsink.File, error) {
		return s.Artifacts.Create(ctx, in.Name, artifacts.Provenance{Run: run, Call: tool.OriginOf(ctx)})
	}}
	if r := s.Bash.Redact; r != nil {
		if _, n := r.Text([]byte(in.Name)); n > 0 {
			return nil, errors.New("nothing was kept: the name has a secret in it, and would be that of a file; give another one")
		}
		o.Redact = func() outputsink.Redactor { return r.Stream() }
	}
	sink := outputsink.New(o)
	_, werr := sink.Stdout().Write(in.Data)
	sum, err := sink.Close()
	if err = errors.Join(werr, err); err != nil {
		return nil, fmt.Errorf("keeping %q: %w", in.Name, err)
	}
	if sum.ArtifactState.Kind != outputsink.ArtifactComplete {
		return nil, fmt.Errorf("keeping %q: it %v", in.Name, sum.ArtifactState)
	}
	return struct {
		URL string `json:"url"`
	}{sum.Artifact}, nil
}
