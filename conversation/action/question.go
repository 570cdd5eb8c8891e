package action

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// maxLookBack bounds how many turns are looked through for the call that asked a question.
const maxLookBack = 32

// answer puts the result of a question where it was asked.
func (d *draft) answer(a *agentv1.AsyncAskQuestionCompletionAction) (Effect, error) {
	id := a.GetOriginalToolCallId()
	if id == "" || a.GetResult() == nil {
		return Effect{}, fmt.Errorf("%w: it does not say which question is answered, and how", ErrInvalid)
	}
	call := &agentv1.ToolCall{ToolCallId: &id, Tool: &agentv1.ToolCall_AskQuestionToolCall{
		AskQuestionToolCall: &agentv1.AskQuestionToolCall{Args: a.GetOriginalArgs(), Result: a.GetResult()},
	}}
	turn, err := d.answerIn(id, call)
	if err != nil {
		return Effect{}, err
	}
	d.state.PendingToolCalls = slices.DeleteFunc(d.state.PendingToolCalls, func(raw string) bool { return callID(raw) == id })
	return Effect{Kind: Run, Turn: turn}, nil
}

// answerIn replaces the call that asked, or appends to the newest turn of the agent, and returns the turn.
func (d *draft) answerIn(id string, call *agentv1.ToolCall) (int, error) {
	newest := -1
	for i := d.newest(); i >= 0 && i > d.newest()-maxLookBack; i-- {
		turn := &agentv1.ConversationTurnStructure{}
		if err := d.get(d.state.Turns[i], turn); err != nil {
			return -1, err
		}
		agent := turn.GetAgentConversationTurn()
		if agent == nil {
			continue
		}
		if newest < 0 {
			newest = i
		}
		for at, stepID := range slices.Backward(agent.Steps) {
			step := &agentv1.ConversationStep{}
			if err := d.get(stepID, step); err != nil {
				return -1, err
			}
			if asked := step.GetToolCall(); asked.GetToolCallId() == id && asked.GetAskQuestionToolCall() != nil {
				asked.GetAskQuestionToolCall().Result = call.GetAskQuestionToolCall().GetResult()
				return i, d.setStep(i, turn, at, asked)
			}
		}
	}
	if newest < 0 {
		return -1, fmt.Errorf("%w: no turn of the agent has asked the question %.60q", ErrInvalid, id)
	}
	turn := &agentv1.ConversationTurnStructure{}
	if err := d.get(d.state.Turns[newest], turn); err != nil {
		return -1, err
	}
	return newest, d.setStep(newest, turn, len(turn.GetAgentConversationTurn().Steps), call)
}

// setStep makes a call the step at of a turn, which has as many or one less.
func (d *draft) setStep(turn int, t *agentv1.ConversationTurnStructure, at int, call *agentv1.ToolCall) error {
	id, err := d.put(&agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: call}})
	if err != nil {
		return err
	}
	t = proto.CloneOf(t)
	agent := t.GetAgentConversationTurn()
	agent.Steps = append(agent.Steps[:at], append([][]byte{id}, agent.Steps[min(at+1, len(agent.Steps)):]...)...)
	if id, err = d.put(t); err != nil {
		return err
	}
	d.state.Turns[turn] = id
	return nil
}

// callID is the id of a pending tool call, "" where its JSON has none. Peers name it in one of these ways.
func callID(raw string) string {
	var call struct {
		ToolCallID string `json:"toolCallId"`
		Snake      string `json:"tool_call_id"`
		ID         string `json:"id"`
	}
	if json.Unmarshal([]byte(raw), &call) != nil {
		return ""
	}
	for _, id := range []string{call.ToolCallID, call.Snake, call.ID} {
		if id != "" {
			return id
		}
	}
	return ""
}
