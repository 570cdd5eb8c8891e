package model

import (
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/session/entry"
)

// Messages are the messages of a context in the form that a request has them in. A member
// of a message that its type does not know is not in it. A message of the log that does
// not decode is an error, which names its entry.
func Messages(c *entry.Context) ([]entry.Message, error) {
	messages := make([]entry.Message, 0, len(c.Messages))
	for _, cm := range c.Messages {
		m, err := cm.Message()
		if err != nil {
			return nil, fmt.Errorf("reading entry %s for a model: %w", cm.EntryID, err)
		}
		if a, ok := m.(entry.AssistantMessage); ok && cm.Interrupted {
			a.Content = withoutUnsignedEnd(a.Content)
			m = a
		}
		if m, ok := Plain(m); ok {
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// Plain returns a message as a request has it: itself, or, where a provider knows no such
// message, a user message that says the same in words: an execution as the command and its
// output, a mention as the files, a summary as what it is. Images stay images. It is
// false for a message that no model is to see: one that says nothing, which [Check]
// refuses, an execution that its user excluded, one of a role that nobody knows.
func Plain(m entry.Message) (entry.Message, bool) {
	switch m := m.(type) {
	case entry.UserMessage:
		return m, !saysNothing(m.Content)
	case entry.AssistantMessage:
		return m, !saysNothing(m.Content)
	case entry.ToolResultMessage:
		return m, true
	case entry.ExtensionMessage:
		return entry.UserMessage{Role: entry.RoleUser, Content: m.Content, Timestamp: m.Timestamp, Attribution: m.Attribution},
			!saysNothing(m.Content)
	case entry.BashExecutionMessage:
		return said(m, m.Timestamp, m.Images), !m.ExcludeFromContext
	case entry.PythonExecutionMessage:
		return said(m, m.Timestamp, nil), !m.ExcludeFromContext
	case entry.FileMentionMessage:
		var images []entry.ImageBlock
		for _, f := range m.Files {
			if f.Image != nil {
				images = append(images, *f.Image)
			}
		}
		return said(m, m.Timestamp, images), len(m.Files) > 0
	case entry.CompactionSummaryMessage:
		return summary("The conversation before this point was compacted into this summary:", m.Summary, m.Timestamp)
	case entry.BranchSummaryMessage:
		return summary("This is a summary of a branch that this conversation came back from:", m.Summary, m.Timestamp)
	}
	return nil, false
}

// said is a message in words, with its images behind them.
func said(m entry.Message, at int64, images []entry.ImageBlock) entry.Message {
	blocks := []entry.Block{entry.TextBlock{Text: entry.Text(m)}}
	for _, image := range images {
		blocks = append(blocks, image)
	}
	return entry.UserMessage{Role: entry.RoleUser, Content: entry.Blocks(blocks...), Timestamp: at}
}

// summary is a summary as a model is told of it.
func summary(title, text string, at int64) (entry.Message, bool) {
	content := entry.Blocks(entry.TextBlock{Text: title + "\n\n<summary>\n" + text + "\n</summary>"})
	return entry.UserMessage{Role: entry.RoleUser, Content: content, Timestamp: at}, strings.TrimSpace(text) != ""
}

// withoutUnsignedEnd leaves out the reasoning that a turn was cut short in: it is in the note
// that follows the turn.
func withoutUnsignedEnd(c entry.Content) entry.Content {
	blocks := c.Blocks()
	for len(blocks) > 0 {
		b, ok := blocks[len(blocks)-1].(entry.ThinkingBlock)
		if !ok || b.Signature != "" {
			break
		}
		blocks = blocks[:len(blocks)-1]
	}
	return entry.Blocks(blocks...)
}
