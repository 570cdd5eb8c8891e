// Package runview is what a person sees of a run at a terminal.
//
// [Tree] is the state of the run's agents, made of their events alone and without a terminal: events go in, rows come
// out. [Live] puts it on a terminal, below the text of the agent and a line for each call, and draws it anew in place.
//
// Whatever models, tools and files say is made harmless first, by [Clean] and [Text]: no control sequence reaches the
// terminal that this package did not write.
package runview

import (
	"strings"

	"github.com/clipperhouse/displaywidth"

	"github.com/agentrun/agentrun/outputsink"
)

// Style is an SGR sequence, or nothing.
type Style string

// Styles of spans.
const (
	Plain Style = ""
	Bold  Style = "1"
	Faint Style = "2"
	Red   Style = "31"
	Green Style = "32"
	Amber Style = "33"
	Cyan  Style = "36"
)

// Span is a piece of a row.
type Span struct {
	Text  string
	Style Style
}

// Row is one line of a terminal.
type Row []Span

// String is the row without styles.
func (r Row) String() string { return r.Render(false) }

// Render is the row for a terminal, with colours or without.
func (r Row) Render(coloured bool) string {
	var b strings.Builder
	for _, s := range r {
		if coloured && s.Style != Plain && s.Text != "" {
			b.WriteString("\x1b[" + string(s.Style) + "m" + s.Text + "\x1b[0m")
		} else {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}

// Width is how many columns the row takes.
func (r Row) Width() int {
	n := 0
	for _, s := range r {
		n += Width(s.Text)
	}
	return n
}

// Fit cuts the row so that it takes at most width columns, with … where something is missing.
func (r Row) Fit(width int) Row {
	if r.Width() <= width {
		return r
	}
	if width <= 0 {
		return nil
	}
	var out Row
	left := width - 1
	for _, s := range r {
		if w := Width(s.Text); w <= left {
			out, left = append(out, s), left-w
			continue
		}
		return append(out, Span{head(s.Text, left) + "…", s.Style})
	}
	return out
}

// Width is how many columns a text of one line takes.
func Width(s string) int { return displaywidth.String(s) }

// head is the beginning of s that takes at most width columns.
func head(s string, width int) string {
	at := 0
	for g := displaywidth.StringGraphemes(s); g.Next(); at += len(g.Value()) {
		if width -= g.Width(); width < 0 {
			return s[:at]
		}
	}
	return s
}

// maxBytes is how many bytes a column may have on average: characters without a width are no end.
const maxBytes = 16

// Wrap breaks a text of one line into rows of at most width columns. It has at least one row.
func Wrap(s string, width int) []string {
	width = max(width, 2) // the widest character takes two
	var rows []string
	begin, at, used := 0, 0, 0
	for g := displaywidth.StringGraphemes(s); g.Next(); at += len(g.Value()) {
		if at > begin && (used+g.Width() > width || at+len(g.Value())-begin > maxBytes*width) {
			rows = append(rows, s[begin:at])
			begin, used = at, 0
		}
		used += g.Width()
	}
	return append(rows, s[begin:])
}

// WrapWords is Wrap, but breaks at spaces where there are any. The space at a break is left out.
func WrapWords(s string, width int) []string {
	width = max(width, 2)
	var rows []string
	for {
		first := Wrap(s, width)[0]
		if len(first) == len(s) {
			return append(rows, s)
		}
		cut, rest := first, s[len(first):]
		if rest[0] == ' ' {
			rest = rest[1:]
		} else if i := strings.LastIndexByte(first, ' '); i > len(first)/3 {
			cut, rest = first[:i], s[i+1:]
		}
		rows = append(rows, cut)
		s = rest
	}
}

// Clean makes a text one line that does nothing to a terminal: newlines and tabs are spaces, control sequences are left
// out.
func Clean(s string) string {
	if i := strings.IndexFunc(s, suspect); i < 0 {
		return s
	}
	var text Text
	s = text.Add(s) + text.End()
	return strings.Join(strings.Fields(s), " ")
}

// CleanLines is Clean of a text of several lines: it keeps newlines and makes tabs spaces.
func CleanLines(s string) string {
	if i := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && suspect(r) }); i < 0 {
		return s
	}
	var text Text
	return text.Add(s) + text.End()
}

// suspect reports whether a character may do more to a terminal than stand there.
func suspect(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r == '\ufffd' || turns(r) }

// turns reports whether a character changes the direction in which others are written, or ends a line.
func turns(r rune) bool {
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u2028' || r == '\u2029' || r == '\u200e' || r == '\u200f' || r == '\u061c'
}

// Text makes a stream harmless: control sequences are left out also where they are cut in two. The zero Text is ready.
type Text struct {
	clean outputsink.Sanitizer
	seen  string // what was returned of the unfinished line
}

// Add returns what a piece adds to the text. Of a line that goes back to its beginning the rest is a line of its own.
func (t *Text) Add(piece string) string {
	var b strings.Builder
	t.more(&b, string(t.clean.Append(nil, []byte(piece))), false)
	t.more(&b, string(t.clean.Pending()), true)
	return b.String()
}

// End ends the stream.
func (t *Text) End() string {
	var b strings.Builder
	t.more(&b, string(t.clean.Flush(nil)), false)
	return b.String()
}

// more adds what of a text was not returned yet; held is one that comes again.
func (t *Text) more(b *strings.Builder, text string, held bool) {
	if text == "" {
		return
	}
	fresh, goesOn := strings.CutPrefix(text, t.seen)
	if !goesOn {
		b.WriteByte('\n')
	}
	if t.seen = ""; held {
		t.seen = text
	}
	for _, r := range fresh {
		switch {
		case r == '\t':
			b.WriteString("    ")
		case turns(r):
			b.WriteRune('\ufffd')
		default:
			b.WriteRune(r)
		}
	}
}
