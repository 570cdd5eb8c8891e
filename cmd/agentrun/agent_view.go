package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/chat"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
	"github.com/agentrun/agentrun/model"
)

// agentView shows a run as it goes: what the agent says on standard output, everything else on standard error; both below
// one another with the tree of agents at a terminal; with --json one object a line.
type agentView struct {
	*environment
	mu    sync.Mutex
	line  bool          // standard output is in the middle of a line
	said  bool          // standard output has text of an answer that is not in the log yet
	clean *runview.Text // of what goes to a terminal; nil where it is a file

	live    *runview.Live // nil where there is no terminal
	stderr0 io.Writer     // standard error itself, while there is a live view
	resized chan os.Signal

	front *chat.Front // of a chat, which has all events; nil without one

	asking sync.Mutex // guards lines
	lines  chan string

	took     map[string]time.Duration // the last run of a subagent
	subjects map[string]string        // what calls are about, by agent and id
	begun    func()                   // says once that the run is in its session; nil from then on

	unpriced bool               // nobody knows what the model costs
	spent    func() agent.Spent // by all agents together
}

func newAgentView(e *environment) *agentView {
	v := &agentView{environment: e, took: map[string]time.Duration{}, subjects: map[string]string{}}
	if columns(e.stdout) > 0 && !e.json {
		v.clean = &runview.Text{}
	}
	return v
}

// begin is the beginning of the run.
func (v *agentView) begin(session string) {
	if v.json {
		_ = printJSON(v.stdout, agentEvent{Version: 1, Agent: agent.MainID, Event: "begin", Session: session})
	}
	if v.json || v.quiet || columns(v.stdout) == 0 || columns(v.stderr) == 0 || os.Getenv("TERM") == "dumb" {
		return
	}
	v.live = runview.NewLive(v.stdout, func() (int, int) { return extent(v.stdout) }, coloured(v.stdout))
	v.stderr0, v.environment.stderr = v.environment.stderr, v.live
	v.resized = make(chan os.Signal, 1)
	signal.Notify(v.resized, syscall.SIGWINCH)
	go func(live *runview.Live) {
		for range v.resized {
			live.Redraw()
		}
	}(v.live)
}

// leave ends the live view, if there is one.
func (v *agentView) leave() {
	if v.live == nil {
		return
	}
	signal.Stop(v.resized)
	close(v.resized) // nothing is sent after Stop
	v.live.Close()
	v.environment.stderr, v.live = v.stderr0, nil
}

// agentEvent is what run --json prints. Members that an event does not have are left out.
type agentEvent struct {
	Version    int             `json:"v"` // of this form: 1
	Agent      string          `json:"agent"`
	Event      string          `json:"event"` // as run --help lists them
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
	Try        int             `json:"try,omitempty"`   // of a request, the one that failed
	Tries      int             `json:"tries,omitempty"` // that there are of it at most
	Mode       plan.Mode       `json:"mode,omitempty"`
	Items      []plan.Item     `json:"items,omitempty"` // of todo
	Type       string          `json:"type,omitempty"`  // of a subagent
	Status     string          `json:"status,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	URL        string          `json:"url,omitempty"` // of a report
	Spent      *agent.Spent    `json:"spent,omitempty"`
	Outcome    *agent.Outcome  `json:"outcome,omitempty"`
}

// observe shows an event of an agent.
func (v *agentView) observe(id string, e agent.Event) {
	if part, ok := e.(agent.Answering); ok {
		if again, ok := part.Event.(model.Retry); ok { // of a model that tries again by itself
			e = agent.Retrying{Err: again.Err, Wait: again.Wait}
		}
	}
	if v.front != nil {
		v.front.Observe(id, e)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.begun != nil {
		v.begun()
	}
	if v.json {
		if line, ok := describeEvent(e); ok {
			line.Version, line.Agent = 1, id
			if _, over := e.(agent.Ended); over && id == agent.MainID {
				all := v.spent()
				line.Spent = &all
			}
			_ = printJSON(v.stdout, line) // who does not listen any more misses nothing that is not in the log
		}
		return
	}
	if v.live != nil {
		v.live.Observe(id, e)
		return
	}
	main := id == agent.MainID
	switch e := e.(type) {
	case agent.Answering:
		if delta, ok := e.Event.(model.TextDelta); ok && main {
			text := delta.Text
			if v.clean != nil {
				text = v.clean.Add(text)
			}
			v.print(text)
		}
	case agent.Answered:
		v.endLine()
		for _, call := range e.Message.Content.ToolCalls() { // one that is refused is not started
			v.subjects[id+"\n"+call.ID] = runview.Subject(call.Arguments)
		}
		if main {
			v.said = false
		}
	case agent.CallStarted:
		v.subjects[id+"\n"+e.ID] = runview.Subject(e.Arguments)
	case agent.Retrying:
		v.endLine()
		if main && v.said { // who reads standard output alone must know too
			v.print("[the answer above was cut off; it is asked for again]\n")
			v.said = false
		}
		v.remark("%s: %v; trying again in %s%s", id, e.Err, runview.Duration(e.Wait), runview.Tries(e))
	case agent.CallFinished:
		v.endLine()
		v.remark("%s", callLine(id, v.subjects[id+"\n"+e.ID], e))
		delete(v.subjects, id+"\n"+e.ID)
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
		if !main { // what became of it is known when it has reported
			v.took[id] = e.Outcome.Took
		}
	case agent.Reported:
		v.endLine()
		v.remark("%s", reportLine(id, e, v.took[id]))
	}
}

// print prints what the agent says.
func (v *agentView) print(text string) {
	if text != "" {
		v.said = true
		fmt.Fprint(v.stdout, text)
		v.line = !strings.HasSuffix(text, "\n")
	}
}

func (v *agentView) endLine() {
	if v.clean != nil {
		v.print(v.clean.End())
	}
	if v.line {
		fmt.Fprintln(v.stdout)
		v.line = false
	}
}

// end is the end of the run, for one that did not begin either.
func (v *agentView) end(out agent.Outcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leave()
	v.endLine()
	if v.json || out.Status != agent.Completed && v.spent().Requests == 0 {
		return
	}
	v.remark("%s", endLine(out, v.spent(), v.unpriced))
}

// endLine says what a run has spent with all its agents together.
func endLine(out agent.Outcome, all agent.Spent, unpriced bool) string {
	cost := fmt.Sprintf("$%.4f", all.Cost)
	if unpriced && all.Cost == 0 { // else a subagent asked another model
		cost = "at prices that are not known"
	}
	how := "completed"
	if out.Status != agent.Completed {
		how = "spent" // why it ended is told behind it
	}
	line := fmt.Sprintf("%s: %s, %s, %s", how, count(int64(all.Requests), "request", "requests"), count(all.Tokens, "token", "tokens"), cost)
	if all != out.Total {
		line += ", by all agents together"
	}
	switch {
	case out.CountedOn:
		line += ", with what came before it was resumed"
	case out.Anew:
		line += ", since it was resumed"
	}
	return line
}

// callLine is a call in one line: the tool and what it was about, how it went and, if it failed, why.
func callLine(id, subject string, e agent.CallFinished) string {
	line := id + ": " + runview.Clean(e.Tool)
	if subject != "" {
		line += " " + subject
	}
	if e.Result.IsError {
		line += " failed"
	}
	if e.Result.Artifact != "" {
		line += " " + e.Result.Artifact
	}
	line += " " + runview.Duration(e.Took)
	if reason := runview.Reason(e.Result); reason != "" {
		line += ": " + reason
	}
	return line
}

// reportLine is the end of a subagent in one line; one that did not run in this process took no time.
func reportLine(id string, e agent.Reported, took time.Duration) string {
	line := id + ": " + e.Status
	if took > 0 {
		line += ", " + runview.Duration(took)
	}
	line += ", " + count(e.Spent.Tokens, "token", "tokens")
	if e.Reason != "" {
		line += ": " + e.Reason
	}
	return line
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
		return agentEvent{Event: "retry", Error: e.Err.Error(), DurationMS: e.Wait.Milliseconds(), Try: e.Try, Tries: e.Of}, true
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
	case agent.Spawned:
		return agentEvent{Event: "spawned", Type: e.Type}, true
	case agent.Reported:
		return agentEvent{Event: "reported", Status: e.Status, Reason: e.Reason, URL: e.URL, Spent: &e.Spent}, true
	case agent.Ended:
		return agentEvent{Event: "end", Outcome: &e.Outcome}, true
	}
	return agentEvent{}, false
}

// asker asks the person at the terminal whether a call may be made; nil when nobody is there.
func (v *agentView) asker() func(context.Context, agent.Question) (bool, error) {
	if v.front != nil {
		return v.front.Ask
	}
	if v.json || columns(v.stdin) == 0 || columns(v.stderr) == 0 {
		return nil
	}
	return func(ctx context.Context, q agent.Question) (bool, error) {
		v.asking.Lock() // one after the other
		defer v.asking.Unlock()
		v.mu.Lock()
		out := v.stderr
		if v.live != nil {
			defer v.live.Hold()()
			out = v.stderr0
		}
		v.endLine()
		v.mu.Unlock()
		_ = unix.IoctlSetInt(int(v.stdin.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what was typed before is no answer
		fmt.Fprintf(out, "agentrun: %s wants to call %s with %s\n%v. May it? [y/N] ", runview.Clean(q.Agent), runview.Clean(q.Tool),
			runview.CleanLines(string(q.Arguments)), runview.Clean(fmt.Sprint(q.Decision)))
		select {
		case said := <-v.typed():
			said = strings.ToLower(strings.TrimSpace(said))
			return said == "y" || said == "yes", nil
		case <-ctx.Done():
			fmt.Fprintln(out)
			return false, context.Cause(ctx)
		}
	}
}

// typed are the lines that a person types, from the first question on.
func (v *agentView) typed() <-chan string {
	if v.lines == nil {
		v.lines = make(chan string)
		go func() {
			in := bufio.NewReader(v.stdin)
			for {
				line, err := in.ReadString('\n')
				v.lines <- line // what is no line is a no
				if err != nil {
					close(v.lines)
					return
				}
			}
		}()
	}
	return v.lines
}
