// Package transcript writes a session in a form to be read: as Markdown, as one HTML
// page, or as JSON.
//
// # What is promised
//
//   - HTML is one file that asks for nothing from anywhere: style and images are in
//     it, there is no script, and a content security policy says so to the browser.
//     Tool calls, their results, reasoning, other branches and artifacts open on a
//     click.
//   - Whatever the session holds is text to a reader. HTML in it is shown and not
//     obeyed; links are made of http, https and mailto only; images that lie elsewhere
//     are named and not fetched.
//   - HTML holds everything: all branches, all output, all artifacts, the outputs of
//     subagents. Of a single output or artifact above [DefaultMaxArtifact] it has the
//     beginning; the logs of subagents are sessions of their own.
//   - What is not shown is said, with exact counts and the command that shows it: the
//     rest of long output, of artifacts, an image that is not there.
//   - JSON has everything of the log: every entry of every branch, with images and long
//     strings put back.
//   - Memory is bounded by the largest entry and the number of entries. Nothing in the
//     home changes, but line indexes that can be rebuilt.
//
// Markdown and HTML tell the active branch, from the root to the last entry. HTML has
// the others behind it, closed; Markdown lists them. In Markdown, text of the session
// that is Markdown stays it.
package transcript

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

// Format is a form of a transcript.
type Format string

// The forms.
const (
	Markdown Format = "md"
	HTML     Format = "html"
	JSON     Format = "json"
)

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case Markdown, HTML, JSON:
		return f, nil
	}
	return "", fmt.Errorf("%.40q is no format: md, html and json are", name)
}

// Defaults of Options, in bytes.
const (
	// DefaultMaxOutput is for Markdown, which has no way to fold it away.
	DefaultMaxOutput = 128 << 10
	// DefaultMaxArtifact is for HTML. Browsers lay out 4 MiB of text in less than a
	// second, once it is opened.
	DefaultMaxArtifact = 4 << 20
)

// Options say how much is shown. The zero value is right for programs. JSON has no
// such limits.
type Options struct {
	// MaxOutput is of one output of a tool or command; 0 means DefaultMaxOutput, in HTML
	// DefaultMaxArtifact.
	MaxOutput int
	// MaxArtifact is of one artifact or agent output, in HTML; 0 means
	// DefaultMaxArtifact.
	MaxArtifact int
}

// Summary is what a transcript is made of.
type Summary struct {
	Entries   int // of the log, all branches
	Artifacts int // artifact://<n> that there are
	Images    int // shown, or put back in JSON
	Missing   int // images and long strings that could not be put back
	Cut       int // outputs and artifacts of which a part is not shown
}

// Write writes the session s to w. dir is its artifact directory, nil for a log that
// has none.
func Write(ctx context.Context, w io.Writer, f Format, s *session.Session, dir *artifacts.Dir, o Options) (sum Summary, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing session %.100s as %s: %w", s.ID(), f, err)
		}
	}()
	if o.MaxOutput <= 0 {
		o.MaxOutput = DefaultMaxOutput
		if f == HTML {
			o.MaxOutput = DefaultMaxArtifact
		}
	}
	if o.MaxArtifact <= 0 {
		o.MaxArtifact = DefaultMaxArtifact
	}
	r, err := newReader(ctx, s, dir, o)
	if err != nil {
		return Summary{}, err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	switch f {
	case JSON:
		err = writeJSON(ctx, out, r)
	case HTML:
		err = writeHTML(ctx, out, r)
	case Markdown:
		err = writeMarkdown(ctx, out, r)
	default:
		_, err = ParseFormat(string(f))
	}
	if err == nil {
		err = out.Flush()
	}
	return r.sum, err
}
