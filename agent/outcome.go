package agent

import (
	"time"

	"github.com/agentrun/agentrun/session/entry"
)

// Status is how a run ended.
type Status string

// The ends of a run. Those but Completed can be resumed.
const (
	Completed  Status = "completed"  // the model had nothing more to do
	FailedRun  Status = "failed"     // the provider failed for good, or a hook or a person stopped it
	BudgetEnd  Status = "budget"     // requests, tokens or cost are spent
	TimeoutEnd Status = "timeout"    // its time is over
	Cancelled  Status = "cancelled"  // somebody ended it
	Unfinished Status = "unfinished" // it has no end in the log: it goes on, or its process was killed
)

// Outcome is what became of a run.
type Outcome struct {
	Run     string        `json:"run"` // its id
	Status  Status        `json:"status"`
	Reason  string        `json:"reason,omitempty"` // a sentence, for every status but completed
	Text    string        `json:"text"`             // the last answer
	Entry   string        `json:"entry,omitempty"`  // of the last answer
	Spent   Spent         `json:"spent"`            // by this run and those before it that were killed and that it goes on with, subagents aside
	Total   Spent         `json:"total"`            // by the agent since its prompt, which is what limits bound
	Calls   int           `json:"calls"`            // that got a result in this run
	Usage   entry.Usage   `json:"usage"`
	Took    time.Duration `json:"-"`
	Resumed bool          `json:"resumed"` // the run went on with one before
	// CountedOn says that Total has what those before have spent, if they spent anything, and Anew that it has not, because the last one was
	// at its end and something new came.
	CountedOn bool `json:"-"`
	Anew      bool `json:"-"`
}
