package chat

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// builtins are the slash commands of the chat itself. They come before those of files.
var builtins = []struct{ name, about string }{
	{"artifacts", "output that was kept, and reports, to open in a pager (ctrl+o)"},
	{"help", "the commands and the keys"},
	{"mode", "how the agent works: /mode agent, ask, plan or debug"},
	{"quit", "leave; the session stays"},
	{"resume", "go on with a run that was interrupted"},
	{"sessions", "go on with another session"},
	{"tree", "the session's entries, to go on from another one (ctrl+t)"},
}

const help = `enter sends; alt+enter, ctrl+j or a \ before enter begins a line; up and down go through prompts
esc cancels the run, which /resume goes on with; ctrl+c does too, and again quits
what is sent while the agent works is said to it before its next step
@path shows the agent a file; the path of a picture, pasted, is the picture; ctrl+v pastes from the clipboard
page up and down scroll; tab completes a command
`

// open is a command of the chat.
func (m *chatModel) open(name string) tea.Cmd {
	switch name {
	case "/tree":
		return m.openTree
	case "/artifacts":
		return m.openArtifacts
	case "/help":
		m.talk.add(Item{Kind: Remark, Text: m.help()})
	case "/quit", "/exit":
		return tea.Quit
	case "/sessions":
		if m.running {
			m.note = "the agent is at work: cancel with esc first"
			return nil
		}
		m.end = Sessions
		return tea.Quit
	case "/resume":
		if m.running {
			m.note = "the agent is at work already"
			return nil
		}
		return m.start(nil)
	}
	return nil
}

// help is what /help shows.
func (m *chatModel) help() string {
	var b strings.Builder
	for _, c := range builtins {
		fmt.Fprintf(&b, "/%-10s %s\n", c.name, c.about)
	}
	if len(m.o.Commands) > 0 {
		fmt.Fprintf(&b, "from files: /%s\n", strings.Join(m.o.Commands, " /"))
	}
	return b.String() + help
}

// mode is /mode: it has the next prompt, and those behind it, worked on in another mode.
func (m *chatModel) mode(name string) tea.Cmd {
	if m.running {
		m.note = "the agent is at work: /mode is for when it has ended"
		return nil
	}
	return func() tea.Msg {
		said, err := m.backend.Mode(m.ctx, name)
		if err != nil {
			return failedMsg{err}
		}
		return remarkMsg(said)
	}
}

// completions are the commands that the input may become.
func (m *chatModel) completions() []string {
	typed, ok := strings.CutPrefix(m.input.text, "/")
	if !ok || strings.ContainsAny(typed, " \n") {
		return nil
	}
	var all []string
	for _, b := range builtins {
		all = append(all, b.name)
	}
	all = append(all, m.o.Commands...)
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, typed) })
	slices.Sort(all)
	return slices.Compact(all)
}

func (m *chatModel) complete() {
	all := m.completions()
	if len(all) == 0 {
		return
	}
	common := all[0]
	for _, name := range all[1:] {
		for !strings.HasPrefix(name, common) {
			common = common[:len(common)-1]
		}
	}
	if len(all) == 1 {
		common += " "
	}
	m.input.set("/" + strings.ToValidUTF8(common, ""))
}
