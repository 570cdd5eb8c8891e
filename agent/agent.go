// Package agent works a session: it asks a model, makes the tool calls that the model wants, and puts everything into
// the log before anything acts on it.
//
// # Promises
//
//   - An answer is in the log before its calls are made. A call has finished when its result is in the log, and
//     gets exactly one: what the tool said, or why there is nothing: refused, cancelled, or cut off by a crash.
//   - A run that is on disk can be resumed: its header, settings and prompt are one write. After kill -9 at any moment
//     [Agent.Resume] goes on: calls that have a result are not made again; those without one are made again if their
//     tool is idempotent, and otherwise the model is told that they were interrupted and what is known of them.
//   - One process drives a session, which the driver lease of the session holds: a second one gets a
//     *session.LockedError that names the first. Everybody may append meanwhile. What they append to the context is read
//     before the next request; what they say with [Say] is taken up exactly once.
//   - Every run ends with a [Status] that is true, in the log and in the [Outcome], and with a log that opens: also when it is
//     cancelled, when a budget is spent, and when the provider fails. Only a log that cannot be written is an error, and
//     a call that says tool.ErrUnfinished: the status is then FailedRun, and Resume goes on when there is room again.
//   - An answer that was cut at the output limit of its model is gone on with, [MaxContinuations] times in a row, and the Outcome has
//     all of its pieces as one text; then the run has failed. A call whose arguments were cut is not made, which the model is told.
//   - Where the session replaces secrets, the model, events and the Outcome have what the log has. A call is made with what the
//     model said; one that has to be made again from a log that lacks it is told as interrupted.
//   - Limits hold for the work that a prompt begins: what a run has spent counts when it goes on after a crash, a cancel or a limit.
//   - Building the context of a request costs what was appended since the last one, however long the session is.
//
// # Events
//
// Front-ends listen to [Event] values and have no other part in a run, but for the answers they give to
// [Options].Ask. Events of one run come one after the other, from the goroutines of the run, which wait for their
// listener: it must be quick and must not call the Agent.
//
// An Agent is safe for concurrent use, and has one run at a time.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/toolset"
)

// MainID is what the agent of a session itself is called; subagents have output ids such as 0-Review.
const MainID = "main"

// Options say what an Agent works with.
type Options struct {
	Session *session.Session // open for writing; it may have no file yet; SetRedactor was called before
	Model   model.Model
	// Spec is how the model is opened again, for whoever resumes the run; the log keeps it.
	Spec string
	// Settings are what else makes these options again, JSON of whoever made them; the log keeps it. nil is nothing.
	Settings json.RawMessage
	// Seal is asked when a run begins for what the log keeps beside Settings, by which whoever resumes the run can tell that they
	// are those it began with. nil keeps nothing.
	Seal  func(run string) (string, error)
	Tools *toolset.Set // nil offers none

	// ID is the agent's id, MainID if it is "".
	ID string
	// System is the system prompt, in parts: what never changes comes first.
	System entry.Prompt
	// Thinking is how much the model thinks, one of model.ThinkingLevels; "" is off.
	Thinking string
	// Answer makes every answer JSON; nil for text.
	Answer *model.AnswerSchema

	// Limits end a run; the zero value has none.
	Limits Limits
	// Budget is shared with others: what the run spends counts there too, and it ends when that is spent. nil is for none.
	Budget *Budget
	// Below is asked when Resume goes on with a run that began at since: what its subagents have spent from then on, at any depth, and
	// how many were started. It is counted in Budget, as what the run itself has spent is. nil has no subagents.
	Below func(ctx context.Context, since time.Time) (spent Spent, started int, err error)

	// Rules decide on calls, the strictest one counting. nil allows every call; an empty slice, as a list that lacks
	// what it should have, none.
	Rules []*permission.Rules
	// Dir is where relative paths of calls begin, for Rules; "" is the working directory of the session.
	Dir string
	// Ask asks a person about a call that a rule wants asked. nil, or an error, denies it.
	Ask func(ctx context.Context, q Question) (bool, error)

	// Artifacts is where results go that are longer than a model is shown and that their tool did not keep; nil cuts
	// them, which the text then says.
	Artifacts *artifacts.Dir

	// Done is asked when all calls of an answer have their results, with the conversation so far: true ends the run, which
	// is completed. It is asked too when a run is resumed. nil lets the model have the last word.
	Done func(messages []entry.Message) bool
	// Next is asked when the model has answered without a call: what it returns is said to the model, which goes on;
	// "" ends the run. nil always ends it.
	Next func(ctx context.Context, answer entry.AssistantMessage) (say string, err error)
	// Inbox is asked before each request for messages from elsewhere, such as results of jobs: what it returns is
	// appended, in one write. It hands each over once. nil has none.
	Inbox func(ctx context.Context) ([]entry.Body, error)
	// Pending reports whether there is something that goes on, or will when Await is asked, and whose outcome Inbox hands
	// over. Resume asks it of a run that came to its end, which then goes on. nil is never.
	Pending func(ctx context.Context) (bool, error)
	// Await is asked when the model has answered without a call, before Next. It returns true when Inbox has something, for
	// which it waits as long as something goes on. nil waits for nothing.
	Await func(ctx context.Context) (bool, error)
	// Compact is asked before a request of an estimate of CompactAt tokens or more, and may shorten the context through
	// the session; after an overflow it is asked with overflow set. It reports whether it did. What it asks a model for counts
	// when it is in the log as an entry.ModelUsage of CompactPurpose. A *model.Error, and ErrTooLong, end the run as failed.
	// nil never shortens. Package agent/compact has one.
	Compact func(ctx context.Context, tokens int64, overflow bool) (bool, error)
	// CompactAt is from how many tokens on Compact is asked; 0 is always.
	CompactAt int64
	// Count counts the tokens of a text where no provider has yet; nil is EstimateTokens. It is asked only for texts that, at a
	// token a byte, would bring a request to CompactAt.
	Count func(text string) int64

	// Hooks have their say at points of the run.
	Hooks Hooks
	// More are rules that hold at this moment besides Rules, such as those of a mode; it is asked for each call. nil has none.
	More func() []*permission.Rules

	// Observe is told what happens; nil for nobody.
	Observe func(Event)

	// Retries says how failures of a provider are met; the zero value is DefaultRetries.
	Retries Retries
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Question is a call that a person decides on.
type Question struct {
	Agent     string
	Tool      string
	Arguments json.RawMessage
	Decision  permission.Decision // why it is asked
}

// Agent works one session.
type Agent struct {
	o Options

	mu      sync.Mutex
	running bool
	state   State
}

// New returns an agent. It touches nothing.
func New(o Options) (*Agent, error) {
	switch {
	case o.Session == nil:
		return nil, errors.New("making an agent: it has no session")
	case o.Model == nil:
		return nil, errors.New("making an agent: it has no model")
	}
	if o.ID == "" {
		o.ID = MainID
	}
	if o.Tools == nil {
		var err error
		if o.Tools, err = toolset.New(); err != nil {
			return nil, err
		}
	}
	if o.Dir == "" {
		o.Dir = o.Session.CWD()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Count == nil {
		o.Count = EstimateTokens
	}
	o.Retries = o.Retries.orDefault()
	if by := o.Session.Redactor(); by != nil {
		o.System = slices.Clone(o.System)
		for i := range o.System {
			o.System[i] = cleared(by, o.System[i])
		}
	}
	return &Agent{o: o, state: Idle}, nil
}

// Run says prompt to the model and works until there is nothing more to do. With it come entries that belong before it, such
// as the files that it mentions or a mode: they are one write with it and with the settings of the run. The error is agentrun's own: the
// session is driven by somebody else (*session.LockedError), or its log cannot be written; the Outcome tells then how far
// it came. Everything else is in the Outcome.
func (a *Agent) Run(ctx context.Context, prompt entry.Content, with ...entry.Body) (Outcome, error) {
	return a.drive(ctx, func(ctx context.Context, r *run) (bool, error) {
		return true, r.begin(ctx, &prompt, with...)
	})
}

// Begin writes down what Run would begin with, and leaves the work to whoever resumes the session, in this process or in
// another one. It returns the id of the run.
func (a *Agent) Begin(ctx context.Context, prompt entry.Content, with ...entry.Body) (id string, err error) {
	out, err := a.drive(ctx, func(ctx context.Context, r *run) (bool, error) {
		return false, r.begin(ctx, &prompt, with...)
	})
	return out.Run, err
}

// Resume goes on where the last run of the session stopped. A run that came to its end, and a session without one, is
// left as it is: the Outcome is then that of the last run, and Resumed is false. What somebody has said since with Say, and
// what is Pending, makes it go on.
func (a *Agent) Resume(ctx context.Context) (Outcome, error) {
	return a.drive(ctx, func(ctx context.Context, r *run) (bool, error) {
		if r.past.finished() && len(r.past.queued) == 0 {
			pending := false
			if r.Pending != nil && r.past.start != nil {
				var err error
				if pending, err = r.Pending(ctx); err != nil {
					return false, err
				}
			}
			if !pending {
				r.outcome = r.past.outcome()
				return false, nil
			}
		}
		return true, r.begin(ctx, nil)
	})
}

// State is what the agent does at the moment.
func (a *Agent) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// drive holds the lease for one run.
func (a *Agent) drive(ctx context.Context, start func(context.Context, *run) (going bool, err error)) (out Outcome, err error) {
	a.mu.Lock()
	if a.running {
		a.mu.Unlock()
		return Outcome{}, errors.New("running the agent: it is running already; say something to it, or wait for its end")
	}
	a.running = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.running = false
		a.mu.Unlock()
	}()
	lease, err := a.o.Session.Drive()
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, lease.Close()) }()
	r := &run{Options: &a.o, agent: a, began: a.o.Now()}
	if r.past, err = readPast(ctx, a.o.Session, a.o.ID); err != nil {
		return Outcome{}, fmt.Errorf("running the agent: %w", err)
	}
	going, err := start(ctx, r)
	if err != nil {
		r.outcome.Status, r.outcome.Reason = FailedRun, err.Error()
	}
	if err != nil || !going {
		return r.outcome, err
	}
	return r.work(ctx)
}
