package chat

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

// View is the whole screen.
func (m *chatModel) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	if m.width <= 0 || m.height <= 0 {
		return v
	}
	bottom, x, y := m.bottom()
	if over := len(bottom) - m.height; over > 0 { // the input is the last to go
		bottom, y = bottom[over:], y-over
	}
	height := m.height - len(bottom)
	var top []string
	if m.list != nil {
		top = m.list.view(m.width, max(height, 1), m.o.Coloured)
	} else {
		top, _ = m.talk.view(height, m.o.Coloured)
	}
	top = top[:min(len(top), height)]
	for len(top) < height {
		top = append(top, "")
	}
	v.SetContent(strings.Join(append(top, bottom...), "\n"))
	if m.list == nil && y >= 0 {
		v.Cursor = tea.NewCursor(x, height+y)
	}
	return v
}

// bottom is what stands below the conversation, and where in it the cursor is.
func (m *chatModel) bottom() (rows []string, x, y int) {
	add := func(r runview.Row) { rows = append(rows, r.Fit(m.width).Render(m.o.Coloured)) }
	if m.running {
		for _, r := range m.tree.Rows(m.width, max(m.height/3, 1), m.now) {
			add(r)
		}
	}
	input := &m.input
	if len(m.asked) > 0 {
		input = &m.answer
		for _, r := range m.question(m.width, max(m.height/2, 4)) {
			add(r)
		}
	}
	if m.talk.scroll > 0 && m.list == nil {
		add(runview.Row{{Text: "↓ there is more below: page down", Style: runview.Faint}})
	}
	if m.note != "" {
		add(runview.Row{{Text: m.note, Style: runview.Amber}})
	}
	if all := m.completions(); len(all) > 0 && len(m.asked) == 0 {
		for _, row := range runview.WrapWords("/"+strings.Join(all, " /"), m.width) {
			add(runview.Row{{Text: row, Style: runview.Faint}})
		}
	}
	add(runview.Row{{Text: strings.Repeat("─", m.width), Style: runview.Faint}})
	for i, image := range m.images {
		add(runview.Row{{Text: fmt.Sprintf("[picture %d: %s]", i+1, runview.Clean(image.Name)), Style: runview.Cyan}})
	}
	typed, x, y := input.rows(max(m.width-3, 2))
	if most := max(m.height/3, 1); len(typed) > most { // around the cursor
		from := max(0, min(y-most/2, len(typed)-most))
		typed, y = typed[from:from+most], y-from
	}
	y += len(rows)
	for i, row := range typed {
		lead := "  "
		if i == 0 {
			lead = "› "
		}
		add(runview.Row{{Text: lead, Style: runview.Cyan}, {Text: row}})
	}
	add(runview.Row{{Text: m.status(), Style: runview.Faint}})
	return rows, x + 2, y
}

// status is the last row.
func (m *chatModel) status() string {
	keys := "enter sends · /help"
	switch {
	case m.list != nil:
		keys = "enter · esc"
	case len(m.asked) > 0:
		keys = "esc cancels the run"
	case m.running:
		keys = "esc cancels · enter says it to the agent"
	}
	return runview.Clean(fmt.Sprintf("%s · %s · %s", keys, m.o.Model, m.o.Session))
}
