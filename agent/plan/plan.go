// Package plan keeps what an agent is up to: its mode and its list of things to do. Both are entries of the session, so that
// they are as they were when a run is resumed, and every front-end sees them.
//
// # Modes
//
//	agent  does what is asked; the mode of a session that has none
//	ask    answers questions, and changes nothing
//	plan   makes a plan, and changes nothing
//	debug  finds the cause of something before it changes anything
//
// In ask and plan only tools that change nothing may be called, by subagents too: [Board.Rules] deny all others, with a reason
// that says so. A model enters these modes by the tool mode, and leaves them only when a person says yes.
//
// # Entries
//
// A mode is an entry.ModeChange. The list is a custom entry of [TodoType]: {"items": [{"text", "status"}]}, of which the last
// one on the path counts.
//
// A Board is safe for concurrent use.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// Mode is how an agent works.
type Mode string

// Modes.
const (
	Agent Mode = "agent"
	Ask   Mode = "ask"
	Plan  Mode = "plan"
	Debug Mode = "debug"
)

// Modes are all of them.
func Modes() []Mode { return []Mode{Agent, Ask, Plan, Debug} }

// ParseMode reads the name of a mode.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(Modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("%.40q is no mode: write agent, ask, plan or debug", name)
}

// ModeOf is the mode that the settings of a session name. One that is not known, of another program, is Agent.
func ModeOf(name string) Mode {
	m, err := ParseMode(name)
	if err != nil {
		return Agent
	}
	return m
}

// changesNothing are the tools that ask and plan leave.
var changesNothing = []string{"read", "grep", "find", "todo", "skill", "task", "yield"}

// told is what a model is told of a mode.
var told = map[Mode]string{
	Agent: "The mode is agent now: do what is asked.",
	Ask:   "The mode is ask now: answer what is asked. Tools that change something are denied.",
	Plan:  "The mode is plan now: look at what there is, and answer with a plan of what you would do. Tools that change something are denied.",
	Debug: "The mode is debug now: find out why it happens, and show it, before you change anything.",
}

// Board is the mode and the list of one session.
type Board struct {
	session *session.Session

	mu   sync.Mutex
	mode Mode
	todo []Item
}

// Open reads the mode and the list of a session.
func Open(ctx context.Context, s *session.Session) (*Board, error) {
	b := &Board{session: s, mode: Agent}
	if !s.Exists() {
		return b, nil
	}
	c, err := s.Context(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the mode of the session: %w", err)
	}
	b.mode = ModeOf(c.Settings.Mode)
	if b.todo, err = lastTodo(ctx, s); err != nil {
		return nil, fmt.Errorf("reading what is to be done in the session: %w", err)
	}
	return b, nil
}

// lastTodo is the last list on the path to the leaf.
func lastTodo(ctx context.Context, s *session.Session) ([]Item, error) {
	at, err := s.Leaf(ctx)
	if err != nil || at == "" {
		return nil, err
	}
	for e, err := range s.Backward(ctx) { // a parent stands before its children
		if err != nil {
			return nil, err
		}
		if e.ID() != at {
			continue
		}
		if items, ok := TodoOf(e); ok {
			return items, nil
		}
		if at = e.Parent(); at == "" {
			break
		}
	}
	return nil, nil
}

// Mode is the mode.
func (b *Board) Mode() Mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mode
}

// Entered notes a mode that an entry of the log set, in whichever process.
func (b *Board) Entered(m Mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = m
}

// Enter returns the entries of a mode that a person sets before a prompt, which tell the model too; none where it is the mode
// already. It holds from now on.
func (b *Board) Enter(m Mode) []entry.Body {
	if b.Mode() == m {
		return nil
	}
	b.Entered(m)
	return []entry.Body{change(m), entry.CustomMessage{CustomType: "agentrun.mode", Content: entry.PlainText(told[m])}}
}

func change(m Mode) entry.ModeChange {
	if m == Agent {
		return entry.ModeChange{Mode: entry.ModeNone}
	}
	return entry.ModeChange{Mode: string(m)}
}

// State tells a model the mode and the list, if there is something to tell: where what it was told of them is gone.
func (b *Board) State() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var parts []string
	if b.mode != Agent {
		parts = append(parts, told[b.mode])
	}
	if len(b.todo) > 0 {
		parts = append(parts, "What is to be done:\n\n"+Text(b.todo))
	}
	return strings.Join(parts, "\n\n")
}

// Rules are those of the mode, none where it allows everything.
func (b *Board) Rules() []*permission.Rules {
	m := b.Mode()
	if m != Ask && m != Plan {
		return nil
	}
	r := &permission.Rules{Source: fmt.Sprintf("the mode %q, in which nothing is changed", m), ByTool: map[string]permission.Action{}}
	for _, name := range changesNothing {
		r.ByTool[name] = permission.Allow
	}
	r.Rules = []permission.Rule{{Action: permission.Ask, Tool: "mode", Reason: "a person decides when the mode " + string(m) + " ends"}}
	return []*permission.Rules{r}
}

// Tools are todo and mode, for the agent of the session.
func (b *Board) Tools() []tool.Tool { return []tool.Tool{todoTool{b}, modeTool{b}} }

// modeTool changes the mode.
type modeTool struct{ *Board }

func (modeTool) Name() string { return "mode" }

func (modeTool) Description() string {
	return "Changes how you work: agent does what is asked; plan and ask change nothing, for a plan or an answer; debug finds a cause first. " +
		"A person is asked before plan and ask are left."
}

func (modeTool) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"mode":{"enum":["agent","ask","plan","debug"]}},"required":["mode"],"additionalProperties":false}`)
}

func (modeTool) Idempotent() bool   { return true }
func (modeTool) ParallelSafe() bool { return false }

func (t modeTool) Call(ctx context.Context, input json.RawMessage) (tool.Result, error) {
	var in struct {
		Mode string `json:"mode"`
	}
	err := tool.Decode(input, &in)
	var m Mode
	if err == nil {
		m, err = ParseMode(in.Mode)
	}
	if err != nil {
		return tool.Refuse(fmt.Errorf("the mode was not changed: %w", err)), nil
	}
	if _, err := t.session.Append(ctx, change(m)); err != nil {
		return tool.Result{}, fmt.Errorf("changing the mode: %w", err)
	}
	t.Entered(m)
	return tool.Result{Text: told[m]}, nil
}

// TodoType is the custom entry of a list of things to do.
const TodoType = "agentrun.todo"

// Limits of a list.
const (
	MaxItems = 100
	MaxText  = 1000 // bytes of an item
)

// Status is how far an item is.
type Status string

// States of an item.
const (
	Pending Status = "pending"
	Active  Status = "active"
	Done    Status = "done"
)

// Item is one thing to do.
type Item struct {
	Text   string `json:"text"`
	Status Status `json:"status"`
}

type list struct {
	Items []Item `json:"items"`
}

// ParseTodo reads a list. It is hostile.
func ParseTodo(data []byte) ([]Item, error) {
	var l list
	if err := tool.Decode(data, &l); err != nil {
		return nil, err
	}
	if len(l.Items) > MaxItems {
		return nil, fmt.Errorf("there are %d items, and %d are the most", len(l.Items), MaxItems)
	}
	for i, item := range l.Items {
		switch {
		case strings.TrimSpace(item.Text) == "" || len(item.Text) > MaxText:
			return nil, fmt.Errorf("item %d needs a text, of %d bytes at most", i+1, MaxText)
		case !slices.Contains([]Status{Pending, Active, Done}, item.Status):
			return nil, fmt.Errorf("item %d is %.40q: write pending, active or done", i+1, string(item.Status))
		}
	}
	return l.Items, nil
}

// TodoOf is the list that an entry of the log sets; ok is false for any other entry.
func TodoOf(e entry.Entry) (items []Item, ok bool) {
	custom, is := e.Custom()
	if !is || custom.CustomType != TodoType {
		return nil, false
	}
	items, err := ParseTodo(custom.Data)
	return items, err == nil
}

// Todo is the list.
func (b *Board) Todo() []Item {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.todo)
}

// Text is a list as a model and a person read it.
func Text(items []Item) string {
	if len(items) == 0 {
		return "Nothing is to be done."
	}
	var s strings.Builder
	for _, item := range items {
		mark := map[Status]string{Pending: " ", Active: ">", Done: "x"}[item.Status]
		fmt.Fprintf(&s, "[%s] %s\n", mark, strings.Join(strings.Fields(item.Text), " "))
	}
	return s.String()
}

// todoTool sets the list.
type todoTool struct{ *Board }

func (todoTool) Name() string { return "todo" }

func (todoTool) Description() string {
	return "Keeps the list of what is to be done, for work of several steps; without items it shows the list. Give all items each time, in their order."
}

func (todoTool) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"items":{"type":"array","maxItems":100,"items":{"type":"object","properties":` +
		`{"text":{"type":"string","maxLength":1000},"status":{"enum":["pending","active","done"]}},"required":["text","status"],"additionalProperties":false}}},"additionalProperties":false}`)
}

func (todoTool) Idempotent() bool   { return true }
func (todoTool) ParallelSafe() bool { return false }

func (t todoTool) Call(ctx context.Context, input json.RawMessage) (tool.Result, error) {
	items, err := ParseTodo(input)
	if err != nil {
		return tool.Refuse(fmt.Errorf("the list was not changed: %w", err)), nil
	}
	if items == nil {
		return tool.Result{Text: Text(t.Todo())}, nil
	}
	data, err := json.Marshal(list{items})
	if err == nil {
		_, err = t.session.Append(ctx, entry.Custom{CustomType: TodoType, Data: data})
	}
	if err != nil {
		return tool.Result{}, fmt.Errorf("keeping the list of what is to be done: %w", err)
	}
	t.mu.Lock()
	t.todo = items
	t.mu.Unlock()
	return tool.Result{Text: Text(items)}, nil
}
