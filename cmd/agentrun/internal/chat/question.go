package chat

import (
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

// ask takes a question. One that was answered for the session is not asked.
func (m *chatModel) ask(a askMsg) {
	if m.allowed[sort(a)] {
		a.answer <- true
		return
	}
	if len(m.asked) == 0 {
		m.answer.set("")
	}
	m.asked = append(m.asked, a)
}

// sort is what of a question an answer for the session holds for: what this rule asks about this tool.
func sort(a askMsg) string { return a.question.Tool + "\n" + fmt.Sprint(a.question.Decision) }

// pressInQuestion takes a key while there is a question. An answer is a word and enter: what a person was writing when
// the question came is none.
func (m *chatModel) pressInQuestion(key, text string) {
	switch key {
	case "ctrl+o":
		m.more = !m.more
		return
	case "enter":
	default:
		if key != "up" && key != "down" && !m.answer.key(key) && text != "" {
			m.answer.insert(text)
		}
		return
	}
	q := m.asked[0]
	said := strings.ToLower(strings.TrimSpace(m.answer.text))
	switch said {
	case "y", "yes", "n", "no":
	case "a", "always":
		m.allowed[sort(q)] = true
	default:
		m.note = "answer y, a or n"
		m.answer.set("")
		return
	}
	yes := said[0] != 'n'
	q.answer <- yes
	m.asked, m.more = m.asked[1:], false
	m.answer.set("")
	for yes && len(m.asked) > 0 && m.allowed[sort(m.asked[0])] {
		m.asked[0].answer <- true
		m.asked = m.asked[1:]
	}
}

// question is the first question as rows of at most width columns.
func (m *chatModel) question(width, most int) []runview.Row {
	q := m.asked[0].question
	rows := []runview.Row{
		{{Text: runview.Clean(q.Agent), Style: runview.Bold}, {Text: " wants to call "}, {Text: runview.Clean(q.Tool), Style: runview.Bold}},
	}
	var arguments []string
	for line := range strings.SplitSeq(runview.CleanLines(arranged(q.Arguments)), "\n") {
		arguments = append(arguments, runview.Wrap(line, max(width-2, 2))...)
	}
	if shown := max(most-4, 1); len(arguments) > shown && !m.more {
		arguments = append(arguments[:shown:shown], fmt.Sprintf("… %d more rows: ctrl+o shows them", len(arguments)-shown))
	}
	for _, a := range arguments {
		rows = append(rows, runview.Row{{Text: "  "}, {Text: a, Style: runview.Cyan}})
	}
	for _, row := range runview.WrapWords(runview.Clean(fmt.Sprint(q.Decision)), width) {
		rows = append(rows, runview.Row{{Text: row, Style: runview.Faint}})
	}
	choice := "y: once · a: always, by this rule and until the chat ends · n: no — and enter"
	if len(m.asked) > 1 {
		choice += fmt.Sprintf(" (%d more wait)", len(m.asked)-1)
	}
	for _, row := range runview.WrapWords(choice, width) {
		rows = append(rows, runview.Row{{Text: row, Style: runview.Amber}})
	}
	for i, r := range rows {
		rows[i] = r.Fit(width)
	}
	return rows
}
