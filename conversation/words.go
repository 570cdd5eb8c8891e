package conversation

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// modes are the modes of a session that agent.v1 has a number for.
var modes = map[string]agentv1.AgentMode{
	"agent":        agentv1.AgentMode_AGENT_MODE_AGENT,
	entry.ModeNone: agentv1.AgentMode_AGENT_MODE_AGENT,
	"":             agentv1.AgentMode_AGENT_MODE_AGENT,
	"ask":          agentv1.AgentMode_AGENT_MODE_ASK,
	"plan":         agentv1.AgentMode_AGENT_MODE_PLAN,
	"debug":        agentv1.AgentMode_AGENT_MODE_DEBUG,
	"triage":       agentv1.AgentMode_AGENT_MODE_TRIAGE,
	"project":      agentv1.AgentMode_AGENT_MODE_PROJECT,
	"multitask":    agentv1.AgentMode_AGENT_MODE_MULTITASK,
}

// modeNumber is the number of a mode. One that is not known is a custom one.
func modeNumber(name string) agentv1.AgentMode {
	if m, known := modes[name]; known {
		return m
	}
	return agentv1.AgentMode_AGENT_MODE_CUSTOM
}

// modeName is the name of a mode, "" for one that has none.
func modeName(m agentv1.AgentMode) string {
	if m == agentv1.AgentMode_AGENT_MODE_AGENT {
		return "agent"
	}
	for name, number := range modes {
		if number == m {
			return name
		}
	}
	return ""
}

// States of things to do: those of package agent/plan.
var todoStates = map[string]agentv1.TodoStatus{
	"pending":     agentv1.TodoStatus_TODO_STATUS_PENDING,
	"active":      agentv1.TodoStatus_TODO_STATUS_IN_PROGRESS,
	"in_progress": agentv1.TodoStatus_TODO_STATUS_IN_PROGRESS,
	"done":        agentv1.TodoStatus_TODO_STATUS_COMPLETED,
	"completed":   agentv1.TodoStatus_TODO_STATUS_COMPLETED,
	"cancelled":   agentv1.TodoStatus_TODO_STATUS_CANCELLED,
}

// todoState is a state in the words of agent/plan, which knows no cancelled things.
func todoState(s agentv1.TodoStatus) string {
	switch s {
	case agentv1.TodoStatus_TODO_STATUS_IN_PROGRESS:
		return "active"
	case agentv1.TodoStatus_TODO_STATUS_COMPLETED, agentv1.TodoStatus_TODO_STATUS_CANCELLED:
		return "done"
	}
	return "pending"
}

// todoItems are the things to do in a list of {text, status}. What was there before
// under the same text keeps its id, its dependencies and when it was made; others are
// called by their place.
func todoItems(items gjson.Result, at int64, before []*agentv1.TodoItem) (list []*agentv1.TodoItem) {
	taken := map[string]bool{}
	known := map[string]*agentv1.TodoItem{}
	for _, item := range before {
		if known[item.Content] == nil {
			known[item.Content] = item
			taken[item.Id] = true
		}
	}
	next := 1
	items.ForEach(func(_, v gjson.Result) bool {
		item := &agentv1.TodoItem{Content: firstOf(v, "text", "content"), Status: todoStates[v.Get("status").Str], CreatedAt: at, UpdatedAt: at}
		if old := known[item.Content]; old != nil {
			delete(known, item.Content)
			item.Id, item.CreatedAt, item.Dependencies = old.Id, old.CreatedAt, old.Dependencies
			if old.Status == item.Status || todoState(old.Status) == todoState(item.Status) {
				item.Status, item.UpdatedAt = old.Status, old.UpdatedAt
			}
		} else {
			for taken[strconv.Itoa(next)] {
				next++
			}
			item.Id = strconv.Itoa(next)
			taken[item.Id] = true
		}
		list = append(list, item)
		return true
	})
	return list
}

// todo takes a list of things to do.
func (b *builder) todo(ctx context.Context, items gjson.Result, at time.Time) error {
	b.todos = todoItems(items, max(0, at.UnixMilli()), b.todos)
	b.state.Todos = nil
	for _, item := range b.todos {
		id, err := b.put(ctx, item)
		if err != nil {
			return err
		}
		b.state.Todos = append(b.state.Todos, id)
	}
	return nil
}

// subagentType is the type of a subagent of that name.
func subagentType(name string) *agentv1.SubagentType {
	switch name {
	case "":
		return &agentv1.SubagentType{Type: &agentv1.SubagentType_Unspecified{Unspecified: &agentv1.SubagentTypeUnspecified{}}}
	case "explore", "scout":
		return &agentv1.SubagentType{Type: &agentv1.SubagentType_Explore{Explore: &agentv1.SubagentTypeExplore{}}}
	}
	return &agentv1.SubagentType{Type: &agentv1.SubagentType_Custom{Custom: &agentv1.SubagentTypeCustom{Name: name}}}
}

// subagentName is the name of a type, "" for one without: the case of its message where
// it is no custom one.
func subagentName(t *agentv1.SubagentType) string {
	if c := t.GetCustom(); c != nil {
		return c.Name
	}
	if t == nil || t.GetUnspecified() != nil {
		return ""
	}
	m := t.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("type")); f != nil {
		return strings.ReplaceAll(string(f.Name()), "_", "-")
	}
	return ""
}

// fileURI is the URI of a directory.
func fileURI(path string) string {
	return valid((&url.URL{Scheme: "file", Path: path}).String())
}

// uriPath is the directory that a URI names, "" for none of this machine.
func uriPath(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" || !strings.HasPrefix(u.Path, "/") {
		return ""
	}
	return u.Path
}
