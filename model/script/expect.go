package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// Expect is what a request must be like. The package comment says what its members mean.
type Expect struct {
	System   Pieces         `json:"system,omitempty"`
	Messages *int           `json:"messages,omitempty"`
	Last     *ExpectMessage `json:"last,omitempty"`
	Tools    []string       `json:"tools,omitempty"`
	NoTools  []string       `json:"noTools,omitempty"`
	Results  []ExpectResult `json:"results,omitempty"`
	Contains Pieces         `json:"contains,omitempty"`
	Thinking string         `json:"thinking,omitempty"`
}

// ExpectMessage is what a message must be like.
type ExpectMessage struct {
	Role string `json:"role,omitempty"`
	Text string `json:"text,omitempty"`
}

// ExpectResult is what a tool result must be like.
type ExpectResult struct {
	Call    string `json:"call,omitempty"`
	Text    string `json:"text,omitempty"`
	IsError *bool  `json:"isError,omitempty"`
}

func (e *Expect) check() error {
	if e.Messages != nil && *e.Messages < 1 {
		return fmt.Errorf("expect.messages is %d; a request has at least one", *e.Messages)
	}
	if e.Last != nil {
		switch e.Last.Role {
		case "", entry.RoleUser, entry.RoleDeveloper, entry.RoleAssistant, entry.RoleToolResult:
		default:
			return fmt.Errorf("expect.last.role is %.40q, and no message of a request has it", e.Last.Role)
		}
	}
	return nil
}

// unmet returns what of the expectations does not hold, "" if all do.
func (e *Expect) unmet(req *model.Request) string {
	if e == nil {
		return ""
	}
	system := strings.Join(req.System, "\n")
	for _, want := range e.System {
		if !strings.Contains(system, want) {
			return fmt.Sprintf("the system prompt does not contain %s; it is %s", quote(want), quote(system))
		}
	}
	if e.Messages != nil && *e.Messages != len(req.Messages) {
		return fmt.Sprintf("%d messages were sent, and %d were expected", len(req.Messages), *e.Messages)
	}
	last := req.Messages[len(req.Messages)-1] // Check has seen that there is one
	if e.Last != nil {
		if want := e.Last.Role; want != "" && want != last.MessageRole() {
			return fmt.Sprintf("the last message is of the role %s, and %s was expected", last.MessageRole(), want)
		}
		if text := entry.Text(last); !strings.Contains(text, e.Last.Text) {
			return fmt.Sprintf("the last message does not contain %s; it is %s", quote(e.Last.Text), quote(text))
		}
	}
	for _, want := range e.Tools {
		if !offers(req, want) {
			return fmt.Sprintf("tool %s is not offered; these are: %s", quote(want), names(req))
		}
	}
	for _, want := range e.NoTools {
		if offers(req, want) {
			return fmt.Sprintf("tool %s is offered", quote(want))
		}
	}
	if what := e.unmetResult(req.Messages); what != "" {
		return what
	}
	for _, want := range e.Contains {
		if !slices.ContainsFunc(req.Messages, func(m entry.Message) bool { return strings.Contains(entry.Text(m), want) }) {
			return fmt.Sprintf("no message contains %s; the last one is %s", quote(want), quote(entry.Text(last)))
		}
	}
	level := req.Thinking
	if level == "" {
		level = model.ThinkingOff
	}
	if e.Thinking != "" && e.Thinking != level {
		return fmt.Sprintf("the level of thinking is %s, and %s was expected", level, quote(e.Thinking))
	}
	return ""
}

// unmetResult is unmet for tool results.
func (e *Expect) unmetResult(messages []entry.Message) string {
	if len(e.Results) == 0 {
		return ""
	}
	var results []entry.ToolResultMessage
	for _, m := range slices.Backward(messages) {
		if m.MessageRole() == entry.RoleAssistant {
			break
		}
		if r, ok := m.(entry.ToolResultMessage); ok {
			results = append(results, r)
		}
	}
	slices.Reverse(results)
	for _, want := range e.Results {
		if !slices.ContainsFunc(results, want.holds) {
			var got []string
			for _, r := range results {
				got = append(got, fmt.Sprintf("%s (error: %v) %s", r.ToolCallID, r.IsError, quote(r.Content.Text())))
			}
			return fmt.Sprintf("no tool result is as expected (call %s, text %s); there are %d: %s",
				quote(want.Call), quote(want.Text), len(results), strings.Join(got, ", "))
		}
	}
	return ""
}

func (e ExpectResult) holds(r entry.ToolResultMessage) bool {
	return (e.Call == "" || e.Call == r.ToolCallID) && strings.Contains(r.Content.Text(), e.Text) && (e.IsError == nil || *e.IsError == r.IsError)
}

func offers(req *model.Request, name string) bool {
	return slices.ContainsFunc(req.Tools, func(t model.ToolSpec) bool { return t.Name == name })
}

func names(req *model.Request) string {
	var all []string
	for _, t := range req.Tools {
		all = append(all, t.Name)
	}
	return strings.Join(all, ", ")
}

// quote shows the beginning of a text.
func quote(s string) string { return fmt.Sprintf("%.200q", s) }
