package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// Retries says how failures of a provider are met.
type Retries struct {
	Tries   int           // of one request, the first one included
	First   time.Duration // between the first two; it doubles from then on, with a jitter
	Longest time.Duration // between two
	// Patience is the longest time that a provider may ask to wait; a request that asks for more fails.
	Patience time.Duration
	// Silence is how long a stream may yield nothing of an answer before it counts as cut. Signs that the provider is still
	// there do not count: one that gives nothing else would be waited for without end.
	Silence time.Duration
}

// DefaultRetries wait a few minutes altogether, and as long as a provider asks for besides. Models reason for minutes in silence;
// a connection over which nothing comes at all is given up by the adapters, sooner than here.
var DefaultRetries = Retries{
	Tries: 8, First: time.Second, Longest: time.Minute, Patience: 10 * time.Minute, Silence: 20 * time.Minute,
}

func (o Retries) orDefault() Retries {
	if o == (Retries{}) {
		return DefaultRetries
	}
	return o
}

// wait is the time before the next try.
func (o Retries) wait(try int, asked time.Duration) time.Duration {
	d := o.First << min(try-1, 20)
	if d > o.Longest || d <= 0 {
		d = o.Longest
	}
	if d > 0 {
		d = d/2 + rand.N(d/2+1)
	}
	return max(d, asked)
}

// errSilent is why a stream was given up that yields nothing.
var errSilent = errors.New("the provider says nothing any more")

// ask makes a request until there is an answer, which is in the log then.
func (r *run) ask(ctx context.Context) (entry.AssistantMessage, error) {
	r.enter(Thinking)
	shortened := false
	for try := 1; ; try++ {
		answer, err := r.stream(ctx)
		if err == nil {
			err = r.answered(ctx, &answer)
			return answer, err
		}
		var failure *model.Error
		if !errors.As(err, &failure) {
			failure = &model.Error{Kind: model.KindServer, Message: err.Error(), Err: err}
		}
		r.spent.Spend(usageOf(failure))
		if err := r.failed(ctx, failure); err != nil {
			return answer, err
		}
		switch {
		case ctx.Err() != nil:
			return answer, interrupted(ctx)
		case failure.Kind == model.KindOverflow && !shortened && r.Compact != nil:
			shortened = true
			done, err := r.shorten(ctx, true)
			if err != nil {
				return answer, err
			}
			if !done {
				return answer, &ending{FailedRun, fmt.Sprintf("%v (there is nothing to compact)", failure)}
			}
			continue
		case failure.Kind == model.KindOverflow && shortened:
			return answer, &ending{FailedRun, fmt.Sprintf("%v (the context does not fit though it was compacted)", failure)}
		case !failure.Temporary():
			return answer, &ending{FailedRun, failure.Error()}
		case try >= r.Retries.Tries:
			return answer, &ending{FailedRun, fmt.Sprintf("%v (after %d tries)", failure, try)}
		case failure.RetryAfter > r.Retries.Patience:
			return answer, &ending{FailedRun, fmt.Sprintf("%v (it asks to wait %v, and %v is the longest)", failure, failure.RetryAfter, r.Retries.Patience)}
		}
		if reason := r.spent.Exhausted(); reason != "" {
			return answer, &ending{BudgetEnd, reason}
		}
		wait := r.Retries.wait(try, failure.RetryAfter)
		r.observe(Retrying{try, r.Retries.Tries, failure, wait})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, interrupted(ctx)
		}
		if err := r.history.extend(ctx); err != nil {
			return answer, err
		}
	}
}

// stream makes one request. A *model.Error says what became of it otherwise.
func (r *run) stream(ctx context.Context) (entry.AssistantMessage, error) {
	clear(r.pieces)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(r.Retries.Silence, func() { cancel(errSilent) })
	defer silence.Stop()
	for event, err := range r.Model.Stream(inner, r.request()) {
		if err != nil {
			var failure *model.Error
			if context.Cause(inner) == errSilent && errors.As(err, &failure) {
				failure = &model.Error{Kind: model.KindCut, Message: errSilent.Error(), Partial: failure.Partial, Model: failure.Model, Err: errSilent}
				return entry.AssistantMessage{}, failure
			}
			return entry.AssistantMessage{}, err
		}
		switch event := event.(type) {
		case model.Stop:
			return event.Message, nil
		case model.UsageSoFar: // perhaps with nothing new in it
		default:
			silence.Reset(r.Retries.Silence)
		}
		r.observe(Answering{event})
	}
	return entry.AssistantMessage{}, &model.Error{Kind: model.KindCut, Message: "the stream ended without an answer", Model: r.Model.Info().Name()}
}

// request is what the model is asked next.
func (r *run) request() *model.Request {
	return &model.Request{
		Agent: r.ID, Turn: r.answers, System: r.System, Messages: r.history.messages, Checked: &r.history.checked, Answer: r.Answer,
		Thinking: r.Thinking, CacheKey: r.Session.ID(), Tools: r.tools,
	}
}

// answered puts an answer into the log.
func (r *run) answered(ctx context.Context, answer *entry.AssistantMessage) error {
	r.distinguish(answer)
	r.spent.Spend(answer.Usage)
	r.outcome.add(answer.Usage)
	id, err := r.Session.Append(context.WithoutCancel(ctx), *answer)
	if err != nil {
		return fmt.Errorf("recording an answer: %w", err)
	}
	r.answers++
	r.called = answer.Content.ToolCalls()
	if *answer, err = r.clearedAnswer(*answer); err != nil {
		return fmt.Errorf("recording an answer: %w", err)
	}
	r.limited = wasCut(*answer)
	if text := r.cut.add(*answer); text != "" || r.outcome.Text == "" {
		r.outcome.Text, r.outcome.Entry = text, id
	}
	r.observe(Answered{id, *answer})
	return nil
}

// failed puts into the log what had come of an answer that failed. Of one of which nothing came there is no entry.
func (r *run) failed(ctx context.Context, failure *model.Error) error {
	if failure.Partial == nil {
		return nil
	}
	m := *failure.Partial
	r.distinguish(&m)
	if m.StopReason = entry.StopError; ctx.Err() != nil {
		m.StopReason = entry.StopAborted
	}
	m.Timestamp, m.ErrorMessage = r.Now().UnixMilli(), failure.Error()
	r.outcome.add(m.Usage)
	if _, err := r.Session.Append(context.WithoutCancel(ctx), m); err != nil {
		return fmt.Errorf("recording a request that failed: %w", err)
	}
	return nil
}

// distinguish gives calls an id of their own whose id the conversation has already: an id names one call, and its one
// result.
func (r *run) distinguish(m *entry.AssistantMessage) {
	taken := map[string]bool{}
	blocks := m.Content.Blocks()
	var changed []entry.Block
	for i, b := range blocks {
		call, ok := b.(entry.ToolCallBlock)
		if !ok {
			continue
		}
		id := cmp.Or(call.ID, "call")
		for call.ID == "" || r.history.ids[call.ID] || taken[call.ID] {
			// Some providers count anew in every answer: where the last search for this id ended, the next one begins.
			n := max(2, r.suffixes[id])
			r.suffixes[id] = n + 1
			call.ID = fmt.Sprintf("%s-%d", id, n)
		}
		taken[call.ID] = true
		if call.ID != b.(entry.ToolCallBlock).ID {
			if changed == nil {
				changed = append(changed, blocks...)
			}
			changed[i] = call
		}
	}
	if changed != nil {
		m.Content = entry.Blocks(changed...)
	}
}

func usageOf(e *model.Error) (u entry.Usage) {
	if e.Partial != nil {
		u = e.Partial.Usage
	}
	return u
}

func (o *Outcome) add(u entry.Usage) {
	o.Usage.Input += u.Input
	o.Usage.Output += u.Output
	o.Usage.CacheRead += u.CacheRead
	o.Usage.CacheWrite += u.CacheWrite
	o.Usage.TotalTokens += u.TotalTokens
	o.Usage.Cost.Input += u.Cost.Input
	o.Usage.Cost.Output += u.Cost.Output
	o.Usage.Cost.CacheRead += u.Cost.CacheRead
	o.Usage.Cost.CacheWrite += u.Cost.CacheWrite
	o.Usage.Cost.Total += u.Cost.Total
}
