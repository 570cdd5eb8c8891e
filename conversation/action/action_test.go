package action_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation/action"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// world is a state with two turns and what it refers to.
type world struct {
	t     *testing.T
	store *memory.Store
	state *agentv1.ConversationStateStructure
}

func (w *world) put(m proto.Message) []byte {
	w.t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	ref, err := w.store.PutBytes(context.Background(), data)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := ref.Sum()
	return sum[:]
}

func (w *world) read(ref blobref.Ref) ([]byte, error) {
	return w.store.Get(context.Background(), ref)
}

func agentTurn(message []byte, steps ...[]byte) *agentv1.ConversationTurnStructure {
	return &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{
		AgentConversationTurn: &agentv1.AgentConversationTurnStructure{UserMessage: message, Steps: steps, RequestId: proto.String("r")},
	}}
}

func question(id string, result *agentv1.AskQuestionResult) *agentv1.ToolCall {
	return &agentv1.ToolCall{ToolCallId: &id, Tool: &agentv1.ToolCall_AskQuestionToolCall{
		AskQuestionToolCall: &agentv1.AskQuestionToolCall{Args: &agentv1.AskQuestionArgs{Title: "Which?"}, Result: result},
	}}
}

var async = &agentv1.AskQuestionResult{Result: &agentv1.AskQuestionResult_Async{Async: &agentv1.AskQuestionAsync{}}}

var rejected = &agentv1.AskQuestionResult{Result: &agentv1.AskQuestionResult_Rejected{Rejected: &agentv1.AskQuestionRejected{Reason: "neither"}}}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: memory.New(blobstore.Verified)}
	asked := w.put(&agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: question("q1", async)}})
	said := w.put(&agentv1.ConversationStep{Message: &agentv1.ConversationStep_AssistantMessage{AssistantMessage: &agentv1.AssistantMessage{Text: "I ask."}}})
	first := w.put(agentTurn(w.put(&agentv1.UserMessage{Text: "hello"}), said, asked, said))
	second := w.put(agentTurn(w.put(&agentv1.UserMessage{Text: "and?"}), said))
	shell := w.put(&agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_ShellConversationTurn{
		ShellConversationTurn: &agentv1.ShellConversationTurnStructure{ShellCommand: w.put(&agentv1.ShellCommand{Command: "ls"})},
	}})
	w.state = &agentv1.ConversationStateStructure{
		Turns: [][]byte{first, second, shell}, Mode: agentv1.AgentMode_AGENT_MODE_ASK.Enum(),
		Plan:             w.put(&agentv1.ConversationPlan{Plan: "first this, then that"}),
		PendingToolCalls: []string{`{"toolCallId":"q1","toolName":"ask"}`, `{"tool_call_id":"p2"}`},
	}
	w.state.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 100001, protowire.VarintType), 7))
	return w
}

// outcome is what became of a state.
type outcome struct {
	state  *agentv1.ConversationStateStructure
	effect action.Effect
	w      *world
}

// turn returns the turn i of the state afterwards.
func (o outcome) turn(i int) *agentv1.ConversationTurnStructure {
	o.w.t.Helper()
	turn := &agentv1.ConversationTurnStructure{}
	o.w.unmarshal(o.state.Turns[i], turn)
	return turn
}

func (o outcome) message(i int) *agentv1.UserMessage {
	o.w.t.Helper()
	m := &agentv1.UserMessage{}
	o.w.unmarshal(o.turn(i).GetAgentConversationTurn().GetUserMessage(), m)
	return m
}

func (w *world) unmarshal(id []byte, into proto.Message) {
	w.t.Helper()
	data, err := w.read(blobref.FromSum([32]byte(id)))
	if err == nil {
		err = proto.Unmarshal(data, into)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// apply applies an action, and looks that nothing that was given has changed.
func (w *world) apply(a *agentv1.ConversationAction) (outcome, error) {
	w.t.Helper()
	state, before := proto.CloneOf(w.state), proto.CloneOf(a)
	next, blobs, effect, err := action.Apply(w.state, w.read, a)
	if !proto.Equal(state, w.state) || !proto.Equal(before, a) {
		w.t.Error("what was given has changed")
	}
	if err != nil {
		if next != nil || blobs != nil {
			w.t.Error("there is a state beside an error")
		}
		return outcome{}, err
	}
	for _, b := range blobs {
		if err := w.store.Set(context.Background(), b.Ref, b.Data); err != nil {
			w.t.Error(err)
		}
	}
	if len(next.ProtoReflect().GetUnknown()) == 0 {
		w.t.Error("unknown fields of the state are gone")
	}
	return outcome{next, effect, w}, nil
}

func TestEveryActionHasItsEffect(t *testing.T) {
	pending := []string{`{"toolCallId":"q1","toolName":"ask"}`, `{"tool_call_id":"p2"}`}
	message := &agentv1.UserMessage{Text: "go on", MessageId: "m3", Mode: agentv1.AgentMode_AGENT_MODE_DEBUG}
	tests := []struct {
		name   string
		action *agentv1.ConversationAction
		effect action.Effect
		turns  int // how many there are afterwards
		check  func(t *testing.T, o outcome)
	}{
		{
			"a message is a turn, and interrupts what is pending",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_UserMessageAction{UserMessageAction: &agentv1.UserMessageAction{UserMessage: message}}},
			action.Effect{Kind: action.Run, Turn: 3, Interrupted: pending},
			4,
			func(t *testing.T, o outcome) {
				if !proto.Equal(o.message(3), message) || o.state.GetMode() != message.Mode || len(o.state.PendingToolCalls) != 0 {
					t.Error(o.state)
				}
			},
		},
		{
			"messages before a message are turns, too",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_UserMessageAction{UserMessageAction: &agentv1.UserMessageAction{
				UserMessage: &agentv1.UserMessage{Text: "c"}, PrependUserMessages: []*agentv1.UserMessage{{Text: "a"}, {Text: "b"}},
			}}},
			action.Effect{Kind: action.Run, Turn: 5, Interrupted: pending},
			6,
			func(t *testing.T, o outcome) {
				if got := o.message(3).Text + o.message(4).Text + o.message(5).Text; got != "abc" || o.state.GetMode() != agentv1.AgentMode_AGENT_MODE_ASK {
					t.Error(got, o.state.GetMode())
				}
			},
		},
		{
			"resuming asks the model again",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_ResumeAction{ResumeAction: &agentv1.ResumeAction{}}},
			action.Effect{Kind: action.Run, Turn: 2},
			3,
			func(t *testing.T, o outcome) {
				if len(o.state.PendingToolCalls) != 2 {
					t.Error("what is pending is gone")
				}
			},
		},
		{
			"cancelling leaves nothing pending",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_CancelAction{CancelAction: &agentv1.CancelAction{Reason: "enough"}}},
			action.Effect{Kind: action.Cancel, Turn: 2, Interrupted: pending, Reason: "enough"},
			3,
			func(t *testing.T, o outcome) {
				if len(o.state.PendingToolCalls) != 0 {
					t.Error(o.state.PendingToolCalls)
				}
			},
		},
		{
			"summarizing is the driver's",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_SummarizeAction{SummarizeAction: &agentv1.SummarizeAction{}}},
			action.Effect{Kind: action.Summarize, Turn: 2},
			3, nil,
		},
		{
			"a shell command is a turn without output",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_ShellCommandAction{ShellCommandAction: &agentv1.ShellCommandAction{
				ShellCommand: &agentv1.ShellCommand{Command: "make"}, ExecId: "e1",
			}}},
			action.Effect{Kind: action.RunShell, Turn: 3, Command: "make", ExecID: "e1"},
			4,
			func(t *testing.T, o outcome) {
				shell, command := o.turn(3).GetShellConversationTurn(), &agentv1.ShellCommand{}
				o.w.unmarshal(shell.GetShellCommand(), command)
				if command.Command != "make" || len(shell.GetShellOutput()) != 0 {
					t.Error(command, shell)
				}
			},
		},
		{
			"a plan is begun with a message, in its mode",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_StartPlanAction{StartPlanAction: &agentv1.StartPlanAction{UserMessage: message, IsSpec: true}}},
			action.Effect{Kind: action.Run, Turn: 3, Interrupted: pending, Spec: true},
			4,
			func(t *testing.T, o outcome) {
				if o.state.GetMode() != agentv1.AgentMode_AGENT_MODE_PLAN || o.message(3).Text != "go on" {
					t.Error(o.state)
				}
			},
		},
		{
			"the plan of the conversation is carried out",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_ExecutePlanAction{ExecutePlanAction: &agentv1.ExecutePlanAction{KickoffMessageId: proto.String("k1")}}},
			action.Effect{Kind: action.Run, Turn: 3, Interrupted: pending, Plan: "first this, then that"},
			4,
			func(t *testing.T, o outcome) {
				m := o.message(3)
				if o.state.GetMode() != agentv1.AgentMode_AGENT_MODE_AGENT || !m.GetIsSimulatedMsg() || m.GetMessageId() != "k1" ||
					m.GetSimulatedMsgReason() != agentv1.SimulatedMsgReason_SIMULATED_MSG_REASON_PLAN_EXECUTION {
					t.Error(o.state, m)
				}
			},
		},
		{
			"a plan that is given takes its place",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_ExecutePlanAction{ExecutePlanAction: &agentv1.ExecutePlanAction{
				Plan: &agentv1.ConversationPlan{Plan: "another"}, PlanFileContent: proto.String("not this"), PlanId: proto.String("p"), PlanFilePath: proto.String("/p.md"),
				ExecutionMode: agentv1.AgentMode_AGENT_MODE_MULTITASK,
			}}},
			action.Effect{Kind: action.Run, Turn: 3, Interrupted: pending, Plan: "another"},
			4,
			func(t *testing.T, o outcome) {
				plan := &agentv1.ConversationPlan{}
				o.w.unmarshal(o.state.Plan, plan)
				if plan.Plan != "another" || o.state.Plans["p"].GetPath() != "/p.md" || o.state.GetMode() != agentv1.AgentMode_AGENT_MODE_MULTITASK {
					t.Error(plan, o.state)
				}
			},
		},
		{
			"a plan that is in a file, too",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_ExecutePlanAction{ExecutePlanAction: &agentv1.ExecutePlanAction{PlanFileContent: proto.String("of a file")}}},
			action.Effect{Kind: action.Run, Turn: 3, Interrupted: pending, Plan: "of a file"},
			4, nil,
		},
		{
			"an answer is put where its question was asked",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_AsyncAskQuestionCompletionAction{AsyncAskQuestionCompletionAction: &agentv1.AsyncAskQuestionCompletionAction{
				OriginalToolCallId: "q1", Result: rejected,
			}}},
			action.Effect{Kind: action.Run, Turn: 0},
			3,
			func(t *testing.T, o outcome) {
				steps, step := o.turn(0).GetAgentConversationTurn().Steps, &agentv1.ConversationStep{}
				o.w.unmarshal(steps[1], step)
				ask := step.GetToolCall().GetAskQuestionToolCall()
				if len(steps) != 3 || !proto.Equal(ask.GetResult(), rejected) || ask.GetArgs().GetTitle() != "Which?" || o.turn(0).GetAgentConversationTurn().GetRequestId() != "r" {
					t.Error(step)
				}
				if !reflect.DeepEqual(o.state.PendingToolCalls, pending[1:]) {
					t.Error(o.state.PendingToolCalls)
				}
			},
		},
		{
			"an answer whose question is not there is put at the end of the newest turn of the agent",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_AsyncAskQuestionCompletionAction{AsyncAskQuestionCompletionAction: &agentv1.AsyncAskQuestionCompletionAction{
				OriginalToolCallId: "q2", OriginalArgs: &agentv1.AskQuestionArgs{Title: "Why?"}, Result: rejected,
			}}},
			action.Effect{Kind: action.Run, Turn: 1},
			3,
			func(t *testing.T, o outcome) {
				steps, step := o.turn(1).GetAgentConversationTurn().Steps, &agentv1.ConversationStep{}
				o.w.unmarshal(steps[len(steps)-1], step)
				if len(steps) != 2 || step.GetToolCall().GetToolCallId() != "q2" || step.GetToolCall().GetAskQuestionToolCall().GetArgs().GetTitle() != "Why?" {
					t.Error(step)
				}
			},
		},
		{
			"a subagent is cancelled by its driver",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_CancelSubagentAction{CancelSubagentAction: &agentv1.CancelSubagentAction{SubagentId: "s"}}},
			action.Effect{Kind: action.CancelSubagent, Turn: -1, ID: "s"},
			3, nil,
		},
		{
			"tasks that ended are told of in one message",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_BackgroundTaskCompletionAction{BackgroundTaskCompletionAction: &agentv1.BackgroundTaskCompletionAction{
				Completions: []*agentv1.BackgroundTaskCompletion{
					{TaskId: "1", Title: "build", Status: agentv1.BackgroundTaskStatus_BACKGROUND_TASK_STATUS_SUCCESS, OutputPath: proto.String("/out")},
					{TaskId: "2", Status: agentv1.BackgroundTaskStatus_BACKGROUND_TASK_STATUS_ERROR, Detail: proto.String("exit 1")},
					{TaskId: "3", Reason: agentv1.BackgroundTaskCompletionReason_BACKGROUND_TASK_COMPLETION_REASON_TASK_PROGRESS},
					{TaskId: "4", Status: 99},
				},
			}}},
			action.Effect{Kind: action.Run, Turn: 3},
			4,
			func(t *testing.T, o outcome) {
				want := "The background task build is done. Its output is in /out.\nThe background task 2 has failed. exit 1\n" +
					"The background task 3 goes on.\nThe background task 4 has ended."
				m := o.message(3)
				if m.Text != want || m.GetSimulatedMsgReason() != agentv1.SimulatedMsgReason_SIMULATED_MSG_REASON_BACKGROUND_TASK_COMPLETION {
					t.Errorf("%q", m.Text)
				}
				if len(o.state.PendingToolCalls) != 2 {
					t.Error("what is pending is gone")
				}
			},
		},
		{
			"a shell goes to the background",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_BackgroundShellAction{BackgroundShellAction: &agentv1.BackgroundShellAction{ToolCallId: "t"}}},
			action.Effect{Kind: action.Background, Turn: -1, ID: "t"},
			3, nil,
		},
		{
			"a subagent goes to the background",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_BackgroundSubagentAction{BackgroundSubagentAction: &agentv1.BackgroundSubagentAction{ToolCallId: "t"}}},
			action.Effect{Kind: action.Background, Turn: -1, ID: "t"},
			3, nil,
		},
		{
			"a notification is handed on",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_SubscriptionNotificationAction{SubscriptionNotificationAction: &agentv1.SubscriptionNotificationAction{}}},
			action.Effect{Kind: action.Deliver, Turn: 2},
			3, nil,
		},
		{
			"a goal is handed on",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_GoalContinuationAction{GoalContinuationAction: &agentv1.GoalContinuationAction{}}},
			action.Effect{Kind: action.Deliver, Turn: 2},
			3, nil,
		},
		{
			"context is handed on",
			&agentv1.ConversationAction{Action: &agentv1.ConversationAction_InjectContextAction{InjectContextAction: &agentv1.InjectContextAction{}}},
			action.Effect{Kind: action.Deliver, Turn: 2},
			3, nil,
		},
		{
			"the end of a subagent as an old peer tells it is handed on",
			unknown(9),
			action.Effect{Kind: action.Deliver, Turn: 2, Numbers: []int32{9}},
			3, nil,
		},
		{
			"what nobody knows is said to be that",
			unknown(77, 20, 77),
			action.Effect{Kind: action.Unknown, Turn: 2, Numbers: []int32{20, 77}},
			3, nil,
		},
		{"no action does nothing", &agentv1.ConversationAction{}, action.Effect{Turn: 2}, 3, nil},
		{"nil does nothing", nil, action.Effect{Turn: 2}, 3, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			o, err := w.apply(tt.action)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(o.effect, tt.effect) {
				t.Errorf("the effect is %+v, want %+v", o.effect, tt.effect)
			}
			if len(o.state.Turns) != tt.turns {
				t.Errorf("there are %d turns, want %d", len(o.state.Turns), tt.turns)
			}
			if tt.check != nil {
				tt.check(t, o)
			}
		})
	}
}

func unknown(numbers ...protowire.Number) *agentv1.ConversationAction {
	a := &agentv1.ConversationAction{}
	var b []byte
	for _, n := range numbers {
		b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), []byte("x"))
	}
	a.ProtoReflect().SetUnknown(b)
	return a
}

// TestEveryCaseOfAnActionIsInTheTable fails when the messages get a case that Apply has not.
func TestEveryCaseOfAnActionIsInTheTable(t *testing.T) {
	cases := (&agentv1.ConversationAction{}).ProtoReflect().Descriptor().Oneofs().ByName("action").Fields()
	for i := range cases.Len() {
		a := &agentv1.ConversationAction{}
		a.ProtoReflect().Set(cases.Get(i), a.ProtoReflect().NewField(cases.Get(i)))
		_, _, effect, err := action.Apply(newWorld(t).state, newWorld(t).read, a)
		if err == nil && effect.Kind == action.Unknown {
			t.Errorf("%s is not known", cases.Get(i).Name())
		}
	}
}

func TestWhatCannotBeAppliedLeavesTheStateAlone(t *testing.T) {
	lost := errors.New("the disk is gone")
	answer := &agentv1.ConversationAction{Action: &agentv1.ConversationAction_AsyncAskQuestionCompletionAction{AsyncAskQuestionCompletionAction: &agentv1.AsyncAskQuestionCompletionAction{
		OriginalToolCallId: "q1", Result: rejected,
	}}}
	execute := &agentv1.ConversationAction{Action: &agentv1.ConversationAction_ExecutePlanAction{ExecutePlanAction: &agentv1.ExecutePlanAction{}}}
	tests := []struct {
		name   string
		change func(w *world)
		action *agentv1.ConversationAction
		want   error
		text   string
	}{
		{"a message action without a message", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_UserMessageAction{}}, action.ErrInvalid, "no message"},
		{"a plan without a message", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_StartPlanAction{}}, action.ErrInvalid, "no message"},
		{"a shell action without a command", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_ShellCommandAction{}}, action.ErrInvalid, "no command"},
		{"a subagent without an id", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_CancelSubagentAction{}}, action.ErrInvalid, "which subagent"},
		{"a tool call without an id", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_BackgroundShellAction{}}, action.ErrInvalid, "which tool call"},
		{"completions of nothing", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_BackgroundTaskCompletionAction{}}, action.ErrInvalid, "no task"},
		{"an answer to nothing", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_AsyncAskQuestionCompletionAction{}}, action.ErrInvalid, "which question"},
		{"nothing to resume", func(w *world) { w.state.Turns = nil }, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_ResumeAction{}}, action.ErrInvalid, "no turn"},
		{"an answer where no agent spoke", func(w *world) { w.state.Turns = w.state.Turns[2:] }, answer, action.ErrInvalid, "no turn of the agent"},
		{"no plan to carry out", func(w *world) { w.state.Plan = nil }, execute, action.ErrInvalid, "has a plan"},
		{"a plan that is not there", func(w *world) { w.state.Plan = make([]byte, 32) }, execute, blobstore.ErrNotFound, "reading a ConversationPlan"},
		{"an id that is none", func(w *world) { w.state.Plan = []byte("short") }, execute, action.ErrState, "5 bytes"},
		{"a turn that is none", func(w *world) {
			ref, _ := w.store.PutBytes(context.Background(), []byte{0xff})
			sum := ref.Sum()
			w.state.Turns[2] = sum[:]
		}, answer, action.ErrState, "a ConversationTurnStructure is none"},
		{"text that is no text", nil, &agentv1.ConversationAction{Action: &agentv1.ConversationAction_UserMessageAction{UserMessageAction: &agentv1.UserMessageAction{
			UserMessage: &agentv1.UserMessage{Text: "\xff"},
		}}}, action.ErrInvalid, "UserMessage"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.change != nil {
				tt.change(w)
			}
			if _, err := w.apply(tt.action); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
	w := newWorld(t)
	if _, _, _, err := action.Apply(w.state, func(blobref.Ref) ([]byte, error) { return nil, lost }, answer); !errors.Is(err, lost) || !errors.Is(err, action.ErrState) {
		t.Errorf("%v, want what reading failed with", err)
	}
}

func ExampleApply() {
	state := &agentv1.ConversationStateStructure{}
	hello := &agentv1.ConversationAction{Action: &agentv1.ConversationAction_UserMessageAction{
		UserMessageAction: &agentv1.UserMessageAction{UserMessage: &agentv1.UserMessage{Text: "Fix the failing test."}},
	}}
	next, blobs, effect, err := action.Apply(state, nil, hello)
	fmt.Println(len(next.Turns), len(blobs), effect.Kind, effect.Turn, err)
	// Output: 1 2 run 0 <nil>
}

func FuzzApply(f *testing.F) {
	w := newWorld(&testing.T{})
	state, err := proto.Marshal(w.state)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state, []byte("\x0a\x00"))
	f.Add(state, []byte("\x42\x06\x0a\x02q1\x1a\x00"))
	f.Fuzz(func(t *testing.T, state, act []byte) {
		s, a := &agentv1.ConversationStateStructure{}, &agentv1.ConversationAction{}
		if proto.Unmarshal(state, s) != nil || proto.Unmarshal(act, a) != nil {
			return
		}
		next, blobs, _, err := action.Apply(s, w.read, a)
		if err != nil {
			return
		}
		if _, err := proto.Marshal(next); err != nil {
			t.Error(err)
		}
		for _, b := range blobs {
			if !b.Ref.Verify(b.Data) {
				t.Error("a blob is not what its ref names")
			}
		}
	})
}
