package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/session/entry"
)

// defaultMaxTokens limits an answer where nobody knows what the model can: all models
// since Claude 4 give as much. The API wants a limit.
const defaultMaxTokens = 32_000

// The request, as the API has it.
type (
	request struct {
		Model       string        `json:"model"`
		MaxTokens   int64         `json:"max_tokens"`
		Stream      bool          `json:"stream"`
		System      []*block      `json:"system,omitempty"`
		Tools       []*tool       `json:"tools,omitempty"`
		ToolChoice  *toolChoice   `json:"tool_choice,omitempty"`
		Thinking    *thinking     `json:"thinking,omitempty"`
		Output      *outputConfig `json:"output_config,omitempty"`
		Temperature *float64      `json:"temperature,omitempty"`
		Messages    []*message    `json:"messages"`
	}
	message struct {
		Role    string   `json:"role"`
		Content []*block `json:"content"`
	}
	block struct {
		Type      string          `json:"type"`
		Text      string          `json:"text,omitempty"`
		Thinking  *string         `json:"thinking,omitempty"`
		Signature string          `json:"signature,omitempty"`
		Data      string          `json:"data,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
		ToolUseID string          `json:"tool_use_id,omitempty"`
		Content   []*block        `json:"content,omitempty"`
		IsError   bool            `json:"is_error,omitempty"`
		Source    *source         `json:"source,omitempty"`
		Cache     *cacheControl   `json:"cache_control,omitempty"`
		raw       json.RawMessage // the whole block, as the provider sent it
	}
	source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type,omitempty"`
		Data      string `json:"data,omitempty"`
		URL       string `json:"url,omitempty"`
	}
	tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"input_schema"`
		Cache       *cacheControl   `json:"cache_control,omitempty"`
	}
	toolChoice struct {
		Type string `json:"type"`
		Name string `json:"name,omitempty"`
	}
	thinking struct {
		Type    string `json:"type"`
		Budget  int64  `json:"budget_tokens,omitempty"`
		Display string `json:"display,omitempty"`
	}
	outputConfig struct {
		Effort string        `json:"effort,omitempty"`
		Format *outputFormat `json:"format,omitempty"`
	}
	outputFormat struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	cacheControl struct {
		Type string `json:"type"`
	}
)

// MarshalJSON writes a block that is kept as it came.
func (b *block) MarshalJSON() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	type fields block
	return wire.Marshal((*fields)(b))
}

// ephemeral marks where the prompt cache cuts; what is written so is kept for five minutes.
var ephemeral = &cacheControl{Type: "ephemeral"}

// body is a request in the API's words.
func (m *Model) body(req *model.Request) ([]byte, error) {
	r := request{
		Model: m.info.ID, Stream: true, Temperature: req.Temperature,
		MaxTokens: req.MaxTokens, Messages: m.messages(req),
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = m.info.MaxOutput
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = defaultMaxTokens
	}
	if len(r.Messages) == 0 {
		return nil, &model.Error{Kind: model.KindInvalid, Message: "nothing of the conversation can be sent to this model"}
	}
	for _, part := range req.System {
		if strings.TrimSpace(part) != "" {
			r.System = append(r.System, &block{Type: "text", Text: part})
		}
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, &tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	forced := false
	switch req.ToolChoice.Mode {
	case model.ToolAny:
		r.ToolChoice, forced = &toolChoice{Type: "any"}, true
	case model.ToolOne:
		r.ToolChoice, forced = &toolChoice{Type: "tool", Name: req.ToolChoice.Name}, true
	case model.ToolNone:
		if len(r.Tools) > 0 {
			r.ToolChoice = &toolChoice{Type: "none"}
		}
	}
	level := req.Thinking
	if forced || !m.info.Thinks {
		level = model.ThinkingOff // the API refuses thinking before a forced call
	}
	var effort string
	r.Thinking, effort = think(m.info.ID, m.info.Thinks, level, r.MaxTokens)
	if effort != "" {
		r.Output = &outputConfig{Effort: effort}
	}
	if req.Answer != nil {
		if r.Output == nil {
			r.Output = &outputConfig{}
		}
		r.Output.Format = &outputFormat{Type: "json_schema", Schema: req.Answer.Schema}
	}
	r.mark()
	return wire.Marshal(r)
}

// mark marks where the prompt cache cuts, in at most four places, which is what the API
// takes. The cache goes by the order tools, system, messages, so a mark behind the first part
// of a system prompt in several covers the tools.
func (r *request) mark() {
	if n := len(r.System); n > 0 {
		r.System[n-1].Cache = ephemeral
		if n > 1 {
			r.System[0].Cache = ephemeral
		}
	}
	if n := len(r.Tools); n > 0 && len(r.System) < 2 {
		r.Tools[n-1].Cache = ephemeral
	}
	marked := 0
	for i := len(r.Messages) - 1; i >= 0 && marked < 2; i-- {
		if msg := r.Messages[i]; msg.Role == "user" {
			msg.Content[len(msg.Content)-1].Cache = ephemeral
			marked++
		}
	}
}

// messages are the messages of a request. Those of the user's side that stand together
// become one, since the API wants all results of a turn in the message behind it.
func (m *Model) messages(req *model.Request) []*message {
	var messages []*message
	add := func(role string, blocks []*block) {
		if len(blocks) == 0 {
			return
		}
		if n := len(messages); n > 0 && messages[n-1].Role == role {
			messages[n-1].Content = append(messages[n-1].Content, blocks...)
			return
		}
		messages = append(messages, &message{Role: role, Content: blocks})
	}
	for _, msg := range model.FitImages(req.Messages, m.info.Images, m.resize) {
		switch msg := msg.(type) {
		case entry.UserMessage:
			add("user", content(msg.Content))
		case entry.ToolResultMessage:
			add("user", []*block{{
				Type: "tool_result", ToolUseID: wire.CallID(msg.ToolCallID), Content: content(msg.Content), IsError: msg.IsError,
			}})
		case entry.AssistantMessage:
			add("assistant", m.said(msg))
		}
	}
	return messages
}

// content is text and images.
func content(c entry.Content) []*block {
	var blocks []*block
	for _, b := range c.Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			if strings.TrimSpace(b.Text) != "" { // the API refuses blank text
				blocks = append(blocks, &block{Type: "text", Text: b.Text})
			}
		case entry.ImageBlock:
			s := &source{Type: "base64", MediaType: b.MIMEType, Data: b.Data}
			if b.Data == "" {
				s = &source{Type: "url", URL: b.URL}
			}
			blocks = append(blocks, &block{Type: "image", Source: s})
		}
	}
	return blocks
}

// said is an answer on its way back.
func (m *Model) said(msg entry.AssistantMessage) []*block {
	own := msg.API == m.info.API && msg.Provider == m.info.Provider
	var blocks []*block
	says := false
	for _, b := range msg.Content.Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			if strings.TrimSpace(b.Text) != "" {
				blocks, says = append(blocks, &block{Type: "text", Text: b.Text}), true
			}
		case entry.ThinkingBlock:
			if own && b.Signature != "" {
				text := b.Thinking
				blocks = append(blocks, &block{Type: "thinking", Thinking: &text, Signature: b.Signature})
			}
		case entry.RedactedThinkingBlock:
			if own {
				blocks = append(blocks, &block{Type: "redacted_thinking", Data: b.Data})
			}
		case entry.ToolCallBlock:
			input := b.Arguments
			if len(input) == 0 {
				input = json.RawMessage("{}")
			}
			blocks, says = append(blocks, &block{Type: "tool_use", ID: wire.CallID(b.ID), Name: b.Name, Input: input}), true
		case entry.AnthropicServerToolBlock:
			if own && json.Valid(b.Block) {
				blocks, says = append(blocks, &block{raw: b.Block}), true
			}
		}
	}
	if !says {
		return nil // a turn of nothing but reasoning is refused
	}
	return blocks
}
