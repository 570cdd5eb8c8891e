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
	known      int64           // tokens up to the last answer, as its provider counted them
	counted    int64           // tokens behind it, as we counted them
	uncounted  []entry.Message // and what comes then
	size       int64           // of uncounted, in bytes
	base       int64           // tokens of a request without messages
	count      func(text string) int64
	heard      func([]entry.Entry)
	// read is the last entry of the log when it was read whole. What was appended between that and last, and not taken up,
	// is told to missed, which has heard some of it.
	read   string
	missed func([]entry.Entry)
}

// load builds the conversation from the log.
func (h *history) load(ctx context.Context) (*session.Resumed, error) {
	r, err := h.session.Resume(ctx, session.ResumeOptions{Restore: true})
	if err != nil {
		return nil, fmt.Errorf("building the context: %w", err)
	}
	h.messages, h.ids = nil, map[string]bool{}
	h.known, h.counted, h.uncounted, h.size = 0, 0, nil, 0
	h.checked.Reset()
	if h.last = (entry.Entry{}); r.Leaf != "" {
		if h.last, err = h.leaf(ctx, r.Leaf); err != nil {
			return nil, fmt.Errorf("building the context: %w", err)
		}
	}
	if err := h.catchUp(ctx); err != nil {
		return nil, fmt.Errorf("building the context: %w", err)
	}
	h.lastAnswer = ""
	for _, m := range slices.Backward(r.Context.Messages) {
		if m.Role == entry.RoleAssistant {
			h.lastAnswer = m.EntryID
			break
		}
	}
	// Providers have counted the answers before a compaction with what it took away.
	stale, fresh := *r.Context, *r.Context
	n, err := h.shortened(ctx, r.Context)
	if err != nil {
		return nil, fmt.Errorf("building the context: %w", err)
	}
	stale.Messages, fresh.Messages = r.Context.Messages[:n], r.Context.Messages[n:]
	for _, part := range []*entry.Context{&stale, &fresh} {
		messages, err := model.Messages(part)
		if err != nil {
			return nil, fmt.Errorf("building the context: %w", err)
		}
		h.add(messages, part == &fresh)
	}
	return r, nil
}

// catchUp tells of what was appended since the log was read whole: the conversation that was built anew begins behind it.
func (h *history) catchUp(ctx context.Context) error {
	var entries []entry.Entry
	taken, last := map[string]bool{}, ""
	for e, err := range h.session.Backward(ctx) {
		if err != nil {
			return err
		}
		if last == "" {
			last = e.ID()
		}
		if e.ID() == h.read {
			break
		}
		if said := saidOf(e); said != "" {
			taken[said] = true
		}
		if !taken[e.ID()] {
			entries = append(entries, e)
		}
	}
	h.read = last
	slices.Reverse(entries)
	h.missed(entries)
	return nil
}

// leaf is the entry of that id, which is looked for from the end of the log: there it mostly is, and nothing before it is read.
func (h *history) leaf(ctx context.Context, id string) (entry.Entry, error) {
	for e, err := range h.session.Backward(ctx) {
		if err != nil {
			return entry.Entry{}, err
		}
		if e.ID() == id {
			return e, nil
		}
	}
	return h.session.Entry(ctx, id)
}

// shortened is how many messages of a context stand before the entry that made it shorter last.
func (h *history) shortened(ctx context.Context, c *entry.Context) (int, error) {
	n := 0
	for _, id := range []string{c.Compaction, c.Prune} {
		if id == "" {
			continue
		}
		at, err := h.session.Entry(ctx, id)
		if err != nil {
			return 0, err
		}
		for i, m := range c.Messages {
			if m.Entry().Offset() <= at.Offset() {
				n = max(n, i+1)
			}
		}
	}
	return n, nil
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
		custom, _ := e.Custom()
		if e.Type() == entry.TypeCompaction || e.Type() == entry.TypeResetBoundary || custom.CustomType == entry.PruneType {
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
	h.add(messages, true)
	return nil
}

func (h *history) reload(ctx context.Context) error {
	_, err := h.load(ctx)
	return err
}

// add takes messages in. counted says that the usage of answers among them is that of the conversation as it is.
func (h *history) add(messages []entry.Message, counted bool) {
	for _, m := range messages {
		h.messages = append(h.messages, m)
		if a, ok := m.(entry.AssistantMessage); ok {
			for _, call := range a.Content.ToolCalls() {
				h.ids[call.ID] = true
			}
			if n := tokensOf(a.Usage); n > 0 && counted {
				h.known, h.counted, h.uncounted, h.size = n, 0, nil, 0
				continue
			}
		}
		h.uncounted = append(h.uncounted, m)
		h.size += MessageTokens(m, bytesOf)
	}
}

func bytesOf(text string) int64 { return int64(len(text)) }

// bytesPerToken is what text has on average: little enough that the estimate is rather too high.
const bytesPerToken = 3

// EstimateTokens says how many tokens a text has, by its length: a third of its bytes, which is rather too many for
// English and code, and too few for what no tokenizer knows, such as base64.
func EstimateTokens(text string) int64 { return (int64(len(text)) + bytesPerToken - 1) / bytesPerToken }

// MessageTokens says how many tokens a message of a request has, the texts in it being counted by count.
func MessageTokens(m entry.Message, count func(text string) int64) int64 {
	const frame, image = 4, 1600 // of the message itself; of a picture of the usual limits
	n := int64(frame)
	for _, b := range contentOf(m).Blocks() {
		switch b := b.(type) {
		case entry.TextBlock:
			n += count(b.Text)
		case entry.ThinkingBlock:
			n += count(b.Thinking)
		case entry.ToolCallBlock:
			n += count(b.Name) + count(string(b.Arguments))
		case entry.ImageBlock:
			n += image
		}
	}
	return n
}

// tokens estimates the length of the next request: what the provider counted, and what came since. Below limit that is not
// counted, but told by its bytes, of which no token has less than one.
func (h *history) tokens(limit int64) int64 {
	base := h.known + h.counted
	if h.known == 0 {
		base += h.base
	}
	if base+h.size < limit {
		return base + h.size/bytesPerToken
	}
	for _, m := range h.uncounted {
		n := MessageTokens(m, h.count)
		h.counted += n
		base += n
	}
	h.uncounted, h.size = nil, 0
	return base
}

func contentOf(m entry.Message) entry.Content {
	switch m := m.(type) {
	case entry.UserMessage:
		return m.Content
	case entry.AssistantMessage:
		return m.Content
	case entry.ToolResultMessage:
		return m.Content
	}
	return entry.Content{}
}
