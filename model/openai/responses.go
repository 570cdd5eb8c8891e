package openai

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/session/entry"
)

// The request, as the Responses API has it.
type (
	responsesRequest struct {
		Model        string         `json:"model"`
		Instructions string         `json:"instructions,omitempty"`
		Input        []any          `json:"input"`
		Tools        []functionTool `json:"tools,omitempty"`
		ToolChoice   any            `json:"tool_choice,omitempty"`
		MaxTokens    int64          `json:"max_output_tokens,omitempty"`
		Temperature  *float64       `json:"temperature,omitempty"`
		Reasoning    *reasoning     `json:"reasoning,omitempty"`
		Text         *textConfig    `json:"text,omitempty"`
		Include      []string       `json:"include,omitempty"`
		CacheKey     string         `json:"prompt_cache_key,omitempty"`
		Store        bool           `json:"store"`
		Stream       bool           `json:"stream"`
	}
	functionTool struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"`
	}
	namedTool struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	reasoning struct {
		Effort  string `json:"effort"`
		Summary string `json:"summary,omitempty"`
	}
	textConfig struct {
		Format textFormat `json:"format"`
	}
	textFormat struct {
		Type   string          `json:"type"`
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	}
	messageItem struct {
		Type    string `json:"type"`
		ID      string `json:"id,omitempty"`
		Role    string `json:"role"`
		Phase   string `json:"phase,omitempty"`
		Content []part `json:"content"`
	}
	part struct {
		Type     string `json:"type"`
		Text     string `json:"text,omitempty"`
		ImageURL string `json:"image_url,omitempty"`
		Detail   string `json:"detail,omitempty"`
	}
	callItem struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	resultItem struct {
		Type   string `json:"type"`
		CallID string `json:"call_id"`
		Output any    `json:"output"` // a text, or parts
	}
)

// textSignature is what a text block keeps of the message that it came in, in the form that
// oh-my-pi gives it: the API wants to be told which texts were not meant as the answer.
type textSignature struct {
	V     int    `json:"v"`
	ID    string `json:"id"`
	Phase string `json:"phase,omitempty"`
}

// responses asks over the Responses API.
func (m *Model) responses(ctx context.Context, req *model.Request, a *model.Answer) error {
	r := responsesRequest{
		Model: m.info.ID, Instructions: strings.Join(req.System, "\n\n"), Input: m.input(req),
		MaxTokens: req.MaxTokens, Temperature: req.Temperature, CacheKey: req.CacheKey, Stream: true,
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, functionTool{Type: "function", Name: t.Name, Description: t.Description, Parameters: t.Schema})
	}
	switch req.ToolChoice.Mode {
	case model.ToolAny:
		r.ToolChoice = "required"
	case model.ToolNone:
		if len(r.Tools) > 0 {
			r.ToolChoice = "none"
		}
	case model.ToolOne:
		r.ToolChoice = namedTool{"function", req.ToolChoice.Name}
	}
	if effort := m.effort(req.Thinking); effort != "" {
		r.Reasoning = &reasoning{Effort: effort}
		if effort != "none" {
			r.Reasoning.Summary = "auto"
		}
		r.Include = []string{"reasoning.encrypted_content"}
	}
	if req.Answer != nil {
		r.Text = &textConfig{textFormat{Type: "json_schema", Name: req.Answer.Name, Schema: req.Answer.Schema}}
	}
	s := responsesReader{answer: a}
	_, err := m.post(ctx, "/responses", r, s.event)
	return err
}

// input are the messages of a request.
func (m *Model) input(req *model.Request) []any {
	var items []any
	for _, msg := range model.FitImages(req.Messages, m.info.Images, m.resize) {
		switch msg := msg.(type) {
		case entry.UserMessage:
			items = append(items, messageItem{Type: "message", Role: msg.MessageRole(), Content: parts(msg.Content)})
		case entry.ToolResultMessage:
			var output any = parts(msg.Content)
			if !hasImage(msg.Content) {
				output = msg.Content.Text()
			}
			items = append(items, resultItem{"function_call_output", wire.CallID(msg.ToolCallID), output})
		case entry.AssistantMessage:
			items = append(items, m.said(msg)...)
		}
	}
	return items
}

// said is an answer on its way back.
func (m *Model) said(msg entry.AssistantMessage) []any {
	own := msg.API == m.info.API && msg.Provider == m.info.Provider && msg.Model == m.info.ID
	var items []any
	says := false
	for _, b := range msg.Content.Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			if b.Text == "" {
				continue
			}
			item := messageItem{Type: "message", Role: "assistant", Content: []part{{Type: "output_text", Text: b.Text}}}
			var s textSignature
			if own && json.Unmarshal([]byte(b.Signature), &s) == nil && len(s.ID) <= 64 {
				item.ID, item.Phase = s.ID, s.Phase
			}
			items, says = append(items, item), true
		case entry.ThinkingBlock:
			if own && json.Valid([]byte(b.Signature)) {
				items = append(items, json.RawMessage(b.Signature))
			}
		case entry.ToolCallBlock:
			arguments := string(b.Arguments)
			if arguments == "" {
				arguments = "{}"
			}
			items, says = append(items, callItem{"function_call", wire.CallID(b.ID), b.Name, arguments}), true
		}
	}
	if !says {
		return nil // reasoning alone is refused
	}
	return items
}

// parts are texts and images.
func parts(c entry.Content) []part {
	parts := []part{}
	for _, b := range c.Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			parts = append(parts, part{Type: "input_text", Text: b.Text})
		case entry.ImageBlock:
			parts = append(parts, part{Type: "input_image", ImageURL: imageURL(b), Detail: "auto"})
		}
	}
	return parts
}

func imageURL(b entry.ImageBlock) string {
	if b.Data == "" {
		return b.URL
	}
	return "data:" + b.MIMEType + ";base64," + b.Data
}

func hasImage(c entry.Content) bool {
	for _, b := range c.Blocks() {
		if b.BlockType() == entry.BlockImage {
			return true
		}
	}
	return false
}
