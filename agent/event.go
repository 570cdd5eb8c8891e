package agent

import (
	"encoding/json"
	"time"

	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// State is what an agent does.
type State string

// States of an agent.
const (
	Idle       State = "idle"       // it has not run yet
	Thinking   State = "thinking"   // it waits for the model
	Calling    State = "calling"    // tools are at work
	Waiting    State = "waiting"    // for a person's decision
	Compacting State = "compacting" // the context is made shorter
	Stopped    State = "stopped"    // a run came to an end, whichever
	Failed     State = "failed"     // a run failed
)

// Event is something that happens in a run: one of the types below, by value, and no other.
type Event interface{ event() }

type (
	// StateChanged says what the agent does from now on.
	StateChanged struct{ State State }

	// Answering is a piece of an answer as it comes. The answer is in the log when Answered follows.
	Answering struct{ Event model.Event }

	// Answered is an answer that is in the log.
	Answered struct {
		Entry   string // its id
		Message entry.AssistantMessage
	}

	// Retrying says that a request failed and is made again.
	Retrying struct {
		Try  int // the one that failed, from 1; 0 for a model that asks again by itself
		Of   int // how many there are at most
		Err  error
		Wait time.Duration
	}

	// CallStarted says that a tool is at work for the model.
	CallStarted struct {
		ID, Tool  string
		Arguments json.RawMessage
	}

	// CallFinished is a call whose result is in the log.
	CallFinished struct {
		ID, Tool string
		Entry    string // of the result
		Result   tool.Result
		Took     time.Duration
	}

	// Heard is a message of somebody else that went into the context.
	Heard struct {
		Entry string
		Text  string
	}

	// ModeChanged says that the mode of the session is another one, whoever changed it.
	ModeChanged struct{ Mode plan.Mode }

	// TodoChanged is the list of what is to be done, when it was set.
	TodoChanged struct{ Items []plan.Item }

	// Warned is something that went wrong beside the run, such as a hook that failed: a sentence. The agent makes none
	// itself; who has one for the front-ends of a run sends it where the others go.
	Warned struct{ Text string }

	// Compacted says that the context was made shorter.
	Compacted struct{ Tokens int64 } // that it had before, as estimated

	// Spawned is a subagent that has its id. It works when it is its turn. It is observed as an event of the subagent, before
	// any other.
	Spawned struct{ Type string } // of the agent

	// Reported is a subagent whose end is in the log of the agent that started it, and whose report is kept. Status is one of
	// those of package task, which know more than that of the Outcome. It is observed as an event of the subagent.
	Reported struct {
		Status, Reason string
		URL            string // of the report; "" when there is none
		Spent          Spent  // by it in its last run, those below it aside
	}

	// Ended is the end of a run.
	Ended struct{ Outcome Outcome }
)

func (StateChanged) event() {}
func (Answering) event()    {}
func (Answered) event()     {}
func (Retrying) event()     {}
func (CallStarted) event()  {}
func (CallFinished) event() {}
func (Heard) event()        {}
func (ModeChanged) event()  {}
func (TodoChanged) event()  {}
func (Warned) event()       {}
func (Compacted) event()    {}
func (Spawned) event()      {}
func (Reported) event()     {}
func (Ended) event()        {}
