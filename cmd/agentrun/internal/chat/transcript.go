package chat

import (
	"strings"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

// Kind is what a part of a conversation is.
type Kind int

// Kinds of items.
const (
	Said    Kind = iota // by the person
	Answer              // of the agent
	Thought             // of the model, before it answers
	Call                // a call in one row
	Remark              // of the program
)

// Item is a part of a conversation. Its text is made harmless before it is shown.
type Item struct {
	Kind Kind
	Text string
	Row  runview.Row // of a call
}

// part is an item as it is shown.
type part struct {
	kind Kind
	row  runview.Row
	text strings.Builder // of what is not a call
	line int             // where in text the last line begins
	rows []string        // of the lines before that, at the width of the transcript
	code []bool          // which of them are between fences, of an answer
	in   bool            // the last line is
}

// maxParts is how many parts are kept to scroll back to; the session has all.
const maxParts = 4000

// transcript is the conversation on the screen.
type transcript struct {
	parts   []*part
	dropped bool
	width   int
	scroll  int // rows that the last one is below the screen
	clean   runview.Text
	open    bool // the last part is an answer that goes on
}

// resize breaks everything anew.
func (t *transcript) resize(width int) {
	if width == t.width {
		return
	}
	t.width = width
	for _, p := range t.parts {
		p.rows, p.line, p.code, p.in = nil, 0, nil, false
		t.lay(p)
	}
}

// add adds an item.
func (t *transcript) add(i Item) {
	t.endAnswer()
	p := &part{kind: i.Kind, row: i.Row}
	p.text.WriteString(runview.CleanLines(strings.TrimRight(i.Text, "\n")))
	t.append(p)
}

func (t *transcript) append(p *part) {
	t.lay(p)
	t.parts = append(t.parts, p)
	t.keep(len(t.of(p)))
	if len(t.parts) > maxParts {
		t.parts, t.dropped = t.parts[len(t.parts)-maxParts*9/10:], true
	}
}

// keep leaves the screen where it is when rows come below it.
func (t *transcript) keep(more int) {
	if t.scroll > 0 {
		t.scroll += more
	}
}

// answer adds a piece of an answer, or of the thoughts before it, as it comes.
func (t *transcript) answer(kind Kind, piece string) {
	if t.open && t.parts[len(t.parts)-1].kind != kind {
		t.endAnswer()
	}
	piece = t.clean.Add(piece)
	if piece == "" {
		return
	}
	if !t.open {
		t.append(&part{kind: kind})
		t.open = true
	}
	t.grow(piece)
}

func (t *transcript) grow(piece string) {
	p := t.parts[len(t.parts)-1]
	before := len(t.of(p))
	p.text.WriteString(piece)
	t.lay(p)
	t.keep(len(t.of(p)) - before)
}

// endAnswer ends the answer that goes on.
func (t *transcript) endAnswer() {
	if rest := t.clean.End(); rest != "" && t.open {
		t.grow(rest)
	}
	t.open = false
}

// lay breaks the lines of a part that have ended.
func (t *transcript) lay(p *part) {
	for t.width > 0 {
		text := p.text.String()[p.line:]
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			return
		}
		fence := p.kind == Answer && isFence(text[:i])
		for _, row := range runview.WrapWords(text[:i], t.room(p)) {
			p.rows, p.code = append(p.rows, row), append(p.code, p.in || fence)
		}
		p.in = p.in != fence
		p.line += i + 1
	}
}

// room is how many columns the text of a part has.
func (t *transcript) room(p *part) int {
	if p.kind == Said {
		return t.width - 2
	}
	return t.width
}

// of is a part as rows without styles.
func (t *transcript) of(p *part) []string {
	if t.width <= 0 {
		return nil
	}
	if p.row != nil {
		return []string{""}
	}
	last := strings.TrimRight(p.text.String()[p.line:], "\n")
	if last == "" && len(p.rows) > 0 {
		return p.rows
	}
	return append(p.rows[:len(p.rows):len(p.rows)], runview.WrapWords(last, t.room(p))...)
}

// view is the rows that are on the screen, height at most, and whether there are more below.
func (t *transcript) view(height int, coloured bool) (rows []string, below bool) {
	need := height + t.scroll
	var all []string // the last one first
	for i := len(t.parts) - 1; i >= 0 && len(all) < need; i-- {
		p := t.parts[i]
		for j, rows := len(t.of(p))-1, t.of(p); j >= 0; j-- {
			row := p.style(rows[j], j == 0, t.width)
			if p.kind == Answer && coloured { // without styles its marks say what they say
				row = markdown(rows[j], p.within(j))
			}
			all = append(all, row.Render(coloured))
		}
		if p.kind == Said && i > 0 {
			all = append(all, "")
		}
	}
	if len(all) < need { // everything is on the screen, or above its beginning
		if t.dropped {
			all = append(all, "(what is before is in the session: agentrun sessions show)")
		}
		t.scroll = max(0, min(t.scroll, len(all)-height))
	}
	for i := min(len(all), height+t.scroll) - 1; i >= t.scroll; i-- {
		rows = append(rows, all[i])
	}
	return rows, t.scroll > 0
}

func (p *part) style(row string, first bool, width int) runview.Row {
	switch {
	case p.row != nil:
		return p.row.Fit(width)
	case p.kind == Said && first:
		return runview.Row{{Text: "› ", Style: runview.Cyan}, {Text: row, Style: runview.Bold}}
	case p.kind == Said:
		return runview.Row{{Text: "  "}, {Text: row, Style: runview.Bold}}
	case p.kind == Thought:
		return runview.Row{{Text: row, Style: runview.Faint}}
	case p.kind == Remark:
		return runview.Row{{Text: row, Style: runview.Amber}}
	}
	return runview.Row{{Text: row}}
}
