package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentrun/agentrun/session/entry"
)

// MaxContinuations is how often in a row an answer that was cut at the output limit of its model is gone on with.
const MaxContinuations = 3

// goOn is what a model is told whose answer was cut.
const goOn = "[Your answer was cut at the limit of what you can say at once. Go on exactly where it stopped, and repeat nothing.]"

// wasCut reports whether an answer ends where its model may say no more.
func wasCut(m entry.AssistantMessage) bool { return m.StopReason == entry.StopLength }

// cutAnswer is the beginning of an answer, by one or more that were cut in a row.
type cutAnswer struct {
	text string // of all of them
	cuts int
}

// add takes an answer in, and returns what has been answered with it.
func (p *cutAnswer) add(m entry.AssistantMessage) (text string) {
	text = p.text + m.Content.Text()
	if wasCut(m) && len(m.Content.ToolCalls()) == 0 {
		*p = cutAnswer{text, p.cuts + 1}
	} else {
		*p = cutAnswer{}
	}
	return text
}

// cutAnswerOf is the one that a conversation ends with; one that is whole at its end is the rest of it.
func cutAnswerOf(messages []entry.Message) (p cutAnswer) {
	n := len(messages)
	if n > 0 {
		if m, ok := messages[n-1].(entry.AssistantMessage); ok && !wasCut(m) {
			n--
		}
	}
	for _, m := range slices.Backward(messages[:n]) {
		switch m := m.(type) {
		case entry.AssistantMessage:
			if !wasCut(m) || len(m.Content.ToolCalls()) > 0 {
				return p
			}
			p.text, p.cuts = m.Content.Text()+p.text, p.cuts+1
		case entry.UserMessage:
			if m.Content.Text() != goOn {
				return p
			}
		default:
			return p
		}
	}
	return p
}

// goOnCut has a model go on with its answer, which was cut.
func (r *run) goOnCut(ctx context.Context) error {
	if r.cut.cuts > MaxContinuations {
		limit := ""
		if n := r.Model.Info().MaxOutput; n > 0 {
			limit = fmt.Sprintf(" of %d tokens", n)
		}
		return &ending{FailedRun, fmt.Sprintf("%d answers in a row were cut at the output limit%s of %s; what they say is kept: ask for less at once, or resume to have it go on", r.cut.cuts, limit, r.Model.Info().Name())}
	}
	body, err := message(entry.PlainText(goOn), origin{Run: r.outcome.Run})
	if err != nil {
		return err
	}
	if _, err = r.Session.Append(ctx, body); err != nil {
		return fmt.Errorf("going on with an answer that was cut: %w", err)
	}
	return nil
}
