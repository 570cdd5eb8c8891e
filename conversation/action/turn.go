package action

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// add puts a turn at the end.
func (d *draft) add(turn *agentv1.ConversationTurnStructure) error {
	id, err := d.put(turn)
	if err != nil {
		return err
	}
	d.state.Turns = append(d.state.Turns, id)
	return nil
}

// say adds a turn that begins with a message.
func (d *draft) say(m *agentv1.UserMessage) error {
	id, err := d.put(m)
	if err != nil {
		return err
	}
	return d.add(&agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{
		AgentConversationTurn: &agentv1.AgentConversationTurnStructure{UserMessage: id},
	}})
}

func (d *draft) userMessage(a *agentv1.UserMessageAction) (Effect, error) {
	if a.GetUserMessage() == nil {
		return Effect{}, fmt.Errorf("%w: there is no message in it", ErrInvalid)
	}
	for _, m := range slices.Concat(a.GetPrependUserMessages(), []*agentv1.UserMessage{a.GetUserMessage()}) {
		if err := d.say(m); err != nil {
			return Effect{}, err
		}
	}
	d.enter(a.GetUserMessage().GetMode())
	return Effect{Kind: Run, Turn: d.newest(), Interrupted: d.interrupt()}, nil
}

// enter changes the mode, where one is given.
func (d *draft) enter(mode agentv1.AgentMode) {
	if mode != agentv1.AgentMode_AGENT_MODE_UNSPECIFIED {
		d.state.Mode = mode.Enum()
	}
}

func (d *draft) resume() (Effect, error) {
	if d.newest() < 0 {
		return Effect{}, fmt.Errorf("%w: the conversation has no turn to go on with", ErrInvalid)
	}
	return Effect{Kind: Run, Turn: d.newest()}, nil
}

func (d *draft) shellCommand(a *agentv1.ShellCommandAction) (Effect, error) {
	if a.GetShellCommand().GetCommand() == "" {
		return Effect{}, fmt.Errorf("%w: there is no command in it", ErrInvalid)
	}
	id, err := d.put(a.GetShellCommand())
	if err != nil {
		return Effect{}, err
	}
	if err := d.add(&agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_ShellConversationTurn{
		ShellConversationTurn: &agentv1.ShellConversationTurnStructure{ShellCommand: id},
	}}); err != nil {
		return Effect{}, err
	}
	return Effect{Kind: RunShell, Turn: d.newest(), Command: a.GetShellCommand().GetCommand(), ExecID: a.GetExecId()}, nil
}

func (d *draft) startPlan(a *agentv1.StartPlanAction) (Effect, error) {
	if a.GetUserMessage() == nil {
		return Effect{}, fmt.Errorf("%w: there is no message in it", ErrInvalid)
	}
	if err := d.say(a.GetUserMessage()); err != nil {
		return Effect{}, err
	}
	d.enter(agentv1.AgentMode_AGENT_MODE_PLAN)
	return Effect{Kind: Run, Turn: d.newest(), Interrupted: d.interrupt(), Spec: a.GetIsSpec()}, nil
}

func (d *draft) executePlan(a *agentv1.ExecutePlanAction) (Effect, error) {
	plan, err := d.planOf(a)
	if err != nil {
		return Effect{}, err
	}
	if id := a.GetPlanId(); id != "" {
		if d.state.Plans == nil {
			d.state.Plans = map[string]*agentv1.PlanRegistryEntry{}
		}
		d.state.Plans[id] = &agentv1.PlanRegistryEntry{Id: id, Path: cmp.Or(a.GetPlanFilePath(), a.GetPlanFileUri())}
	}
	mode := a.GetExecutionMode()
	if mode == agentv1.AgentMode_AGENT_MODE_UNSPECIFIED {
		mode = agentv1.AgentMode_AGENT_MODE_AGENT
	}
	d.enter(mode)
	err = d.say(&agentv1.UserMessage{
		Text: "Carry out the plan.", MessageId: a.GetKickoffMessageId(), Mode: mode, IsSimulatedMsg: proto.Bool(true),
		SimulatedMsgReason: agentv1.SimulatedMsgReason_SIMULATED_MSG_REASON_PLAN_EXECUTION.Enum(),
	})
	return Effect{Kind: Run, Turn: d.newest(), Interrupted: d.interrupt(), Plan: plan.GetPlan()}, err
}

// planOf is the plan to execute: the one of the action, else that of the state.
func (d *draft) planOf(a *agentv1.ExecutePlanAction) (*agentv1.ConversationPlan, error) {
	plan := a.GetPlan()
	if plan == nil && a.PlanFileContent != nil {
		plan = &agentv1.ConversationPlan{Plan: a.GetPlanFileContent()}
	}
	if plan != nil {
		id, err := d.put(plan)
		d.state.Plan = id
		return plan, err
	}
	if len(d.state.GetPlan()) == 0 {
		return nil, fmt.Errorf("%w: neither the action nor the conversation has a plan", ErrInvalid)
	}
	plan = &agentv1.ConversationPlan{}
	return plan, d.get(d.state.GetPlan(), plan)
}

func (d *draft) tasksEnded(a *agentv1.BackgroundTaskCompletionAction) (Effect, error) {
	if len(a.GetCompletions()) == 0 {
		return Effect{}, fmt.Errorf("%w: it tells of no task", ErrInvalid)
	}
	var text strings.Builder
	for _, c := range a.GetCompletions() {
		fmt.Fprintf(&text, "The background task %s %s.", cmp.Or(c.GetTitle(), c.GetTaskId()), fate(c))
		if c.GetOutputPath() != "" {
			fmt.Fprintf(&text, " Its output is in %s.", c.GetOutputPath())
		}
		if c.GetDetail() != "" {
			fmt.Fprintf(&text, " %s", c.GetDetail())
		}
		text.WriteByte('\n')
	}
	err := d.say(&agentv1.UserMessage{
		Text: strings.TrimSuffix(text.String(), "\n"), Mode: d.state.GetMode(), IsSimulatedMsg: proto.Bool(true),
		SimulatedMsgReason: agentv1.SimulatedMsgReason_SIMULATED_MSG_REASON_BACKGROUND_TASK_COMPLETION.Enum(),
	})
	return Effect{Kind: Run, Turn: d.newest()}, err
}

// fate says how a task ended, if it did.
func fate(c *agentv1.BackgroundTaskCompletion) string {
	if c.GetReason() == agentv1.BackgroundTaskCompletionReason_BACKGROUND_TASK_COMPLETION_REASON_TASK_PROGRESS {
		return "goes on"
	}
	switch c.GetStatus() {
	case agentv1.BackgroundTaskStatus_BACKGROUND_TASK_STATUS_SUCCESS:
		return "is done"
	case agentv1.BackgroundTaskStatus_BACKGROUND_TASK_STATUS_ERROR:
		return "has failed"
	case agentv1.BackgroundTaskStatus_BACKGROUND_TASK_STATUS_ABORTED:
		return "was ended"
	}
	return "has ended"
}
