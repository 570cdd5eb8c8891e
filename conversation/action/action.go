// Package action works out what an action of agent.v1 makes of the state of a conversation, and what its driver has to do
// then. Nothing here has side effects: the state that is given stays as it is, and blobs are returned, not stored.
//
// # Actions and their effects
//
//	  action                          the state afterwards                                     effect
//	1 user message                    messages put before it and it, a turn each; its mode     Run; what was pending is interrupted
//	2 resume                          as it was                                                Run
//	3 cancel                          nothing is pending                                       Cancel; what was pending is interrupted
//	4 summarize                       as it was                                                Summarize
//	5 shell command                   a shell turn without output                              RunShell
//	6 start plan                      a turn; mode plan                                        Run, with Spec as asked
//	7 execute plan                    the plan, if one is given; its mode, else agent; a       Run, with the text of the plan
//	                                  simulated message as a turn
//	8 answer to an asked question     the call with its result, where it was asked, else at    Run
//	                                  the end of the newest turn of the agent
//	9 end of a subagent (2.3.41)      as it was                                                Deliver
//	10 cancel subagent                as it was                                                CancelSubagent
//	12 end of background tasks        a simulated message that tells of them, as a turn        Run
//	13 shell to the background        as it was                                                Background
//	14 subagent to the background     as it was                                                Background
//	16 subscription, 18 goal,         as it was                                                Deliver
//	19 context
//	any other                         as it was                                                Unknown
//
// What is inside 9, 16, 18 and 19 is not known; whoever drives the conversation gets the action as it came. Action 9 is read
// and never written.
package action

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Read returns the bytes of a blob of the state. Errors are those of blobstore.Store.
type Read func(ref blobref.Ref) ([]byte, error)

// Blob is a blob that a state refers to. It has to be stored before the state is.
type Blob struct {
	Ref  blobref.Ref
	Data []byte
}

// Kind is what a driver has to do.
type Kind int

// What there is to do.
const (
	Unknown        Kind = iota // nothing that this version knows of; Numbers says what the action has
	Run                        // ask the model
	Cancel                     // end what runs
	Summarize                  // make the context shorter
	RunShell                   // run Command, and put its output into the shell turn Turn
	CancelSubagent             // end the subagent ID
	Background                 // the tool call ID goes on in the background
	Deliver                    // hand the action to whoever knows what it means
)

var kindNames = [...]string{"unknown", "run", "cancel", "summarize", "run shell", "cancel subagent", "background", "deliver"}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// Effect is what has to be done.
type Effect struct {
	Kind Kind
	// Turn is the index of the turn that the action made or is about, -1 where there is none.
	Turn int
	// Interrupted are the tool calls, JSON as they stood in the state, that nobody waits for any more.
	Interrupted []string
	Reason      string // of Cancel
	Command     string // of RunShell
	ExecID      string // of RunShell
	ID          string // of CancelSubagent, the subagent; of Background, the tool call
	Plan        string // of Run, the plan to follow; "" without one
	Spec        bool   // of Run, the plan is to be a specification
	// Numbers are the fields of an Unknown action, and of one to Deliver that has no type, rising.
	Numbers []int32
}

var (
	// ErrInvalid means that an action lacks what it is about, or is not one that can follow on the state. The state stays
	// as it was.
	ErrInvalid = errors.New("the action cannot be applied")

	// ErrState means that a part of the state that the action needs cannot be read as what it has to be.
	ErrState = errors.New("the state of the conversation is not as it has to be")
)

// Apply applies an action to a state and returns the state afterwards, the blobs that it refers to and that are new, and
// what has to be done. With an error there is no state. read is asked for what the action is about only: the plan to
// execute, and for the answer to a question the newest turns.
func Apply(state *agentv1.ConversationStateStructure, read Read, action *agentv1.ConversationAction) (*agentv1.ConversationStateStructure, []Blob, Effect, error) {
	d := &draft{state: &agentv1.ConversationStateStructure{}, read: read}
	if state != nil {
		d.state = proto.CloneOf(state)
	}
	effect, err := d.apply(action)
	if err != nil {
		return nil, nil, Effect{Turn: -1}, err
	}
	return d.state, d.blobs, effect, nil
}

// draft is a state that is being changed.
type draft struct {
	state *agentv1.ConversationStateStructure
	read  Read
	blobs []Blob
}

func (d *draft) apply(action *agentv1.ConversationAction) (Effect, error) {
	switch a := action.GetAction().(type) {
	case *agentv1.ConversationAction_UserMessageAction:
		return d.userMessage(a.UserMessageAction)
	case *agentv1.ConversationAction_ResumeAction:
		return d.resume()
	case *agentv1.ConversationAction_CancelAction:
		return Effect{Kind: Cancel, Turn: d.newest(), Interrupted: d.interrupt(), Reason: a.CancelAction.GetReason()}, nil
	case *agentv1.ConversationAction_SummarizeAction:
		return Effect{Kind: Summarize, Turn: d.newest()}, nil
	case *agentv1.ConversationAction_ShellCommandAction:
		return d.shellCommand(a.ShellCommandAction)
	case *agentv1.ConversationAction_StartPlanAction:
		return d.startPlan(a.StartPlanAction)
	case *agentv1.ConversationAction_ExecutePlanAction:
		return d.executePlan(a.ExecutePlanAction)
	case *agentv1.ConversationAction_AsyncAskQuestionCompletionAction:
		return d.answer(a.AsyncAskQuestionCompletionAction)
	case *agentv1.ConversationAction_CancelSubagentAction:
		return about(CancelSubagent, "the subagent", a.CancelSubagentAction.GetSubagentId())
	case *agentv1.ConversationAction_BackgroundTaskCompletionAction:
		return d.tasksEnded(a.BackgroundTaskCompletionAction)
	case *agentv1.ConversationAction_BackgroundShellAction:
		return about(Background, "the tool call", a.BackgroundShellAction.GetToolCallId())
	case *agentv1.ConversationAction_BackgroundSubagentAction:
		return about(Background, "the tool call", a.BackgroundSubagentAction.GetToolCallId())
	case *agentv1.ConversationAction_SubscriptionNotificationAction, *agentv1.ConversationAction_GoalContinuationAction,
		*agentv1.ConversationAction_InjectContextAction:
		return Effect{Kind: Deliver, Turn: d.newest()}, nil
	}
	return d.untyped(action)
}

// subagentCompletion is the number of an action that only version 2.3.41 of the peer had.
const subagentCompletion = 9

// untyped is an action without a type here.
func (d *draft) untyped(action *agentv1.ConversationAction) (Effect, error) {
	e := Effect{Kind: Unknown, Turn: d.newest()}
	for b := action.ProtoReflect().GetUnknown(); len(b) > 0; {
		n, _, size := protowire.ConsumeField(b)
		if size < 0 {
			return e, fmt.Errorf("%w: it is cut short", ErrInvalid)
		}
		e.Numbers = append(e.Numbers, int32(n))
		b = b[size:]
	}
	slices.Sort(e.Numbers)
	e.Numbers = slices.Compact(e.Numbers)
	if slices.Contains(e.Numbers, subagentCompletion) {
		e.Kind = Deliver
	}
	return e, nil
}

// about is an effect on something that has an id.
func about(kind Kind, what, id string) (Effect, error) {
	if id == "" {
		return Effect{}, fmt.Errorf("%w: it does not say which %s is meant", ErrInvalid, what[len("the "):])
	}
	return Effect{Kind: kind, Turn: -1, ID: id}, nil
}

// newest is the index of the newest turn.
func (d *draft) newest() int { return len(d.state.GetTurns()) - 1 }

// interrupt empties what is pending and returns it.
func (d *draft) interrupt() []string {
	calls := d.state.PendingToolCalls
	d.state.PendingToolCalls = nil
	return calls
}

// put makes a blob of a message and returns its id.
func (d *draft) put(m proto.Message) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, m.ProtoReflect().Descriptor().Name(), err)
	}
	ref := blobref.Of(data)
	if !slices.ContainsFunc(d.blobs, func(b Blob) bool { return b.Ref == ref }) {
		d.blobs = append(d.blobs, Blob{ref, data})
	}
	sum := ref.Sum()
	return sum[:], nil
}

// get reads a blob of the state into a message.
func (d *draft) get(id []byte, into proto.Message) error {
	name := into.ProtoReflect().Descriptor().Name()
	if len(id) != len(blobref.Ref{}.Sum()) {
		return fmt.Errorf("%w: the id of a %s has %d bytes", ErrState, name, len(id))
	}
	data, err := d.read(blobref.FromSum([32]byte(id)))
	if err != nil {
		return fmt.Errorf("%w: reading a %s: %w", ErrState, name, err)
	}
	if err := proto.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: a %s is none: %w", ErrState, name, err)
	}
	return nil
}
