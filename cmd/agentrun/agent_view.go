package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/model"
)

// agentView shows a run as it goes: what the agent says on standard output, everything else on standard error; with
// --json one object a line.
type agentView struct {
	*environment
	mu   sync.Mutex
	line bool // standard output is in the middle of a line
}

func newAgentView(e *environment) *agentView { return &agentView{environment: e} }

// agentEvent is what run --json prints. Members that an event does not have are left out.
type agentEvent struct {
	Version    int             `json:"v"` // of this form: 1
	Agent      string          `json:"agent"`
	Event      string          `json:"event"` // begin, state, text, thinking, answer, retry, call, result, heard, mode, todo, warning, compacted, end
	Session    string          `json:"session,omitempty"`
	State      agent.State     `json:"state,omitempty"`
	Text       string          `json:"text,omitempty"`
	Entry      string          `json:"entry,omitempty"`
	ID         string          `json:"id,omitempty"` // of a call
	Tool       string          `json:"tool,omitempty"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	IsError    bool            `json:"isError,omitempty"`
	Artifact   string          `json:"artifact,omitempty"`
	DurationMS int64           `json:"durationMs,omitempty"`
	Error      string          `json:"error,omitempty"`
	Mode       plan.Mode       `json:"mode,omitempty"`
	Items      []plan.Item     `json:"items,omitempty"` // of todo
	Outcome    *agent.Outcome  `json:"outcome,omitempty"`
}

// begin is the beginning of the run.
func (v *agentView) begin(session string) {
	if v.json {
		_ = printJSON(v.stdout, agentEvent{Version: 1, Agent: agent.MainID, Event: "begin", Session: session})
	}
}

// observe shows an event of an agent.
func (v *agentView) observe(id string, e agent.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.json {
		if line, ok := describeEvent(e); ok {
			line.Version, line.Agent = 1, id
			_ = printJSON(v.stdout, line) // who does not listen any more misses nothing that is not in the log
		}
		return
	}
	main := id == agent.MainID
	switch e := e.(type) {
	case agent.Answering:
		if delta, ok := e.Event.(model.TextDelta); ok && main {
			fmt.Fprint(v.stdout, delta.Text)
			if delta.Text != "" {
				v.line = !strings.HasSuffix(delta.Text, "\n")
			}
		}
	case agent.Answered:
		v.endLine()
	case agent.Retrying:
		v.endLine()
		v.remark("%s: %v; trying again in %v", id, e.Err, e.Wait.Round(time.Millisecond))
	case agent.CallFinished:
		v.endLine()
		v.remark("%s", callLine(id, e))
	case agent.Heard:
		v.endLine()
		v.remark("%s was told: %s", id, e.Text)
	case agent.ModeChanged:
		v.endLine()
		v.remark("%s: the mode is %s", id, e.Mode)
	case agent.Warned:
		v.endLine()
		v.remark("%s", e.Text)
	case agent.Compacted:
		v.remark("%s: the context was compacted (%d tokens before)", id, e.Tokens)
	case agent.Ended:
		if !main {
			v.remark("%s: %s, %s, %d tokens", id, e.Outcome.Status, e.Outcome.Took.Round(time.Millisecond), e.Outcome.Spent.Tokens)
		}
	}
}

func (v *agentView) endLine() {
	if v.line {
		fmt.Fprintln(v.stdout)
		v.line = false
	}
}

// end is the end of the run, for one that did not begin either.
func (v *agentView) end(out agent.Outcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endLine()
	if v.json || out.Status != agent.Completed {
		return
	}
	v.remark("completed: %d requests, %d tokens, $%.4f", out.Spent.Requests, out.Spent.Tokens, out.Spent.Cost)
}

// callLine is a call in one line.
func callLine(id string, e agent.CallFinished) string {
	state := ""
	if e.Result.IsError {
		state = " failed"
	}
	if e.Result.Artifact != "" {
		state += " " + e.Result.Artifact
	}
	return fmt.Sprintf("%s: %s%s %v", id, e.Tool, state, e.Took.Round(time.Millisecond))
}

// describeEvent is an event as it is printed.
func describeEvent(e agent.Event) (agentEvent, bool) {
	switch e := e.(type) {
	case agent.StateChanged:
		return agentEvent{Event: "state", State: e.State}, true
	case agent.Answering:
		switch delta := e.Event.(type) {
		case model.TextDelta:
			return agentEvent{Event: "text", Text: delta.Text}, true
		case model.ThinkingDelta:
			return agentEvent{Event: "thinking", Text: delta.Text}, true
		}
		return agentEvent{}, false
	case agent.Answered:
		return agentEvent{Event: "answer", Entry: e.Entry, Text: e.Message.Content.Text()}, true
	case agent.Retrying:
		return agentEvent{Event: "retry", Error: e.Err.Error(), DurationMS: e.Wait.Milliseconds()}, true
	case agent.CallStarted:
		return agentEvent{Event: "call", ID: e.ID, Tool: e.Tool, Arguments: e.Arguments}, true
	case agent.CallFinished:
		return agentEvent{
			Event: "result", ID: e.ID, Tool: e.Tool, Entry: e.Entry, Text: e.Result.Text, IsError: e.Result.IsError,
			Artifact: e.Result.Artifact, DurationMS: e.Took.Milliseconds(),
		}, true
	case agent.Heard:
		return agentEvent{Event: "heard", Entry: e.Entry, Text: e.Text}, true
	case agent.ModeChanged:
		return agentEvent{Event: "mode", Mode: e.Mode}, true
	case agent.TodoChanged:
		return agentEvent{Event: "todo", Items: e.Items}, true
	case agent.Warned:
		return agentEvent{Event: "warning", Text: e.Text}, true
	case agent.Compacted:
		return agentEvent{Event: "compacted"}, true
	case agent.Ended:
		return agentEvent{Event: "end", Outcome: &e.Outcome}, true
	}
	return agentEvent{}, false
}

// asker asks the person at the terminal whether a call may be made; nil when nobody is there.
func (v *agentView) asker() func(context.Context, agent.Question) (bool, error) {
	if v.json || columns(v.stdin) == 0 || columns(v.stderr) == 0 {
		return nil
	}
	return func(ctx context.Context, q agent.Question) (bool, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.endLine()
		fmt.Fprintf(v.stderr, "agentrun: %s wants to call %s with %s\n%v. May it? [y/N] ", q.Agent, q.Tool, visible(string(q.Arguments)), q.Decision)
		answer := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(v.stdin).ReadString('\n') // what is no line is a no
			answer <- strings.ToLower(strings.TrimSpace(line))
		}()
		select {
		case said := <-answer:
			return said == "y" || said == "yes", nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
