package read

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Tool is reading as an agent calls it.
type Tool struct {
	// Router opens URLs.
	Router Opener
	// Files allows names of files besides URLs, those of the workspace; nil allows none.
	Files *workspace.Workspace
	// Blobs keeps the originals of pictures that are shown smaller; nil keeps none.
	Blobs blobstore.Store
}

var _ tool.Tool = Tool{}

// Name is "read".
func (Tool) Name() string { return "read" }

// Description says how to address what can be read.
func (t Tool) Description() string {
	files := ""
	if t.Files != nil {
		files = "a file name or "
	}
	return "Shows a page (3,000 lines or 50 KiB, whichever is less) of " + files +
		"a URL: artifact://<n> is the whole output of a tool, agent://<id> the output of a subagent, " +
		"agent://<id>?q=.a[0].b a part of its JSON, session://<id>, blob://sha256/<hex> and job://<n> what they name. " +
		"Text is shown as UTF-8 whatever its encoding is; pictures are shown; a directory or an archive (zip, tar) is listed, and a.zip:dir/x is what is in one, a.zip:b.tar:x in one in it; " +
		"a notebook is its cells with their outputs; of a PDF it is the text, :p7 and :p7-9 are pages of it. " +
		"Select lines at the end of it: :10-20, :10+5, :-50 for the last 50; :raw for the bytes as they are. " +
		"A remark in brackets at the end says what is not shown and what to read next."
}

// Schema describes the input.
func (Tool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "What to read, with an optional selector at its end: artifact://0:3001"},
    "offset": {"type": "integer", "minimum": 1, "description": "First line; not together with lines in path"},
    "limit": {"type": "integer", "minimum": 1, "description": "Number of lines"},
    "numbers": {"type": "boolean", "default": false, "description": "Put the number of each line in front of it, and a tab"}
  },
  "required": ["path"],
  "additionalProperties": false
}`)
}

// Idempotent is true: reading changes nothing.
func (Tool) Idempotent() bool { return true }

// ParallelSafe is true: reading changes nothing.
func (Tool) ParallelSafe() bool { return true }

type input struct {
	Path   string `json:"path"`
	Offset *int64 `json:"offset"`
	Limit  *int64 `json:"limit"`

	Numbers bool `json:"numbers"`
}

func (in input) options() (Options, error) {
	opt := Options{MaxRaw: MaxBytes, Numbers: in.Numbers}
	for _, n := range []struct {
		name string
		from *int64
		to   *int64
	}{{"offset", in.Offset, &opt.Offset}, {"limit", in.Limit, &opt.Limit}} {
		if n.from == nil {
			continue
		}
		if *n.from < 1 {
			return opt, fmt.Errorf("%s must be 1 or more, got %d", n.name, *n.from)
		}
		*n.to = *n.from
	}
	return opt, nil
}

// Call shows a page. What cannot be read is a Result with IsError, for the model
// to correct; only a cancelled context is an error.
func (t Tool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return tool.Result{}, fmt.Errorf("reading: %w", err)
	}
	p, err := t.read(ctx, raw)
	switch {
	case err != nil && ctx.Err() != nil:
		return tool.Result{}, fmt.Errorf("reading: %w", err)
	case err != nil:
		return tool.Result{Text: err.Error(), IsError: true}, nil
	}
	details := p
	details.Text, details.Data, details.Notes, details.Images = "", nil, nil, nil
	about, err := json.Marshal(details)
	if err != nil {
		return tool.Result{}, fmt.Errorf("reading %s: %w", p.URL, err)
	}
	return tool.Result{Text: p.String(), Images: p.Images, Details: about}, nil
}

func (t Tool) read(ctx context.Context, raw json.RawMessage) (Page, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return Page{}, fmt.Errorf("invalid input: %w", err)
	}
	if in.Path == "" {
		return Page{}, errors.New(`path is missing: give a URL such as "artifact://0"`)
	}
	opt, err := in.options()
	if err != nil {
		return Page{}, err
	}
	if t.Files == nil && !internalurl.Is(in.Path) {
		return Page{}, fmt.Errorf("%q is not a URL: only URLs such as artifact://0 can be read", in.Path)
	}
	opt.Files, opt.Blobs = t.Files, t.Blobs
	p, err := Read(ctx, t.Router, in.Path, opt)
	if err != nil {
		return Page{}, err
	}
	p.bound()
	return p, nil
}

// bound cuts what Read delivers whole.
func (p *Page) bound() {
	if len(p.Text) <= MaxBytes {
		return
	}
	all := len(p.Text)
	text := []byte(p.Text[:MaxBytes])
	if i := lastRune(text); !utf8.FullRune(text[i:]) {
		text = text[:i]
	}
	p.Text = string(text)
	p.note("Showing the first %s of %s. Narrow the query for the rest", size(int64(len(text))), size(int64(all)))
}

// String is the page for a model: its text, then the notes in brackets.
func (p Page) String() string {
	if len(p.Notes) == 0 {
		return p.Text
	}
	notes := "[" + strings.Join(p.Notes, ". ") + "]"
	if p.Text == "" {
		return notes
	}
	return strings.TrimSuffix(p.Text, "\n") + "\n\n" + notes
}
