package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
)

// origin is what an artifact came from; the zero value is unknown.
type origin struct {
	agent   string // "" for a command that a person ran
	command string
}

func (o origin) String() string {
	what := cmp.Or(firstWords(o.command, 40), "-")
	if o.agent != "" && o.agent != agent.MainID {
		return o.agent + ": " + what
	}
	return what
}

// originsOf are those of artifacts by their run or call. It reads the logs of subagents only
// where the session's own does not tell.
func originsOf(ctx context.Context, m *session.Manager, s *session.Session, list []artifacts.Info) (map[string]origin, error) {
	origins, open := map[string]origin{}, map[string]bool{}
	for _, info := range list {
		if key := cmp.Or(info.Call, info.Run); key != "" {
			open[key] = true
		}
	}
	find := func(s *session.Session, id string) error {
		for e, err := range s.Entries(ctx) {
			if err != nil {
				return err
			}
			if start, ok := bash.StartOf(e); ok && open[start.Run] {
				origins[start.Run] = origin{command: start.Command}
				delete(open, start.Run)
			}
			for _, call := range callsOf(e) {
				if key := tool.Origin(id, call.ID); open[key] {
					origins[key] = origin{id, cmp.Or(runview.Subject(call.Arguments), call.Name)}
					delete(open, key)
				}
			}
		}
		return nil
	}
	if len(open) == 0 {
		return origins, nil
	}
	if err := find(s, agent.MainID); err != nil {
		return nil, err
	}
	if len(open) == 0 {
		return origins, nil
	}
	children, err := task.List(ctx, m, s, agent.MainID)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		if len(open) == 0 {
			break
		}
		if child.Patch != nil { // which no call made
			for _, info := range list {
				if info.URL() == child.Patch.Artifact && open[info.Run] {
					origins[info.Run] = origin{child.ID, "what it changed"}
					delete(open, info.Run)
				}
			}
		}
		if child.Session == nil {
			continue
		}
		log, err := m.View(ctx, *child.Session)
		if errors.Is(err, context.Canceled) {
			return nil, err
		}
		if err != nil {
			continue // doctor says what is wrong with it
		}
		err = find(log, child.ID)
		if err := errors.Join(err, log.Close()); err != nil {
			return nil, err
		}
	}
	return origins, nil
}

// callsOf are the tool calls of an entry.
func callsOf(e entry.Entry) []entry.ToolCallBlock {
	m, err := e.Message()
	if err != nil {
		return nil
	}
	answer, ok := m.(entry.AssistantMessage)
	if !ok {
		return nil
	}
	return answer.Content.ToolCalls()
}
