package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// history is the conversation as the next request has it. It grows by what was appended, and is built anew only
// when the log went another way.
type history struct {
	session  *session.Session
	messages []entry.Message
	last     entry.Entry     // that messages were built at
	ids      map[string]bool // of the calls in messages
	// lastAnswer is the entry of the last answer when the conversation was built.
	lastAnswer string
	checked    model.Checked
	known      int64 // tokens up to the last answer, as its provider counted them
	since      int64 // bytes behind it
	heard      func([]entry.Entry)
}

// load builds the conversation from the log.
func (h *history) load(ctx context.Context) (*session.Resumed, error) {
	r, err := h.session.Resume(ctx, session.ResumeOptions{Restore: true})
	if err != nil {
		return nil, fmt.Errorf("building the context: %w", err)
	}
	h.messages, h.ids, h.known, h.since = nil, map[string]bool{}, 0, 0
	h.checked.Reset()
	if h.last = (entry.Entry{}); r.Leaf != "" {
		if h.last, err = h.session.Entry(ctx, r.Leaf); err != nil {
			return nil, fmt.Errorf("building the context: %w", err)
		}
	}
	h.lastAnswer = ""
	for _, m := range slices.Backward(r.Context.Messages) {
		if m.Role == entry.RoleAssistant {
			h.lastAnswer = m.EntryID
			break
		}
	}
	messages, err := model.Messages(r.Context)
	if err != nil {
		return nil, fmt.Errorf("building the context: %w", err)
	}
	h.add(messages)
	return r, nil
}

// extend brings the conversation up to the end of the log.
func (h *history) extend(ctx context.Context) error {
	if h.last.ID() == "" {
		return h.reload(ctx)
	}
	entries, on, err := h.session.Behind(ctx, h.last)
	switch {
	case err != nil:
		return fmt.Errorf("building the context: %w", err)
	case !on:
		return h.reload(ctx)
	case len(entries) == 0:
		return nil
	}
	h.heard(entries)
	for _, e := range entries {
		if e.Type() == entry.TypeCompaction || e.Type() == entry.TypeResetBoundary {
			return h.reload(ctx)
		}
	}
	last := entries[len(entries)-1]
	if _, err := h.session.RestoreAll(ctx, entries); err != nil {
		return fmt.Errorf("building the context: %w", err)
	}
	c := entry.BuildContext(entries, entry.ContextOptions{Strict: true})
	if len(c.Repairs) > 0 {
		return h.reload(ctx) // whether that is right, only all of it tells
	}
	messages, err := model.Messages(c)
	if err != nil {
		return fmt.Errorf("building the context: %w", err)
	}
	h.last = last
	h.add(messages)
	return nil
}

func (h *history) reload(ctx context.Context) error {
	_, err := h.load(ctx)
	return err
}

func (h *history) add(messages []entry.Message) {
	for _, m := range messages {
		h.messages = append(h.messages, m)
		a, ok := m.(entry.AssistantMessage)
		if !ok {
			h.since += size(m)
			continue
		}
		for _, call := range a.Content.ToolCalls() {
			h.ids[call.ID] = true
		}
		if n := tokensOf(a.Usage); n > 0 {
			h.known, h.since = n, 0
		} else {
			h.since += size(m)
		}
	}
}

// bytesPerToken is what text has on average: little enough that the estimate is rather too high.
const bytesPerToken = 3

// tokens estimates the length of the conversation: what the provider counted, and what came since.
func (h *history) tokens() int64 { return h.known + h.since/bytesPerToken }

// size is what a message counts for in the estimate, in bytes of text.
func size(m entry.Message) int64 {
	const image = 1600 * bytesPerToken // tokens of a picture of the usual limits
	var n int64
	var content entry.Content
	switch m := m.(type) {
	case entry.UserMessage:
		content = m.Content
	case entry.AssistantMessage:
		content = m.Content
	case entry.ToolResultMessage:
		content = m.Content
	}
	for _, b := range content.Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			n += int64(len(b.Text))
		case entry.ThinkingBlock:
			n += int64(len(b.Thinking))
		case entry.ToolCallBlock:
			n += int64(len(b.Name) + len(b.Arguments))
		case entry.ImageBlock:
			n += image
		}
	}
	return n
}
