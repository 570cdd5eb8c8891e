package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

// yieldTries is how often a report may fail its schema, and how often one that is missing is asked for.
const yieldTries = 3

// yield is the tool by which a subagent hands in a report that is JSON. It remembers nothing: what was handed in is in the
// log.
type yield struct {
	schema *jsonschema.Resolved
	raw    json.RawMessage

	mu       sync.Mutex
	reminded int
}

// Name implements [tool.Tool], here and below.
func (*yield) Name() string { return "yield" }

func (*yield) Description() string {
	return "Hands in your report, which ends your work. Its member data must be as the schema says. Do all of your work first."
}

func (y *yield) Schema() json.RawMessage {
	// The schema of data is checked by Call, which counts how often it fails. A model sees it all the same.
	raw, err := json.Marshal(map[string]any{
		"type": "object", "properties": map[string]any{"data": map[string]any{"description": "The report, of this JSON Schema: " + string(y.raw)}},
		"required": []string{"data"}, "additionalProperties": false,
	})
	if err != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return raw
}

func (*yield) Idempotent() bool { return true }

func (*yield) ParallelSafe() bool { return false }

// handed is the details member of a result of yield.
type handed struct {
	Data     json.RawMessage `json:"data"`
	Accepted bool            `json:"accepted"`
}

func (y *yield) Call(_ context.Context, raw json.RawMessage) (tool.Result, error) {
	var in struct {
		Data json.RawMessage `json:"data"`
	}
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	res := tool.Result{Text: "[accepted]"}
	err := toolset.Check(y.schema, in.Data)
	if err != nil {
		res = tool.Refuse(fmt.Errorf("the report is not as its schema says: %w; mend it and call yield again", err))
	}
	res.Details, err = json.Marshal(handed{in.Data, err == nil})
	return res, err
}

// given are the reports that were handed in, the last one last.
func given(messages []entry.Message) []handed {
	var all []handed
	for _, m := range messages {
		r, ok := m.(entry.ToolResultMessage)
		if !ok || r.ToolName != "yield" {
			continue
		}
		var h handed
		if json.Unmarshal(r.Details, &h) == nil && h.Data != nil {
			all = append(all, h)
		}
	}
	return all
}

// done ends a run whose report was accepted, and one whose reports failed too often. What was handed in before somebody said
// something more does not count.
func (y *yield) done(messages []entry.Message) bool {
	all := given(sinceSaid(messages))
	return len(all) >= yieldTries || len(all) > 0 && all[len(all)-1].Accepted
}

// sinceSaid are the messages behind the last that somebody said; a reminder is nobody's.
func sinceSaid(messages []entry.Message) []entry.Message {
	for i, m := range slices.Backward(messages) {
		if m, ok := m.(entry.UserMessage); ok && m.Content.Text() != reminder {
			return messages[i:]
		}
	}
	return messages
}

// reminder is what a subagent is told whose report is missing.
const reminder = "Your report is missing. Call yield with it; nothing else you say reaches who asked."

// remind asks for a report that is missing.
func (y *yield) remind(context.Context, entry.AssistantMessage) (string, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.reminded++; y.reminded > yieldTries {
		return "", nil
	}
	return reminder, nil
}

// judge makes the last report that was handed in the result.
func (y *yield) judge(ctx context.Context, s *session.Session, r *report) error {
	messages, err := conversation(ctx, s)
	if err != nil {
		return err
	}
	if all := given(sinceSaid(messages)); len(all) > 0 && all[len(all)-1].Accepted {
		r.result = all[len(all)-1].Data
		return nil
	}
	// One that was accepted before belongs to another version.
	all := given(messages)
	for i, h := range slices.Backward(all) {
		if h.Accepted {
			all = all[i+1:]
			break
		}
	}
	if len(all) > 0 {
		r.result = all[len(all)-1].Data
	}
	if r.end.Status == Completed {
		r.end.Status = BadAnswer
		r.end.Reason = errors.New("it handed in no report").Error()
		if len(all) > 0 {
			r.end.Reason = fmt.Sprintf("its report is not as its schema says, after %d tries; what it handed in last is kept", len(all))
		}
	}
	return nil
}

// conversation are the messages of a session.
func conversation(ctx context.Context, s *session.Session) ([]entry.Message, error) {
	c, err := s.Context(ctx)
	if err != nil {
		return nil, err
	}
	var messages []entry.Message
	for _, cm := range c.Messages {
		m, err := cm.Message()
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}
