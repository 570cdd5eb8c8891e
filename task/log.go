package task

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task/isolation"
)

// Custom entry types of a parent's log.
const (
	// SpawnType is the entry before a call starts its subagents. Its data is a Spawn.
	SpawnType = "agentrun.task.spawn"
	// EndType is the entry when one of them has come to an end. Its data is an End.
	EndType = "agentrun.task.end"
	// ReportType is the message that hands an agent a report which no call of it waits for.
	ReportType = "agentrun.task.report"
)

// Spawn is what a call starts.
type Spawn struct {
	Call       string          `json:"call"` // the tool call
	Agents     []Spawned       `json:"agents"`
	Input      json.RawMessage `json:"input,omitempty"`      // of the call: what each was given
	Background bool            `json:"background,omitempty"` // nobody waits for them
}

// Spawned is one subagent of a call.
type Spawned struct {
	ID    string    `json:"id"`
	Agent string    `json:"agent"` // its type
	Task  string    `json:"task"`
	Began time.Time `json:"began"`
}

// Status is what became of a subagent.
type Status string

// The ends of a subagent, and what it is before that.
const (
	Completed   Status = "completed"
	Failed      Status = "failed"           // its model failed for good
	OverBudget  Status = "budget"           // requests, tokens or cost were spent
	TimedOut    Status = "timeout"          // its time was over
	Cancelled   Status = "cancelled"        // its parent was
	Crashed     Status = "crashed"          // its session cannot be continued
	BadAnswer   Status = "schema-violation" // it gave no answer as its schema says
	Queued      Status = "queued"
	Running     Status = "running"
	Interrupted Status = "interrupted" // its process was killed: it goes on when its parent does
)

// End is what became of a subagent.
type End struct {
	ID      string      `json:"id"`
	Status  Status      `json:"status"`
	Reason  string      `json:"reason,omitempty"`
	Version int         `json:"version,omitempty"` // of its output
	Ended   time.Time   `json:"ended"`
	Spent   agent.Spent `json:"spent"`         // by it in Run, those below it aside
	Run     string      `json:"run,omitempty"` // of the subagent, that ended so; "" when none began
	// Isolation is what files it had; "" is those of its parent. Patch is what it changed in its own, nil when that is not
	// known.
	Isolation isolation.Kind `json:"isolation,omitempty"`
	Patch     *Patch         `json:"patch,omitempty"`
	Late      bool           `json:"late,omitempty"` // no call waits for it: a message of ReportType hands it over
}

// statusOf is what the end of a run is for a subagent.
func statusOf(s agent.Status) Status {
	switch s {
	case agent.Completed:
		return Completed
	case agent.BudgetEnd:
		return OverBudget
	case agent.TimeoutEnd:
		return TimedOut
	case agent.Cancelled:
		return Cancelled
	}
	return Failed
}

// spawned finds what a call has started before a crash, and which of it came to an end.
func spawned(ctx context.Context, s *session.Session, call string) (*Spawn, map[string]End, error) {
	if call == "" {
		return nil, nil, nil
	}
	f := family{ends: map[string]End{}}
	for e, err := range s.Backward(ctx) {
		if err != nil {
			return nil, nil, err
		}
		switch e.Type() {
		case entry.TypeMessage:
			// The call's own answer stands before what it has started.
			if e.Role() == entry.RoleAssistant {
				for _, id := range e.ToolCallIDs() {
					if id == call {
						return nil, nil, nil
					}
				}
			}
		case entry.TypeCustom:
			if c, ok := e.Custom(); ok {
				f.note(c)
			}
			if n := len(f.spawns); n > 0 && f.spawns[n-1].Call == call {
				return &f.spawns[n-1], f.ends, nil
			}
		}
	}
	return nil, nil, nil
}

// record appends a custom entry.
func record(ctx context.Context, s *session.Session, kind string, data any) error {
	raw, err := json.Marshal(data)
	if err == nil {
		_, err = s.Append(context.WithoutCancel(ctx), entry.Custom{CustomType: kind, Data: raw})
	}
	if err != nil {
		return fmt.Errorf("recording subagents: %w", err)
	}
	return nil
}
