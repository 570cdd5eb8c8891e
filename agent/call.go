package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// MaxRefusals is how many answers in a row may consist of calls that are refused. A model that goes on so has no way out.
const MaxRefusals = 25

// maxParallel is how many calls of a turn are made at once.
const maxParallel = 8

// call makes the calls of an answer: those that may run beside each other at once, the others one by one, in their
// order. When it returns without an error each has its result in the log.
func (r *run) call(ctx context.Context, calls []entry.ToolCallBlock) error {
	r.enter(Calling)
	refusal := ""
	if reason := r.spent.Exhausted(); reason != "" {
		refusal = "[not called: " + reason + "]"
	}
	for len(calls) > 0 {
		n := 1
		for r.parallel(calls[0]) && n < len(calls) && n < maxParallel && r.parallel(calls[n]) {
			n++
		}
		var group sync.WaitGroup
		errs := make([]error, n)
		for i, c := range calls[:n] {
			if n == 1 {
				errs[i] = r.make(ctx, c, refusal)
				break
			}
			group.Go(func() { errs[i] = r.make(ctx, c, refusal) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

func (r *run) parallel(c entry.ToolCallBlock) bool {
	t := r.Tools.Tool(c.Name)
	return t != nil && t.ParallelSafe()
}

// make makes one call and puts its result into the log. With a refusal it is not made.
func (r *run) make(ctx context.Context, c entry.ToolCallBlock, refusal string) error {
	began := r.Now()
	var res tool.Result
	switch {
	case refusal != "":
		res = tool.Result{Text: refusal, IsError: true}
	case ctx.Err() != nil:
		res = tool.Result{Text: "[not called: " + interrupted(ctx).reason + "]", IsError: true}
	default:
		var err error
		if res, err = r.permitted(ctx, c); err != nil {
			return err
		}
	}
	return r.result(ctx, c, res, began)
}

// permitted makes a call that the rules, and where they say so a person, allow. The error is that of a call without an outcome.
func (r *run) permitted(ctx context.Context, c entry.ToolCallBlock) (tool.Result, error) {
	if text, invalid := model.InvalidArguments(c); invalid {
		if r.limited {
			return tool.Refuse(fmt.Errorf("%s was not called: your answer was cut at the limit of what you can say at once, and its arguments with it; call it again, with less at once, such as a long file in parts", c.Name)), nil
		}
		return tool.Refuse(fmt.Errorf("%s was not called: the arguments are no JSON object: %.200q", c.Name, text)), nil
	}
	if err := r.Tools.Knows(c.Name); err != nil {
		return tool.Refuse(err), nil
	}
	rules := r.rules()
	if err := r.decide(ctx, c, rules); err != nil {
		return tool.Refuse(err), nil
	}
	if err := r.beforeCall(ctx, c); err != nil {
		return tool.Refuse(err), nil
	}
	r.observe(CallStarted{c.ID, c.Name, c.Arguments})
	within := tool.WithHidden(tool.WithCall(ctx, r.ID, c.ID), permission.Hidden(r.Dir, rules, c.Name, c.Arguments))
	res, err := r.Tools.Call(within, c.Name, c.Arguments)
	if errors.Is(err, tool.ErrUnfinished) {
		return res, fmt.Errorf("calling %s: %w", c.Name, err)
	}
	if err != nil {
		why := err.Error()
		if ctx.Err() != nil {
			why = interrupted(ctx).reason
		}
		res.IsError = true
		res.Text = strings.TrimSuffix(res.Text, "\n")
		if res.Text != "" {
			res.Text += "\n"
		}
		res.Text += "[" + why + "]"
	}
	return r.afterCall(ctx, c, res.Redacted(r.Session.Redactor())), nil
}

// rules are those that hold at this moment.
func (r *run) rules() []*permission.Rules {
	if r.More == nil {
		return r.Rules
	}
	return append(slices.Clip(r.Rules), r.More()...)
}

// decide returns why a call is not to be made.
func (r *run) decide(ctx context.Context, c entry.ToolCallBlock, rules []*permission.Rules) error {
	if r.Rules == nil && len(rules) == 0 {
		return nil
	}
	d := permission.Decide(r.Dir, rules, c.Name, c.Arguments)
	switch d.Action {
	case permission.Allow:
		return nil
	case permission.Deny:
		return fmt.Errorf("%s was not called: %v", c.Name, d)
	}
	if r.Ask == nil {
		return fmt.Errorf("%s was not called: %v, and nobody is there to be asked", c.Name, d)
	}
	r.asking.Lock() // one question at a time
	defer r.asking.Unlock()
	r.enter(Waiting)
	defer r.enter(Calling)
	arguments := c.Arguments
	if by := r.Session.Redactor(); by != nil {
		arguments, _ = by.JSON(arguments)
	}
	yes, err := r.Ask(ctx, Question{r.ID, c.Name, arguments, d})
	switch {
	case err != nil:
		return fmt.Errorf("%s was not called: %v, and the question failed: %w", c.Name, d, err)
	case !yes:
		return fmt.Errorf("%s was not called: %v, and the person who was asked refused", c.Name, d)
	}
	return nil
}

// result puts the result of a call into the log.
func (r *run) result(ctx context.Context, c entry.ToolCallBlock, res tool.Result, began time.Time) error {
	ctx = context.WithoutCancel(ctx) // what was done is in the log, above all when the run was cancelled
	res = r.bound(ctx, c, res.Redacted(r.Session.Redactor()))
	m := entry.ToolResult(c, content(res))
	m.IsError, m.Details, m.Timestamp = res.IsError, res.Details, r.Now().UnixMilli()
	id, err := r.Session.Append(ctx, m)
	if err != nil {
		return fmt.Errorf("recording the result of %s: %w", c.Name, err)
	}
	r.counting.Lock()
	r.outcome.Calls++
	if res.Refused {
		r.refusal = res.Text
	} else {
		r.useful = true
	}
	r.counting.Unlock()
	r.observe(CallFinished{c.ID, c.Name, id, res, r.Now().Sub(began)})
	return nil
}

// content is a result as a message has it.
func content(res tool.Result) entry.Content {
	var blocks []entry.Block
	if res.Text != "" || len(res.Images) == 0 {
		blocks = append(blocks, entry.TextBlock{Text: strings.ToValidUTF8(res.Text, "\uFFFD")})
	}
	for _, image := range res.Images {
		blocks = append(blocks, entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(image.Data), MIMEType: image.MIMEType})
	}
	return entry.Blocks(blocks...)
}

// answerOpenCalls gives each call of the last answer its result that a crash has left without: an idempotent tool is
// called again, for others the model is told what is known.
func (r *run) answerOpenCalls(ctx context.Context, resumed *session.Resumed) error {
	calls, err := openCalls(resumed.Context)
	if err != nil || len(calls) == 0 {
		return err
	}
	var again []entry.ToolCallBlock
	for _, c := range calls {
		t := r.Tools.Tool(c.Name)
		lacks := redact.HasMark(c.Arguments)
		if _, known := t.(tool.KnowsCalls); known {
			lacks = false
		}
		if t != nil && t.Idempotent() && !lacks {
			again = append(again, c)
			continue
		}
		res := r.whatIsKnown(ctx, c)
		if lacks {
			res.Text += "\n[Its arguments had a secret in them, which the log lacks: it is not made again from there]"
		}
		if err := r.result(ctx, c, res, r.Now()); err != nil {
			return err
		}
	}
	if err := r.call(ctx, again); err != nil {
		return err
	}
	return r.history.reload(ctx)
}

// whatIsKnown is the result of a call that was cut off.
func (r *run) whatIsKnown(ctx context.Context, c entry.ToolCallBlock) tool.Result {
	res := tool.Result{Text: "[" + entry.InterruptedResult + "]", IsError: true, Details: json.RawMessage(`{"interrupted":true}`)}
	if r.Artifacts == nil {
		return res
	}
	if info, ok, err := r.Artifacts.ByCall(ctx, tool.Origin(r.ID, c.ID)); err == nil && ok {
		res.Artifact = fmt.Sprintf("artifact://%d", info.ID)
		res.Text += fmt.Sprintf("\n[What it had printed is in %s (%s)]", res.Artifact, quantity.Bytes(info.Bytes))
		if info.State == artifacts.Interrupted && info.Unsettled && info.Bytes <= maxSettled {
			_ = r.settle(ctx, info) // else the doctor does: the bytes are there
		}
	}
	return res
}

// maxSettled is the longest output, in bytes, of which a run that goes on records that it was cut off: it is read for its checksum.
const maxSettled = 1 << 30

// settle records that an output was cut off by a crash, which its writer could not.
func (r *run) settle(ctx context.Context, info artifacts.Info) error {
	f, err := r.Artifacts.Open(ctx, info.ID)
	if err != nil {
		return err
	}
	defer f.Close()
	ix, err := f.Index(ctx)
	if err != nil {
		return err
	}
	return r.Artifacts.Settle(ctx, info.ID, artifacts.Provenance{Run: info.Run}, info.State, info.Note, ix)
}

// openCalls are the calls of the last answer of a context that have no result in the log, as the log has them.
func openCalls(c *entry.Context) ([]entry.ToolCallBlock, error) {
	last := -1
	for i, m := range c.Messages {
		if m.Role == entry.RoleAssistant {
			last = i
		}
	}
	if last < 0 {
		return nil, nil
	}
	open := map[string]bool{}
	for _, m := range c.Messages[last:] {
		if m.Synthetic {
			open[m.ToolCallIDs[0]] = true
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	turn := c.Messages[last]
	m, err := turn.Entry().Message() // its ids are those of the log
	if err != nil {
		return nil, fmt.Errorf("reading entry %s: %w", turn.EntryID, err)
	}
	var calls []entry.ToolCallBlock
	for i, call := range m.(entry.AssistantMessage).Content.ToolCalls() {
		if i < len(turn.ToolCallIDs) && open[turn.ToolCallIDs[i]] {
			calls = append(calls, call)
		}
	}
	return calls, nil
}
