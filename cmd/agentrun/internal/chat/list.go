package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

// list is a list to choose from, in the place of the conversation.
type list struct {
	title  string
	rows   []runview.Row
	at     int
	first  int // that is on the screen
	choose func(m *chatModel, at int) tea.Cmd
}

type (
	listMsg struct {
		list *list
		err  error
	}
	jumpedMsg struct{}
)

func (m *chatModel) openTree() tea.Msg {
	entries, err := m.backend.Entries(m.ctx)
	if err != nil || len(entries) == 0 {
		return listMsg{nil, noneOr(err, "the session has no entries yet")}
	}
	l := &list{title: "Entries of the session: enter goes on from one, esc leaves"}
	for i, e := range entries {
		mark := "  "
		if e.Active {
			mark = "* "
		}
		if e.Leaf {
			l.at = i
		}
		l.rows = append(l.rows, runview.Row{{Text: mark, Style: runview.Green}, {Text: e.Lead, Style: runview.Faint}, {Text: runview.Clean(e.Text)}})
	}
	l.choose = func(m *chatModel, at int) tea.Cmd {
		if m.running {
			m.note = "the agent is at work: cancel with esc first"
			return nil
		}
		return func() tea.Msg {
			if err := m.backend.Jump(m.ctx, entries[at].ID); err != nil {
				return failedMsg{err}
			}
			return jumpedMsg{}
		}
	}
	return listMsg{l, nil}
}

func (m *chatModel) openArtifacts() tea.Msg {
	all, err := m.backend.Artifacts(m.ctx)
	if err != nil || len(all) == 0 {
		return listMsg{nil, noneOr(err, "the session has no artifacts yet")}
	}
	l := &list{title: "Artifacts: enter opens one, esc leaves", at: len(all) - 1}
	wide := 0
	for _, a := range all {
		wide = max(wide, runview.Width(a.URL))
	}
	for _, a := range all {
		l.rows = append(l.rows, runview.Row{
			{Text: runview.Clean(a.URL), Style: runview.Cyan},
			{Text: strings.Repeat(" ", wide-runview.Width(a.URL)+2)},
			{Text: runview.Clean(a.Tool) + "  "},
			{Text: a.Size, Style: runview.Faint},
		})
	}
	l.choose = func(m *chatModel, at int) tea.Cmd {
		cmd, err := m.backend.Pager(m.ctx, all[at])
		if err != nil {
			m.fail(err)
			return nil
		}
		return tea.ExecProcess(cmd, func(err error) tea.Msg {
			if err != nil {
				return failedMsg{fmt.Errorf("showing %s: %w; PAGER names another program", all[at].URL, err)}
			}
			return nil
		})
	}
	return listMsg{l, nil}
}

func noneOr(err error, none string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", none)
}

// pressInList takes a key while there is a list.
func (m *chatModel) pressInList(key string) tea.Cmd {
	l := m.list
	switch key {
	case "esc", "q":
		m.list = nil
	case "up", "k", "ctrl+p":
		l.at--
	case "down", "j", "ctrl+n":
		l.at++
	case "pgup":
		l.at -= max(1, m.height/2)
	case "pgdown":
		l.at += max(1, m.height/2)
	case "home", "g":
		l.at = 0
	case "end":
		l.at = len(l.rows) - 1
	case "enter":
		return l.choose(m, l.at)
	}
	l.at = max(0, min(l.at, len(l.rows)-1))
	return nil
}

// view is the list as rows.
func (l *list) view(width, height int, coloured bool) []string {
	rows := []string{runview.Row{{Text: l.title, Style: runview.Bold}}.Fit(width).Render(coloured)}
	room := max(1, height-1)
	l.first = max(min(l.first, l.at), l.at-room+1, 0)
	for i := l.first; i < min(l.first+room, len(l.rows)); i++ {
		mark := runview.Span{Text: "  "}
		if i == l.at {
			mark = runview.Span{Text: "> ", Style: runview.Amber}
		}
		rows = append(rows, append(runview.Row{mark}, l.rows[i]...).Fit(width).Render(coloured))
	}
	return rows
}

// arranged are arguments as a person reads them: one member a line, texts without quotes.
func arranged(raw json.RawMessage) string {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return string(raw)
	}
	var b strings.Builder
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return string(raw)
		}
		text := string(value)
		var s string
		if json.Unmarshal(value, &s) == nil {
			text = s
		}
		fmt.Fprintf(&b, "%v: %s\n", name, text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
