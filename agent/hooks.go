package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// Hooks are functions of others that a run calls at some points and waits for. Each may be nil. They may be called at the
// same time for calls that run beside each other. They cannot fail: what went wrong in one is its own to tell, and leaves the
// run as it was. A hook that panics ends the process, as any other function does.
type Hooks struct {
	// Start is called when the beginning of a run is in the log.
	Start func(ctx context.Context, resumed bool)
	// BeforeCall is called for a call that the rules allow. Its error is why it is not made, which the model is told.
	BeforeCall func(ctx context.Context, c Call) error
	// AfterCall is called for a call that was made, before its result is in the log. The remark that it returns is put
	// behind the text of the result; of a longer one than MaxRemark bytes the beginning.
	AfterCall func(ctx context.Context, c Call, res tool.Result) (remark string)
	// Stop is called when the run would be completed. What it returns is said to the model, which goes on; "" lets the run
	// end. It is asked at most MaxStops times in a row that it makes the run go on.
	Stop func(ctx context.Context, answer string) (say string)
}

// Limits of hooks.
const (
	MaxRemark = 2 << 10 // bytes of what a hook adds to a result or says to the model
	MaxStops  = 5       // times that a hook may make a run go on
)

// Call is a call as a hook sees it.
type Call struct {
	Agent     string
	ID        string // as the log has it
	Tool      string
	Arguments json.RawMessage // which the tool's schema may yet refuse
}

func (r *run) hooked(c entry.ToolCallBlock) Call { return Call{r.ID, c.ID, c.Name, c.Arguments} }

// beforeCall returns why a hook does not want a call made.
func (r *run) beforeCall(ctx context.Context, c entry.ToolCallBlock) error {
	if r.Hooks.BeforeCall == nil {
		return nil
	}
	if err := r.Hooks.BeforeCall(ctx, r.hooked(c)); err != nil {
		return fmt.Errorf("%s was not called: %w", c.Name, err)
	}
	if ctx.Err() != nil { // while the hook was at work
		return fmt.Errorf("%s was not called: %s", c.Name, interrupted(ctx).reason)
	}
	return nil
}

// afterCall puts a hook's remark behind a result, which is shortened before: the remark stays whole.
func (r *run) afterCall(ctx context.Context, c entry.ToolCallBlock, res tool.Result) tool.Result {
	if r.Hooks.AfterCall == nil || ctx.Err() != nil {
		return res
	}
	res = r.bound(context.WithoutCancel(ctx), c, res)
	if remark := remarkOf(r.Hooks.AfterCall(ctx, r.hooked(c), res)); remark != "" {
		if res.Text != "" {
			res.Text = strings.TrimSuffix(res.Text, "\n") + "\n"
		}
		res.Text += "[" + remark + "]"
	}
	return res
}

// stopping asks the hook whether a run that would be completed is to go on.
func (r *run) stopping(ctx context.Context, answer entry.AssistantMessage) string {
	if r.Hooks.Stop == nil || r.stops >= MaxStops || ctx.Err() != nil {
		return ""
	}
	say := remarkOf(r.Hooks.Stop(ctx, answer.Content.Text()))
	if say != "" {
		r.stops++
	}
	return say
}

// remarkOf is what a hook says, as valid text within its bound.
func remarkOf(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= MaxRemark {
		return text
	}
	text = text[:MaxRemark]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + " … (the rest of the remark is left out)"
}
