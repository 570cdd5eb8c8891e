// Package edit changes parts of text files: exact texts for others, or by a patch.
//
// # Promises
//
//   - All edits of a call are made, in one step, or none: [Apply] refuses a text that is
//     not there, one that is there more than once unless all are asked for, and two edits
//     of one place.
//   - Nothing else of the file changes: not its mode, encoding, byte order mark, line
//     ends, nor whether its last line ends. An edit is given in UTF-8 with newlines,
//     whatever the file has.
//   - A patch goes where its lines are, also when they have moved or a few lines of
//     context differ, and the result says by how much.
//   - How files are changed, and when that is refused, is promised by tool/workspace.
//   - The result is a unified diff, bounded as all output is; all of it is in an artifact
//     when it is larger than the bounds.
//
// All functions are safe for concurrent use; calls that change one file wait for each
// other.
package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/textdiff"
	"github.com/agentrun/agentrun/internal/textform"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Request is what to do to a file: edits, or a patch.
type Request struct {
	Path  string
	Edits []Edit
	Patch string // a unified diff of that one file
}

// Result is what was done.
type Result struct {
	Path     string             `json:"path"`            // without symbolic links
	Edits    int                `json:"edits"`           // exchanges that were made, or hunks
	Hunks    []textdiff.Applied `json:"hunks,omitempty"` // where those of a patch went
	Added    int                `json:"added"`           // lines
	Removed  int                `json:"removed"`
	Encoding string             `json:"encoding"`
	Diff     outputsink.Summary `json:"-"`
}

// Do changes a file. An error that is a *workspace.RecordError comes with a result, for
// the file is changed.
func Do(ctx context.Context, w *workspace.Workspace, r Request, o Output) (Result, error) {
	var patch textdiff.Patch
	var (
		res           Result
		before, after []byte
		spans         []textdiff.Span
	)
	switch {
	case (r.Patch != "") == (len(r.Edits) > 0):
		return res, errors.New("give either edits or a patch")
	case r.Patch != "":
		var err error
		if patch, err = textdiff.ParsePatch([]byte(r.Patch)); err != nil {
			return res, err
		}
	}
	changed, err := w.Change(ctx, r.Path, func(old workspace.Old) ([]byte, error) {
		res = Result{}
		if !old.Exists {
			return nil, fmt.Errorf("%s is not there: name a file that is, or make it with the tool write", r.Path)
		}
		text, form, err := textform.Decode(old.Data)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be edited: %w", r.Path, err)
		}
		var out []byte
		if r.Patch != "" {
			out, spans, res.Hunks, err = patch.Apply(text)
			res.Edits = len(res.Hunks)
		} else {
			out, spans, res.Edits, err = Apply(text, r.Edits)
		}
		if err != nil {
			return nil, fmt.Errorf("%s was not changed: %w", r.Path, err)
		}
		before, after, res.Encoding = text, out, form.Name()
		if out, err = form.Encode(out); err != nil {
			return nil, fmt.Errorf("%s was not changed: %w", r.Path, err)
		}
		return out, nil
	})
	var record *workspace.RecordError
	if err != nil && !errors.As(err, &record) {
		return Result{}, err
	}
	res.Path = changed.Path
	name := o.Name(w, changed.Path)
	if changed.Same {
		return res, fmt.Errorf("%s stays as it is: the edits change nothing", name)
	}
	var derr error
	res.Diff, res.Added, res.Removed, derr = o.Diff(ctx, "edit", name, name, before, after, spans)
	return res, errors.Join(err, derr)
}

// Output is where a diff goes.
type Output struct {
	// Artifacts is where one goes that is more than a view; nil keeps the view alone.
	Artifacts *artifacts.Dir
	// Sink bounds the view; nil means outputsink.DefaultOptions(). Its Open is not used.
	Sink *outputsink.Options
}

// Name is a path as people know it: within the directory where relative paths begin it is
// relative.
func (Output) Name(w *workspace.Workspace, path string) string {
	if rel, err := filepath.Rel(w.Dir(), path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// Diff writes the difference of two texts to a sink, for an artifact named for a tool.
func (o Output) Diff(ctx context.Context, tool, oldName, newName string, before, after []byte, spans []textdiff.Span) (outputsink.Summary, int, int, error) {
	options := outputsink.DefaultOptions()
	if o.Sink != nil {
		options = *o.Sink
	}
	options.Open = nil
	if o.Artifacts != nil {
		options.Open = func() (outputsink.File, error) {
			// The file is changed already, so its diff is kept whatever becomes of the call.
			return o.Artifacts.Create(context.WithoutCancel(ctx), tool, artifacts.Provenance{})
		}
	}
	sink := outputsink.New(options)
	added, removed, err := textdiff.Write(sink.Stdout(), oldName, newName, before, after, spans)
	sum, _ := sink.Close() // its error is what ArtifactState tells
	return sum, added, removed, err
}

// remarks tell what the diff does not.
func (r *Result) remarks() []byte {
	var b bytes.Buffer
	for i, h := range r.Hunks {
		switch {
		case h.Fuzz > 0:
			fmt.Fprintf(&b, "[Hunk %d went to line %d, %+d from where it said, with %d lines of context that differ: look whether it is right]\n", i+1, h.Line, h.Offset, h.Fuzz)
		case h.Offset != 0:
			fmt.Fprintf(&b, "[Hunk %d went to line %d, %+d from where it said]\n", i+1, h.Line, h.Offset)
		}
	}
	return bytes.TrimSuffix(b.Bytes(), newline)
}

// details are for programs.
type details struct {
	Result
	DiffBytes int64 `json:"diffBytes"`
	DiffLines int64 `json:"diffLines"`
	Truncated bool  `json:"truncated"`
}

// details has the members path, edits, hunks, added, removed, encoding, diffBytes,
// diffLines and truncated.
func (r Result) details() (json.RawMessage, error) {
	return json.Marshal(details{r, r.Diff.TotalBytes, r.Diff.TotalLines, r.Diff.Truncated})
}
