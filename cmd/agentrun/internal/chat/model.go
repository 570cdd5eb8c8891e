package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/instructions"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
	"github.com/agentrun/agentrun/model"
)

// chatModel is the state of a chat.
type chatModel struct {
	ctx     context.Context
	backend Backend
	o       Options
	end     End
	work    sync.WaitGroup // the run that is under way

	width, height int
	now           time.Time

	talk     transcript
	tree     runview.Tree
	subjects map[string]string // of calls, by agent and id
	input    editor
	images   []Image

	running   bool
	cancel    context.CancelFunc // of the run
	resumable bool               // the last run can go on
	armed     bool               // another ctrl+c quits
	note      string             // about the last key; the next one takes it away

	asked   []askMsg
	answer  editor          // the person's, to the first question
	allowed map[string]bool // what is not asked about again
	more    bool            // the whole arguments are shown

	list *list // over the conversation; nil for none
}

func newModel(ctx context.Context, b Backend, o Options) *chatModel {
	m := &chatModel{ctx: ctx, backend: b, o: o, subjects: map[string]string{}, allowed: map[string]bool{}, now: time.Now()}
	m.input.history = o.History
	return m
}

type (
	pastMsg struct {
		items []Item
		err   error
	}
	endedMsg struct {
		outcome agent.Outcome
		err     error
		prompt  Prompt // of a run that did not begin
	}
	failedMsg struct{ err error }
	notSaid   struct {
		text string
		err  error
	}
	imageMsg struct {
		image Image
		err   error
		paste string // what was pasted, if it is no picture
	}
	tickMsg time.Time
)

// Init begins with the conversation so far.
func (m *chatModel) Init() tea.Cmd {
	return tea.Batch(m.readPast, tick(), whole)
}

// whole has the renderer take graphemes for what they are on every terminal, as the rows do: it leaves out those that it
// takes for wider than four columns, such as families. It is what a terminal answers that can be asked for that.
func whole() tea.Msg { return tea.ModeReportMsg{Mode: ansi.ModeUnicodeCore, Value: ansi.ModeReset} }

func (m *chatModel) readPast() tea.Msg {
	items, err := m.backend.Past(m.ctx)
	return pastMsg{items, err}
}

// tick has the times in the tree go on.
func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Update takes what happened.
func (m *chatModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.talk.resize(msg.Width)
		return m, tea.ClearScreen // terminals break and keep old rows as they like
	case tea.KeyPressMsg:
		return m, m.press(msg)
	case tea.PasteMsg:
		return m, m.paste(msg.Content)
	case tea.ClipboardMsg:
		return m, m.paste(msg.Content)
	case batchMsg:
		for _, one := range msg {
			m.Update(one)
		}
	case eventMsg:
		m.observe(msg)
	case askMsg:
		m.ask(msg)
	case withdrawnMsg:
		m.asked = slices.DeleteFunc(m.asked, func(a askMsg) bool { return a.ctx.Err() != nil })
	case remarkMsg:
		for line := range strings.Lines(string(msg)) {
			m.talk.add(Item{Kind: Remark, Text: strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "agentrun: ")})
		}
	case pastMsg:
		m.past(msg)
	case endedMsg:
		return m, m.ended(msg)
	case imageMsg:
		m.pasted(msg)
	case listMsg:
		m.list = msg.list
		m.fail(msg.err)
	case jumpedMsg:
		m.list = nil
		m.talk = transcript{width: m.talk.width}
		m.tree = runview.Tree{}
		m.note = "the session goes on from there"
		return m, m.readPast
	case notSaid:
		m.input.set(strings.TrimSpace(msg.text + "\n" + m.input.text))
		m.fail(msg.err)
	case failedMsg:
		m.fail(msg.err)
	case tickMsg:
		m.now = time.Time(msg)
		return m, tick()
	}
	return m, nil
}

func (m *chatModel) fail(err error) {
	if err != nil {
		m.talk.add(Item{Kind: Remark, Text: err.Error()})
	}
}

func (m *chatModel) past(msg pastMsg) {
	now := m.talk.parts
	m.talk.parts, m.talk.open = nil, false
	for _, i := range msg.items {
		m.talk.add(i)
	}
	m.talk.parts = append(m.talk.parts, now...)
	for _, n := range m.o.Notes {
		m.talk.add(Item{Kind: Remark, Text: n})
	}
	m.o.Notes = nil
	m.fail(msg.err)
}

// observe takes an event of an agent.
func (m *chatModel) observe(msg eventMsg) {
	m.now = msg.at
	m.tree.Observe(msg.id, msg.event, msg.at)
	main := msg.id == agent.MainID
	key := func(call string) string { return msg.id + "\n" + call }
	switch e := msg.event.(type) {
	case agent.Answering:
		switch delta := e.Event.(type) {
		case model.TextDelta:
			if main {
				m.talk.answer(Answer, delta.Text)
			}
		case model.ThinkingDelta:
			if main {
				m.talk.answer(Thought, delta.Text)
			}
		}
		return
	case agent.CallStarted:
		m.subjects[key(e.ID)] = runview.Subject(e.Arguments)
		return
	case agent.CallFinished:
		m.later(Item{Kind: Call, Row: runview.CallRow(msg.id, m.subjects[key(e.ID)], e, 500)}, main)
		if reason := runview.Reason(e.Result); reason != "" {
			m.later(Item{Kind: Call, Row: runview.ReasonRow(reason)}, main)
		}
		delete(m.subjects, key(e.ID))
		return
	case agent.Answered:
		if main {
			m.talk.endAnswer()
		}
		for _, call := range e.Message.Content.ToolCalls() { // one that is refused is not started
			m.subjects[key(call.ID)] = runview.Subject(call.Arguments)
		}
		return
	case agent.Ended:
		if main {
			m.talk.endAnswer()
		}
		return
	case agent.Heard:
		if main {
			m.talk.add(Item{Kind: Said, Text: e.Text})
			return
		}
	}
	if row := runview.Remark(msg.id, msg.event); row != nil {
		m.talk.add(Item{Kind: Remark, Text: row.String()})
	}
}

// later adds an item without breaking an answer that goes on.
func (m *chatModel) later(i Item, main bool) {
	n := len(m.talk.parts)
	if main || !m.talk.open || n == 0 {
		m.talk.add(i)
		return
	}
	last := m.talk.parts[n-1]
	m.talk.parts = m.talk.parts[:n-1]
	m.talk.append(&part{kind: i.Kind, row: i.Row})
	m.talk.parts = append(m.talk.parts, last)
}

// start has the agent work.
func (m *chatModel) start(p *Prompt) tea.Cmd {
	ctx, cancel := context.WithCancel(m.ctx)
	m.running, m.cancel, m.resumable = true, cancel, false
	m.tree = runview.Tree{}
	done := make(chan tea.Msg, 1)
	m.work.Go(func() {
		defer cancel()
		var msg endedMsg
		if p != nil {
			if msg.outcome, msg.err = m.backend.Run(ctx, *p); msg.err != nil {
				msg.prompt = *p
			}
		} else {
			msg.outcome, msg.err = m.backend.Resume(ctx)
		}
		done <- msg
	})
	return func() tea.Msg { return <-done }
}

func (m *chatModel) ended(msg endedMsg) tea.Cmd {
	m.running, m.note = false, "" // what was said of the run is over
	m.talk.endAnswer()
	m.asked = nil
	out := msg.outcome
	if msg.err != nil {
		m.fail(msg.err)
		if out.Run == "" && msg.prompt.Text != "" && m.input.text == "" { // it did not begin
			m.input.set(msg.prompt.Text)
			m.images = msg.prompt.Images
		}
		return nil
	}
	if out.Status != agent.Completed && out.Status != "" {
		m.resumable = true
		m.talk.add(Item{Kind: Remark, Text: fmt.Sprintf("%s: %s; /resume goes on", out.Status, cmp.Or(out.Reason, "the run did not complete"))})
	}
	return nil
}

// press takes a key.
func (m *chatModel) press(k tea.KeyPressMsg) tea.Cmd {
	key := k.Keystroke()
	m.note = ""
	if key != "ctrl+c" {
		m.armed = false
	}
	switch key {
	case "ctrl+c":
		return m.interrupt()
	case "pgup", "shift+up":
		if m.list == nil {
			m.talk.scroll += m.page(key)
			return nil
		}
	case "pgdown", "shift+down":
		if m.list == nil {
			m.talk.scroll = max(0, m.talk.scroll-m.page(key))
			return nil
		}
	}
	if m.list != nil {
		return m.pressInList(key)
	}
	if key == "esc" {
		if m.running {
			m.cancel()
			m.note = "cancelling; the session can go on from here"
		}
		return nil
	}
	if len(m.asked) > 0 {
		m.pressInQuestion(key, k.Text)
		return nil
	}
	switch key {
	case "enter":
		if text, ok := strings.CutSuffix(m.input.text, "\\"); ok && m.input.at == len(m.input.text) {
			m.input.set(text + "\n")
			return nil
		}
		return m.submit()
	case "tab":
		m.complete()
		return nil
	case "ctrl+t":
		return m.open("/tree")
	case "ctrl+o":
		return m.open("/artifacts")
	case "ctrl+v":
		return m.clipboard
	case "ctrl+d":
		if m.input.text == "" && !m.running {
			return tea.Quit
		}
		m.input.key("delete")
		return nil
	case "backspace":
		if m.input.text == "" && len(m.images) > 0 {
			m.images = m.images[:len(m.images)-1]
			return nil
		}
	}
	if !m.input.key(key) && k.Text != "" && !m.input.insert(k.Text) {
		m.note = "that is too long"
	}
	return nil
}

func (m *chatModel) page(key string) int {
	if strings.HasPrefix(key, "shift") {
		return 1
	}
	return max(1, m.height/2)
}

// interrupt is ctrl+c: it closes a list, cancels a run or empties the input; the second one quits.
func (m *chatModel) interrupt() tea.Cmd {
	if m.armed {
		return tea.Quit
	}
	m.armed = true
	switch {
	case m.list != nil:
		m.list = nil
	case m.running:
		m.cancel()
		m.note = "cancelling; ctrl+c again quits"
		return nil
	case m.input.text != "" || len(m.images) > 0:
		m.input.take()
		m.images = nil
	}
	m.note = "ctrl+c again quits"
	return nil
}

// submit is enter.
func (m *chatModel) submit() tea.Cmd {
	text := m.input.text
	if strings.TrimSpace(text) == "" && len(m.images) == 0 {
		return nil
	}
	if name, ok := strings.CutPrefix(strings.TrimSpace(text), "/"); ok {
		if slices.ContainsFunc(builtins, func(b struct{ name, about string }) bool { return b.name == name }) || name == "exit" {
			m.input.take()
			if name != "mode" {
				return m.open("/" + name)
			}
		}
		if first, rest, _ := strings.Cut(name, " "); first == "mode" {
			m.input.take()
			return m.mode(strings.TrimSpace(rest))
		}
	}
	m.talk.scroll = 0
	if m.running {
		if name, _, ok := instructions.ParseSlash(text); ok { // to the agent it would be words
			m.note = "the agent is at work: /" + name + " is a prompt of its own, for when it has ended"
			if !slices.Contains(m.o.Commands, name) {
				m.note = "there is no command /" + name + "; what is to begin with a slash has a space before it"
			}
			return nil
		}
		if len(m.images) > 0 {
			m.note = "a picture cannot be said to an agent at work: wait for its end, or cancel with esc"
			return nil
		}
		m.input.take()
		m.note = "it is told before its next step"
		return tea.Batch(m.remember(text), func() tea.Msg {
			if err := m.backend.Say(m.ctx, text); err != nil {
				return notSaid{text, err}
			}
			return nil
		})
	}
	p := Prompt{text, m.images}
	shown := m.input.take()
	for _, i := range m.images {
		shown += "\n[" + i.Name + "]"
	}
	m.images = nil
	m.talk.add(Item{Kind: Said, Text: strings.TrimSpace(shown)})
	return tea.Batch(m.remember(text), m.start(&p))
}

func (m *chatModel) remember(text string) tea.Cmd {
	return func() tea.Msg {
		if err := m.backend.Remember(text); err != nil {
			return failedMsg{err}
		}
		return nil
	}
}

// paste takes pasted text: the path of a picture is the picture.
func (m *chatModel) paste(text string) tea.Cmd {
	if m.list != nil {
		return nil
	}
	if len(m.asked) > 0 {
		m.answer.insert(text)
		return nil
	}
	path, ok := pathIn(text)
	if !ok {
		m.pasted(imageMsg{err: ErrNoImage, paste: text})
		return nil
	}
	return func() tea.Msg {
		i, err := m.backend.Image(m.ctx, path)
		return imageMsg{i, err, text}
	}
}

// pathIn is the path that a pasted text is, as terminals paste files that are dropped: quoted, with backslashes, or a
// file URL.
func pathIn(text string) (string, bool) {
	s := strings.TrimSpace(text)
	if s == "" || len(s) > 4096 || strings.ContainsAny(s, "\n\x00") {
		return "", false
	}
	if u, err := url.Parse(s); err == nil && u.Scheme == "file" {
		return u.Path, true
	}
	for _, q := range []string{"'", `"`} {
		if len(s) > 2 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			return s[1 : len(s)-1], true
		}
	}
	s = strings.ReplaceAll(s, `\ `, " ")
	if !strings.ContainsRune(s, filepath.Separator) && !strings.Contains(s, ".") {
		return "", false
	}
	return s, true
}

func (m *chatModel) pasted(msg imageMsg) {
	switch {
	case msg.err == nil:
		m.images = append(m.images, msg.image)
	case errors.Is(msg.err, ErrNoImage):
		if msg.paste != "" && !m.input.insert(msg.paste) {
			m.note = "what was pasted is too long: put it into a file, and name that as @path"
		}
	default:
		m.fail(msg.err)
	}
}

// clipboard reads a picture from the desktop, else asks the terminal for its text (OSC 52).
func (m *chatModel) clipboard() tea.Msg {
	i, err := m.backend.Clipboard(m.ctx)
	if errors.Is(err, ErrNoImage) {
		return tea.ReadClipboard()
	}
	return imageMsg{image: i, err: err}
}
