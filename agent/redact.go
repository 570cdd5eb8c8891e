package agent

import (
	"errors"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session/entry"
)

// Where the session replaces secrets, all that a run shows is what its log has: events, outcomes, the system prompt. The model is
// asked with the log anyway. Only a tool is called with what the model said, to the byte.

// cleared is a text without secrets.
func cleared(by *redact.Redactor, text string) string {
	if by == nil {
		return text
	}
	left, n := by.Text([]byte(text))
	if n == 0 {
		return text
	}
	return string(left)
}

// clearedAnswer is an answer as the log has it.
func (r *run) clearedAnswer(answer entry.AssistantMessage) (entry.AssistantMessage, error) {
	m, err := r.Session.RedactMessage(answer)
	if err != nil {
		return answer, err
	}
	return m.(entry.AssistantMessage), nil
}

// clearedEvents are what is told of an event: with secrets replaced it may be none as long as one may yet come, and two where
// something was held back. r.observing is held.
func (r *run) clearedEvents(by *redact.Redactor, e Event) []Event {
	switch e := e.(type) {
	case Answering:
		return r.clearedPiece(by, e.Event)
	case Retrying:
		if text := e.Err.Error(); cleared(by, text) != text {
			e.Err = errors.New(cleared(by, text))
		}
		return []Event{e}
	case CallStarted:
		e.Arguments, _ = by.JSON(e.Arguments)
		return []Event{e}
	case Heard:
		e.Text = cleared(by, e.Text)
		return []Event{e}
	}
	return []Event{e} // of what the log has
}

// clearedPiece is a piece of an answer.
func (r *run) clearedPiece(by *redact.Redactor, e model.Event) []Event {
	piece := func(block int, text string) string {
		if r.pieces[block] == nil {
			r.pieces[block] = by.Stream()
		}
		return string(r.pieces[block].Append(nil, []byte(text)))
	}
	switch e := e.(type) {
	case model.TextDelta:
		if e.Text = piece(e.Block, e.Text); e.Text == "" {
			return nil
		}
		return []Event{Answering{e}}
	case model.ThinkingDelta:
		if e.Text = piece(e.Block, e.Text); e.Text == "" {
			return nil
		}
		return []Event{Answering{e}}
	case model.ToolCallDelta:
		if e.JSON = piece(e.Block, e.JSON); e.JSON == "" {
			return nil
		}
		return []Event{Answering{e}}
	case model.Retry:
		clear(r.pieces)
		if text := e.Err.Error(); cleared(by, text) != text {
			e.Err = &model.Error{Kind: e.Err.Kind, Message: cleared(by, text), RetryAfter: e.Err.RetryAfter, Model: e.Err.Model}
		}
		return []Event{Answering{e}}
	case model.BlockEnd:
		return r.clearedEnd(e)
	}
	return []Event{Answering{e}}
}

// clearedEnd is the end of a block, behind what was held back of it.
func (r *run) clearedEnd(e model.BlockEnd) (events []Event) {
	if s := r.pieces[e.Block]; s != nil {
		if rest := string(s.Flush(nil)); rest != "" {
			switch e.Content.(type) {
			case entry.TextBlock:
				events = append(events, Answering{model.TextDelta{Block: e.Block, Text: rest}})
			case entry.ThinkingBlock:
				events = append(events, Answering{model.ThinkingDelta{Block: e.Block, Text: rest}})
			case entry.ToolCallBlock:
				events = append(events, Answering{model.ToolCallDelta{Block: e.Block, JSON: rest}})
			}
		}
	}
	// Signed blocks stay what they are in the log; shown they are what their pieces were.
	if m, err := r.clearedAnswer(entry.AssistantMessage{Content: entry.Blocks(e.Content)}); err == nil && len(m.Content.Blocks()) == 1 {
		e.Content = m.Content.Blocks()[0]
	}
	return append(events, Answering{e})
}
