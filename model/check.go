package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/session/entry"
)

// Check returns what is wrong with a request, in one sentence, if it is something that
// no provider takes: a message that says nothing or is of a kind that a request has not
// ([Plain] puts those into words), a tool call without a result right behind its turn or a result without
// its call, two calls of one id, an image that is a reference, two tools of one name, a
// choice of a tool that is not offered, a level of thinking that nobody knows. A request
// for more tokens than the model can give is refused too.
func Check(req *Request, info Info) error {
	if req == nil {
		return errors.New("there is no request")
	}
	if err := checkLimits(req, info); err != nil {
		return err
	}
	if err := checkTools(req); err != nil {
		return err
	}
	c := req.Checked
	if c == nil {
		c = &Checked{}
	}
	if err := c.check(req.Messages); err != nil {
		c.Reset()
		return err
	}
	return nil
}

// Checked remembers what of a conversation was found right, so that [Check] of the next request, which has more messages
// behind the same ones, looks at those alone. It belongs to one conversation: when messages in it change, call Reset. The
// zero value has checked nothing.
type Checked struct {
	messages int
	calls    map[string]bool // all calls so far
	pending  map[string]bool // those of the last turn without a result
}

// Reset forgets everything.
func (c *Checked) Reset() { *c = Checked{} }

func checkLimits(req *Request, info Info) error {
	switch {
	case req.MaxTokens < 0:
		return fmt.Errorf("the limit of the answer is %d tokens; give at least 1, or 0 for as much as the model can", req.MaxTokens)
	case info.MaxOutput > 0 && req.MaxTokens > info.MaxOutput:
		return fmt.Errorf("the limit of the answer is %d tokens, and %s gives at most %d", req.MaxTokens, info.Name(), info.MaxOutput)
	case req.Thinking != "" && !slices.Contains(ThinkingLevels(), req.Thinking):
		return fmt.Errorf("there is no level of thinking %.40q; the levels are %s", req.Thinking, strings.Join(ThinkingLevels(), ", "))
	case req.Temperature != nil && !(*req.Temperature >= 0 && *req.Temperature <= 2):
		return fmt.Errorf("the temperature is %v, which is not between 0 and 2", *req.Temperature)
	case req.Answer != nil && !validName(req.Answer.Name):
		return fmt.Errorf("the answer's schema has the name %.80q; a name has 1 to 64 letters, digits, '_' and '-'", req.Answer.Name)
	case req.Answer != nil && !isObject(req.Answer.Schema):
		return errors.New("the answer's schema is not a JSON object")
	}
	return nil
}

func checkTools(req *Request) error {
	names := make(map[string]bool, len(req.Tools))
	for _, tool := range req.Tools {
		switch {
		case !validName(tool.Name):
			return fmt.Errorf("a tool has the name %.80q; a name has 1 to 64 letters, digits, '_' and '-'", tool.Name)
		case names[tool.Name]:
			return fmt.Errorf("two tools have the name %s", tool.Name)
		case !isObject(tool.Schema):
			return fmt.Errorf("the schema of tool %s is not a JSON object", tool.Name)
		}
		names[tool.Name] = true
	}
	switch choice := req.ToolChoice; choice.Mode {
	case ToolAuto, ToolNone:
	case ToolAny:
		if len(names) == 0 {
			return errors.New("a tool must be called, and none is offered")
		}
	case ToolOne:
		if !names[choice.Name] {
			return fmt.Errorf("tool %.80q must be called, and it is not offered", choice.Name)
		}
	default:
		return fmt.Errorf("there is no tool choice %.40q", choice.Mode)
	}
	return nil
}

func (c *Checked) check(messages []entry.Message) error {
	if len(messages) == 0 {
		return errors.New("the request has no messages")
	}
	if c.calls == nil || c.messages > len(messages) {
		*c = Checked{calls: map[string]bool{}, pending: map[string]bool{}}
	}
	calls, pending := c.calls, c.pending
	for i, m := range messages[c.messages:] {
		n := c.messages + i + 1
		if result, ok := m.(entry.ToolResultMessage); ok {
			switch {
			case pending[result.ToolCallID]:
				delete(pending, result.ToolCallID)
			case calls[result.ToolCallID]:
				return fmt.Errorf("message %d is a second or late result of tool call %.80q", n, result.ToolCallID)
			default:
				return fmt.Errorf("message %d is the result of tool call %.80q, which no message before it makes", n, result.ToolCallID)
			}
			if err := checkImages(n, result.Content); err != nil {
				return err
			}
			continue
		}
		if err := unanswered(pending, n); err != nil {
			return err
		}
		switch m := m.(type) {
		case entry.UserMessage:
			if role := m.MessageRole(); role != entry.RoleUser && role != entry.RoleDeveloper {
				return fmt.Errorf("message %d is a user message of the role %.40q", n, role)
			}
			if saysNothing(m.Content) {
				return fmt.Errorf("message %d (%s) says nothing", n, m.MessageRole())
			}
			if err := checkImages(n, m.Content); err != nil {
				return err
			}
		case entry.AssistantMessage:
			if saysNothing(m.Content) {
				return fmt.Errorf("message %d (assistant) says nothing", n)
			}
			for _, b := range m.Content.Blocks() {
				call, ok := b.(entry.ToolCallBlock)
				switch {
				case !ok:
				case call.ID == "" || call.Name == "":
					return fmt.Errorf("message %d has a tool call without an id or a name", n)
				case calls[call.ID]:
					return fmt.Errorf("message %d has a tool call %.80q, and so has one before it", n, call.ID)
				default:
					calls[call.ID], pending[call.ID] = true, true
				}
			}
		case nil:
			return fmt.Errorf("message %d is nil", n)
		default:
			return fmt.Errorf("message %d is of the kind %.40q, which must be put into words first", n, m.MessageRole())
		}
	}
	c.messages = len(messages)
	return unanswered(pending, len(messages)+1)
}

// unanswered is the error of calls without a result where message n stands.
func unanswered(pending map[string]bool, n int) error {
	for id := range pending {
		return fmt.Errorf("tool call %.80q has no result before message %d", id, n)
	}
	return nil
}

// checkImages refuses images that a provider could not be sent.
func checkImages(n int, c entry.Content) error {
	for _, b := range c.Blocks() {
		image, ok := b.(entry.ImageBlock)
		if !ok {
			continue
		}
		switch {
		case (entry.Image{Data: image.Data}).IsRef():
			return fmt.Errorf("message %d has an image that is a reference into the blob store; its data must be put back first", n)
		case image.Data == "" && image.URL == "":
			return fmt.Errorf("message %d has an image without data", n)
		case image.MIMEType == "" && image.URL == "":
			return fmt.Errorf("message %d has an image without a type", n)
		}
	}
	return nil
}

// saysNothing reports whether content has nothing but blank text.
func saysNothing(c entry.Content) bool {
	for _, b := range c.Blocks() {
		if text, ok := b.(entry.TextBlock); !ok || strings.TrimSpace(text.Text) != "" {
			return false
		}
	}
	return true
}

// validName reports whether every provider takes the name of a tool or a schema.
func validName(name string) bool {
	if len(name) < 1 || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

func isObject(raw json.RawMessage) bool {
	text := strings.TrimSpace(string(raw[:min(len(raw), 64)]))
	return strings.HasPrefix(text, "{") && json.Valid(raw)
}
