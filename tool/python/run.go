package python

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// language is in the names of artifacts, 0.python.log, and in the log.
const language = "python"

// Blobs keeps what cells display. *session.Session is one.
type Blobs interface {
	PutBlob(ctx context.Context, r io.ReadSeeker) (blobref.Ref, int64, error)
}

// RunOptions say what to run and where to keep what comes of it. Of the Options of bash.Run all go but Argv, Stdin,
// StdinPath, Shell, Language and Tree; Script is the code.
type RunOptions struct {
	bash.Options
	// Kernel runs the code.
	Kernel Runner
	// Host answers what the code asks for; nil refuses.
	Host func(run string) Host
	// Blobs is where displays go; nil keeps images in the Result alone.
	Blobs Blobs
}

// Result is what came of a run.
type Result struct {
	bash.Result
	Outcome
	// Images are references of what the cell displayed, in order: image.Image of Displays, those that could not be kept left out.
	Images []string
	// Kept has the reference of each of Displays, "" where it was not kept.
	Kept []string
}

// finish is the details member of the message that a run ends with: that of a shell's, and more.
type finish struct {
	bash.Finish
	Result   *string     `json:"result,omitempty"`
	Displays []displayed `json:"displays,omitempty"`
	Lost     *string     `json:"lost,omitempty"` // why the kernel was gone behind it
}

type displayed struct {
	MIMEType string `json:"mimeType"`
	Blob     string `json:"blob,omitempty"`
}

// Run runs one cell, as bash.Run does a script: its start is in the log before it runs, and its end, a pythonExecution
// message, however it ended. How it ended is in the Result, the error is about everything else.
func Run(ctx context.Context, o RunOptions) (Result, error) {
	if o.Kernel == nil || len(o.Argv) > 0 {
		return Result{}, errors.New("running a cell: give a kernel and code")
	}
	if err := CheckCode(o.Script); err != nil {
		return Result{}, fmt.Errorf("running a cell: %w", err)
	}
	r := &run{RunOptions: o, ctx: context.WithoutCancel(ctx)}
	b := o.Options
	b.Shell, b.Language = r, &bash.Language{Name: language, Message: r.message}
	res, err := bash.Run(ctx, b)
	r.res.Result = res
	return r.res, err
}

// run is one on its way. It is the Runner of bash.Run.
type run struct {
	RunOptions
	ctx context.Context
	res Result
}

// ShellName is the name of the kernel, for the log.
func (r *run) ShellName() string {
	if named, ok := r.Kernel.(interface{ ShellName() string }); ok {
		return named.ShellName()
	}
	return ""
}

// Directory is where the kernel is.
func (r *run) Directory() string {
	if at, ok := r.Kernel.(interface{ Directory() string }); ok {
		return at.Directory()
	}
	return ""
}

// RunScript implements bash.Runner.
func (r *run) RunScript(ctx context.Context, s *bash.Script) (bash.Exit, error) {
	c := &Cell{Script: *s}
	if r.Host != nil {
		c.Host = r.Host(s.Run)
	}
	exit, outcome, err := r.Kernel.RunCell(ctx, c)
	if err != nil && exit.Code == bash.CodeFailure {
		start := bash.NotStarted(language, err)
		exit.Start, exit.Code = start, start.Code
		return exit, nil // an outcome, which the log is told
	}
	if r.Redact != nil {
		outcome.redact(r.Redact)
	}
	r.res.Outcome = outcome
	r.res.Kept = make([]string, len(outcome.Displays))
	if r.Blobs == nil {
		return exit, err
	}
	for i, d := range outcome.Displays {
		ref, _, err := r.Blobs.PutBlob(r.ctx, bytes.NewReader(d.Data))
		if err != nil {
			exit.Notes = append(exit.Notes, fmt.Sprintf("What the cell displayed as %s was not kept: %v", d.MIMEType, err))
			continue
		}
		r.res.Kept[i] = ref.String()
		if d.Image() {
			r.res.Images = append(r.res.Images, ref.String())
		}
	}
	return exit, err
}

// message is what the log has of the end.
func (r *run) message(m entry.BashExecutionMessage, f bash.Finish) (entry.Body, error) {
	d := finish{Finish: f, Result: r.res.Outcome.Result, Lost: r.res.Lost}
	p := entry.PythonExecutionMessage{
		Code: m.Command, Output: m.Output, ExitCode: m.ExitCode, Cancelled: m.Cancelled, Truncated: m.Truncated, Timestamp: m.Timestamp,
	}
	for i, shown := range r.res.Displays {
		if r.res.Kept[i] == "" {
			continue // the quota, or the disk, does not want it in the log either
		}
		d.Displays = append(d.Displays, displayed{shown.MIMEType, r.res.Kept[i]})
		if shown.Image() {
			p.Images = append(p.Images, entry.ImageBlock{MIMEType: shown.MIMEType, Data: base64.StdEncoding.EncodeToString(shown.Data)})
		}
	}
	var err error
	p.Details, err = json.Marshal(d)
	return p, err
}
