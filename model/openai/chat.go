package openai

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/session/entry"
)

// The request, as Chat Completions has it.
type (
	chatRequest struct {
		Model         string         `json:"model"`
		Messages      []chatMessage  `json:"messages"`
		Tools         []chatTool     `json:"tools,omitempty"`
		ToolChoice    any            `json:"tool_choice,omitempty"`
		MaxTokens     int64          `json:"max_tokens,omitempty"`
		MaxCompletion int64          `json:"max_completion_tokens,omitempty"` // OpenAI's newer name of it
		Temperature   *float64       `json:"temperature,omitempty"`
		Effort        string         `json:"reasoning_effort,omitempty"`
		Format        *chatFormat    `json:"response_format,omitempty"`
		CacheKey      string         `json:"prompt_cache_key,omitempty"`
		Stream        bool           `json:"stream"`
		StreamOptions *streamOptions `json:"stream_options,omitempty"`
	}
	chatMessage struct {
		Role       string     `json:"role"`
		Content    any        `json:"content"` // a text, parts, or null
		ToolCalls  []chatCall `json:"tool_calls,omitempty"`
		ToolCallID string     `json:"tool_call_id,omitempty"`
	}
	chatPart struct {
		Type     string     `json:"type"`
		Text     string     `json:"text,omitempty"`
		ImageURL *chatImage `json:"image_url,omitempty"`
	}
	chatImage struct {
		URL string `json:"url"`
	}
	chatCall struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	chatTool struct {
		Type     string   `json:"type"`
		Function chatSpec `json:"function"`
	}
	chatSpec struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	chatFormat struct {
		Type   string     `json:"type"`
		Schema chatSchema `json:"json_schema"`
	}
	chatSchema struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
	}
	streamOptions struct {
		Usage bool `json:"include_usage"`
	}
)

// chat asks over Chat Completions.
func (m *Model) chat(ctx context.Context, req *model.Request, a *model.Answer) error {
	r := chatRequest{
		Model: m.info.ID, Messages: m.chatMessages(req), Temperature: req.Temperature, Effort: m.effort(req.Thinking),
		Stream: true, StreamOptions: &streamOptions{Usage: true},
	}
	if m.base == BaseURL {
		r.MaxCompletion, r.CacheKey = req.MaxTokens, req.CacheKey // others refuse what they do not know
	} else {
		r.MaxTokens = req.MaxTokens
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, chatTool{"function", chatSpec{t.Name, t.Description, t.Schema}})
	}
	switch req.ToolChoice.Mode {
	case model.ToolAny:
		r.ToolChoice = "required"
	case model.ToolNone:
		if len(r.Tools) > 0 {
			r.ToolChoice = "none"
		}
	case model.ToolOne:
		r.ToolChoice = chatTool{"function", chatSpec{Name: req.ToolChoice.Name}}
	}
	if req.Answer != nil {
		r.Format = &chatFormat{"json_schema", chatSchema{req.Answer.Name, req.Answer.Schema}}
	}
	s := chatReader{answer: a}
	_, err := m.post(ctx, "/chat/completions", r, s.event)
	if err != nil {
		return err
	}
	return s.finish()
}

// chatMessages are the messages of a request.
func (m *Model) chatMessages(req *model.Request) []chatMessage {
	var messages []chatMessage
	if system := strings.Join(req.System, "\n\n"); system != "" {
		messages = append(messages, chatMessage{Role: "system", Content: system})
	}
	fitted := model.FitImages(req.Messages, m.info.Images, m.resize)
	var shown []chatPart // images of the results of a turn, which follow behind all of them
	for i, msg := range fitted {
		switch msg := msg.(type) {
		case entry.UserMessage:
			role := msg.MessageRole()
			if role == entry.RoleDeveloper && m.base != BaseURL {
				role = "system" // servers with other models know no developer
			}
			c := chatMessage{Role: role, Content: msg.Content.Text()}
			if hasImage(msg.Content) {
				c.Role, c.Content = "user", chatParts(msg.Content)
			}
			messages = append(messages, c)
		case entry.ToolResultMessage:
			text := msg.Content.Text()
			if hasImage(msg.Content) {
				id := wire.CallID(msg.ToolCallID)
				shown = append(shown, chatPart{Type: "text", Text: "Images in the result of tool call " + id + ":"})
				for _, p := range chatParts(msg.Content) {
					if p.ImageURL != nil {
						shown = append(shown, p)
					}
				}
				text += "\n[The images of this result follow in the next message.]"
			}
			messages = append(messages, chatMessage{Role: "tool", ToolCallID: wire.CallID(msg.ToolCallID), Content: text})
			if next := i + 1; len(shown) > 0 && (next == len(fitted) || fitted[next].MessageRole() != entry.RoleToolResult) {
				messages = append(messages, chatMessage{Role: "user", Content: shown})
				shown = nil
			}
		case entry.AssistantMessage:
			c := chatMessage{Role: "assistant"}
			if text := msg.Content.Text(); text != "" {
				c.Content = text
			}
			for _, call := range msg.Content.ToolCalls() {
				arguments := string(call.Arguments)
				if arguments == "" {
					arguments = "{}"
				}
				c.ToolCalls = append(c.ToolCalls, chatCall{wire.CallID(call.ID), "function", chatFunction{call.Name, arguments}})
			}
			if c.Content != nil || c.ToolCalls != nil {
				messages = append(messages, c)
			}
		}
	}
	return messages
}

// chatParts are texts and images.
func chatParts(c entry.Content) []chatPart {
	var parts []chatPart
	for _, b := range c.Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			parts = append(parts, chatPart{Type: "text", Text: b.Text})
		case entry.ImageBlock:
			parts = append(parts, chatPart{Type: "image_url", ImageURL: &chatImage{imageURL(b)}})
		}
	}
	return parts
}
