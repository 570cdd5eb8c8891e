// Package write makes text files, and gives them a new content.
//
// # Promises
//
//   - A file that is there keeps its form, if the new text is not of another one by itself:
//     encoding, byte order mark, carriage returns at the ends of lines, and a newline
//     at its end. [Request.Exact] writes the very bytes instead. A new file has the
//     very bytes. [Result.Kept] says what was done for that.
//   - How files are changed, and when that is refused, is promised by tool/workspace.
//   - The result is a unified diff of what the file held before, bounded as all output is;
//     all of it is in an artifact when it is larger than the bounds. Of a new file there
//     is no diff.
//
// All functions are safe for concurrent use; calls that change one file wait for each
// other.
package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/textform"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Request is what a file is to hold.
type Request struct {
	Path    string
	Content []byte
	// Exact writes the bytes as they are, also where the file had another form.
	Exact bool
}

// Result is what was done.
type Result struct {
	Path    string `json:"path"` // without symbolic links
	Made    bool   `json:"made"` // it was not there before
	Same    bool   `json:"same"` // it held that already
	Bytes   int64  `json:"bytes"`
	Added   int    `json:"added"` // lines
	Removed int    `json:"removed"`
	// Kept is what the content got because the file had it: "CRLF", "BOM", "final newline",
	// or the name of an encoding.
	Kept []string           `json:"kept,omitempty"`
	Diff outputsink.Summary `json:"-"`
}

// Do writes a file. An error that is a *workspace.RecordError comes with a result, for
// the file is written.
func Do(ctx context.Context, w *workspace.Workspace, r Request, o edit.Output) (Result, error) {
	var res Result
	var before, after []byte
	text := false // the diff is of texts
	changed, err := w.Change(ctx, r.Path, func(old workspace.Old) ([]byte, error) {
		res = Result{}
		before, after, text = old.Data, r.Content, utf8.Valid(r.Content) && bytes.IndexByte(r.Content, 0) < 0
		if !old.Exists {
			return r.Content, nil
		}
		was, form, err := textform.Decode(old.Data)
		if text = text && err == nil; !text || r.Exact {
			return r.Content, nil
		}
		// It may bring a form of its own along.
		now, own, err := textform.Decode(r.Content)
		if err != nil || own.Encoding != textform.UTF8 || own.BOM && form.Encoding != textform.UTF8 {
			text = false
			return r.Content, nil
		}
		before = was
		after = res.keep(now, own, form)
		if own.BOM && !form.BOM {
			form.BOM = true
		}
		out, err := form.Encode(after)
		if err != nil {
			return nil, fmt.Errorf("%s was not written: %w", r.Path, err)
		}
		return out, nil
	})
	var record *workspace.RecordError
	if err != nil && !errors.As(err, &record) {
		return Result{}, err
	}
	res.Path, res.Made, res.Same, res.Bytes = changed.Path, changed.Made, changed.Same, int64(len(changed.New))
	if res.Made || res.Same || !text {
		return res, err
	}
	var derr error
	name := o.Name(w, changed.Path)
	res.Diff, res.Added, res.Removed, derr = o.Diff(ctx, "write", name, name, before, after, nil)
	return res, errors.Join(err, derr)
}

// keep gives a text the form that the file has.
func (r *Result) keep(text []byte, own, form textform.Form) []byte {
	if form.Encoding != textform.UTF8 {
		r.Kept = append(r.Kept, form.Name())
	}
	if form.BOM && !own.BOM {
		r.Kept = append(r.Kept, "BOM")
	}
	if form.FinalNewline && !own.FinalNewline && len(text) > 0 {
		r.Kept = append(r.Kept, "final newline")
		text = append(text[:len(text):len(text)], '\n')
	}
	if form.CRLF && !own.CRLF && !own.Mixed && bytes.IndexByte(text, '\n') >= 0 {
		r.Kept = append(r.Kept, "CRLF")
		text = textform.CRLF(text)
	}
	return text
}
