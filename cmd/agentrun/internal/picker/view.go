package picker

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/clipperhouse/displaywidth"

	"github.com/agentrun/agentrun/outputsink"
)

// cells says how many columns a text takes.
var cells displaywidth.Options

// styled is cells for a text with SGR sequences.
var styled = displaywidth.Options{ControlSequences: true}

// clean makes one line of a text from a file: runs of white space become a space, and
// what would do something to a terminal, or turn the direction of what follows, is
// made visible.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == unicode.ReplacementChar:
			return unicode.ReplacementChar
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// fit is s in exactly n columns.
func fit(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if cells.String(s) > n {
		s = cells.TruncateString(s, n, "…")
	}
	return s + strings.Repeat(" ", max(n-cells.String(s), 0))
}

// fitEnd is fit for a text whose end tells more than its beginning.
func fitEnd(s string, n int) string {
	if cells.String(s) <= n {
		return fit(s, n)
	}
	rest := s
	for g := cells.StringGraphemes(s); g.Next(); {
		if rest = rest[len(g.Value()):]; cells.String(rest) <= n-1 {
			return fit("…"+rest, n)
		}
	}
	return fit("", n)
}

// wrap breaks a line at spaces into at most most lines of n columns.
func wrap(s string, n, most int) []string {
	var lines []string
	for s != "" && len(lines) < most {
		if cells.String(s) <= n || len(lines) == most-1 {
			return append(lines, strings.TrimRight(fit(s, n), " "))
		}
		line := cells.TruncateString(s, n, "")
		if line == "" { // a character wider than the screen
			return lines
		}
		if cut := strings.LastIndexByte(line, ' '); cut > len(line)/2 && s[len(line)] != ' ' {
			line = line[:cut]
		}
		lines = append(lines, strings.TrimRight(line, " "))
		s = strings.TrimLeft(s[len(line):], " ")
	}
	return lines
}

// SGR sequences that work on dark and light grounds alike.
const (
	sgrBold    = "1"
	sgrFaint   = "2"
	sgrReverse = "7"
)

func (m *Model) style(sgr, s string) string {
	if m.Plain || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

// layout is how many lines each part of the screen has.
type layout struct{ list, preview int }

func (m *Model) layout() layout {
	rest := m.height - 1 - len(m.footer()) // without the heading
	if rest >= 10 {
		preview := rest / 2
		return layout{list: rest - preview, preview: preview}
	}
	return layout{list: max(rest, 0)}
}

// Lines draws the screen: as many lines as it is high at most, none wider.
func (m *Model) Lines() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	var lines []string
	if m.mode == helping {
		for _, l := range help {
			lines = append(lines, strings.TrimRight(fit(l, m.width), " "))
		}
	} else {
		l := m.layout()
		lines = append([]string{m.heading()}, m.list(l.list)...)
		if l.preview > 0 {
			lines = append(lines, m.previewLines(l.preview)...)
		}
		lines = append(lines, m.footer()...)
	}
	lines = lines[:min(len(lines), m.height)]
	for i, line := range lines { // parts that do not shrink to a few columns
		if styled.String(line) > m.width {
			lines[i] = styled.TruncateString(line, m.width, "")
		}
	}
	return lines
}

var help = []string{
	"up, down, k, j        one session up, down",
	"page up, page down    a screen",
	"home, end             the first, the last",
	"/                     filter: words of title, first words, id, directory, and of",
	"                      the text where agentrun search has indexed it;",
	"                      enter keeps it, esc clears it",
	"a, tab                sessions of every directory, of this one",
	"enter                 leave, and tell how to go on with the session",
	"r                     rename",
	"f                     fork",
	"c                     compress",
	"e                     export to a file; *.html, *.md and *.json are to be read",
	"t                     leave, and draw the entries as a tree",
	"d                     move to the trash; asks",
	"q, esc                leave",
	"",
	"any key: back to the list",
}

func (m *Model) heading() string {
	scope := "Sessions of this directory"
	if m.all {
		scope = "Sessions of every directory"
	}
	at := 0
	if len(m.shown) > 0 {
		at = m.at() + 1
	}
	head := fmt.Sprintf("%s  %d/%d", scope, at, len(m.shown))
	if m.width < 48 {
		head = fmt.Sprintf("%s  %d/%d", map[bool]string{false: "This directory", true: "All sessions"}[m.all], at, len(m.shown))
	}
	if m.filter != "" && m.mode != filtering {
		head += "  filter: " + m.filter
	}
	return m.style(sgrBold, strings.TrimRight(fit(head, m.width), " "))
}

// list draws n lines of sessions.
func (m *Model) list(n int) []string {
	at := max(m.at(), 0)
	m.top = max(min(m.top, at, len(m.shown)-n), at-n+1, 0)
	var lines []string
	for i := m.top; i < len(m.shown) && len(lines) < n; i++ {
		lines = append(lines, m.row(m.shown[i], i == at))
	}
	if len(m.shown) == 0 && n > 0 {
		lines = append(lines, strings.TrimRight(fit("  "+m.nothing(), m.width), " "))
	}
	for len(lines) < n {
		lines = append(lines, "")
	}
	return lines
}

// nothing says why the list is empty.
func (m *Model) nothing() string {
	switch {
	case !m.loaded:
		return "reading the sessions"
	case m.filter != "":
		return "no session has these words; esc clears the filter"
	case len(m.items) > 0:
		return "this directory has no sessions; a shows those of every directory"
	}
	return "there are no sessions: agentrun exec starts one"
}

// row is one session: a mark, its name, its directory, age and size.
func (m *Model) row(i Item, selected bool) string {
	mark := "  "
	if selected {
		mark = "> "
	}
	right := ""
	if m.width >= 20 {
		right = fmt.Sprintf(" %4s", m.age(i.Modified))
	}
	if m.width >= 50 {
		right += fmt.Sprintf("  %9s", outputsink.FormatBytes(i.Size))
	}
	if m.all && m.width >= 70 {
		right = "  " + fitEnd(m.directory(i), m.width/4) + " " + right
	}
	name := fit(i.name(), m.width-len(mark)-cells.String(right))
	if selected {
		return m.style(sgrReverse, fit(mark+name+right, m.width))
	}
	return fit(mark+name, m.width-cells.String(right)) + m.style(sgrFaint, right)
}

func (m *Model) directory(i Item) string {
	dir := clean(i.CWD)
	if rest, ok := strings.CutPrefix(dir, m.Home); ok && m.Home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return dir
}

// age is how long ago a time was, in four columns.
func (m *Model) age(t time.Time) string {
	d := m.Now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 1000*24*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return fmt.Sprintf("%dy", d/(365*24*time.Hour))
}

// previewLines draws n lines: a rule with id and directory, and the end of the
// conversation.
func (m *Model) previewLines(n int) []string {
	item, ok := m.Selected()
	if !ok {
		return make([]string, n)
	}
	about := "-- " + clean(item.ID) + "  " + m.directory(item) + " "
	if cells.String(about) > m.width {
		about = "-- " + fitEnd(m.directory(item), m.width-4) + " "
	}
	about = strings.TrimRight(fit(about+strings.Repeat("-", max(m.width-cells.String(about), 0)), m.width), " ")
	var text []string
	messages, known := m.preview[item.Path]
	switch {
	case !known:
		text = []string{"..."}
	case len(messages) == 0:
		text = []string{strings.TrimRight(fit("no messages at the end of this session", m.width), " ")}
	}
	// From the last one backwards, as many as there is room for.
	for i := len(messages) - 1; i >= 0 && len(text) < n-1; i-- {
		wrapped := wrap(clean(messages[i].Role)+": "+clean(messages[i].Text), m.width, 4)
		text = append(wrapped, text...)
	}
	text = text[max(len(text)-(n-1), 0):]
	lines := append([]string{m.style(sgrFaint, about)}, text...)
	for len(lines) < n {
		lines = append(lines, "")
	}
	return lines
}

// footer is what is asked, said, or which keys there are.
func (m *Model) footer() []string {
	prompt := func(label, input string) []string {
		return []string{label + strings.TrimRight(fitEnd(input+"_", m.width-len(label)), " ")}
	}
	item, _ := m.Selected()
	switch {
	case m.mode == filtering:
		return prompt("/", m.filter)
	case m.mode == renaming:
		return prompt("title: ", m.input)
	case m.mode == exporting:
		return prompt("export to: ", m.input)
	case m.mode == confirming:
		return wrap("Move "+item.name()+" to the trash? y/n", m.width, 3)
	case m.message != "":
		return wrap(clean(m.message), m.width, 4)
	case m.busy:
		return []string{"working"}
	}
	return []string{m.style(sgrFaint, strings.TrimRight(fit(m.keys(), m.width), " "))}
}

// hints are keys that the bottom line names, the most useful first, and lastHints those
// that it always names.
var hints = []string{"enter go on", "/ filter", "a all", "r rename", "f fork", "d trash", "t tree", "e export", "c compress"}

const lastHints = "? help  q quit"

// keys names as many keys as there is room for.
func (m *Model) keys() string {
	var keys strings.Builder
	for _, hint := range hints {
		if keys.Len()+len(hint)+len("  ")+len(lastHints) > m.width {
			break
		}
		keys.WriteString(hint + "  ")
	}
	return keys.String() + lastHints
}
