package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session/entry"
)

// run is one run of an agent.
type run struct {
	*Options
	agent   *Agent
	began   time.Time
	past    past
	history history
	tools   []model.ToolSpec // as the model is told of them
	// suffixes are the next ones for ids of calls that came more than once.
	suffixes map[string]int
	stops    int // how often a hook made the run go on
	refusals int // answers in a row of which every call was refused
	answers  int // of models in the log, those that failed or were aborted aside
	spent    *Budget
	before   Before          // what was spent of its limits, zero where they count anew
	queued   []queued        // said, and not taken up yet
	heardOf  map[string]bool // the entries that were queued
	outcome  Outcome

	cut       cutAnswer              // what there is of an answer that goes on
	limited   bool                   // the last answer was cut
	called    []entry.ToolCallBlock  // by the last answer, as the model said it
	pieces    map[int]*redact.Stream // of the answer that comes, by block; nil where no secrets are replaced
	observing sync.Mutex             // events come one after the other
	asking    sync.Mutex             // and so do questions
	counting  sync.Mutex             // guards outcome.Calls and what follows
	useful    bool                   // a call was made since the last answer
	refusal   string                 // of the last call that was refused
}

// errTimeUp is why the context of a run is done when its time is over.
var errTimeUp = errors.New("the time of the run is over")

// begin writes the beginning of a run: its settings and the prompt, if there is one, in one write.
func (r *run) begin(ctx context.Context, prompt *entry.Content, with ...entry.Body) error {
	r.spent = NewBudget(r.Budget, r.Limits)
	r.outcome = Outcome{Run: newRunID(), Resumed: prompt == nil}
	r.answers = r.past.answers
	start := Start{
		Run: r.outcome.Run, Agent: r.ID, Model: r.Model.Info().Name(), Spec: r.Spec, Limits: r.Limits, Settings: r.Settings, Answers: r.answers, Read: &r.past.read,
	}
	if r.Seal != nil {
		var err error
		if start.Seal, err = r.Seal(start.Run); err != nil {
			return fmt.Errorf("beginning a run: %w", err)
		}
	}
	if prompt == nil && r.past.start != nil {
		start.Resumes = r.past.start.Run
		start.Before = r.past.before()
		if r.outcome.Anew = start.Before == nil; !r.outcome.Anew {
			if err := r.countOn(ctx, *start.Before); err != nil {
				return fmt.Errorf("going on with a run: %w", err)
			}
		}
	}
	for _, q := range r.past.queued {
		start.Said = append(start.Said, q.entry)
	}
	r.queued = r.past.queued // behind results that are missing, which are appended first
	data, err := json.Marshal(start)
	if err != nil {
		return fmt.Errorf("beginning a run: %w", err)
	}
	bodies := []entry.Body{entry.Custom{CustomType: StartType, Data: data}}
	if r.past.start == nil {
		bodies = append(bodies, r.settings(prompt)...)
	}
	bodies = append(bodies, entry.ModelChange{Model: r.Model.Info().Name()})
	if r.Thinking != "" {
		bodies = append(bodies, entry.ThinkingLevelChange{ThinkingLevel: &r.Thinking})
	}
	bodies = append(bodies, with...)
	if prompt != nil {
		body, err := message(*prompt, origin{Run: start.Run})
		if err != nil {
			return fmt.Errorf("beginning a run: %w", err)
		}
		bodies = append(bodies, body)
	}
	if _, err := r.Session.AppendAll(ctx, bodies...); err != nil {
		return fmt.Errorf("beginning a run: %w", err)
	}
	return nil
}

// countOn has what was spent of the limits before count as this run's, and that of its subagents as their budget's.
func (r *run) countOn(ctx context.Context, before Before) error {
	r.before, r.outcome.CountedOn = before, before.Spent != (Spent{})
	r.spent.Carry(before.Spent, 0)
	if r.Budget == nil {
		return nil
	}
	below, agents, err := Spent{}, 0, error(nil)
	if r.Below != nil {
		below, agents, err = r.Below(ctx, before.Since)
	}
	r.Budget.Carry(before.Spent.Plus(below), agents)
	return err
}

// settings is what the first run of a session was set up with.
func (r *run) settings(prompt *entry.Content) []entry.Body {
	init := entry.SessionInit{SystemPrompt: r.System, Agent: r.ID, ResolvedModel: r.Model.Info().Name()}
	if prompt != nil {
		init.Task = prompt.Text()
	}
	for _, t := range r.Tools.Tools() {
		init.Tools = append(init.Tools, t.Name())
	}
	if r.Answer != nil {
		init.OutputSchema = r.Answer.Schema
	}
	return []entry.Body{init}
}

// work runs, and writes the end.
func (r *run) work(ctx context.Context) (Outcome, error) {
	inner := ctx
	if r.Limits.Time > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeoutCause(ctx, r.Limits.Time-time.Duration(r.before.TookMS)*time.Millisecond, errTimeUp)
		defer cancel()
	}
	for _, t := range r.Tools.Tools() {
		r.tools = append(r.tools, model.ToolSpec{Name: t.Name(), Description: t.Description(), Schema: t.Schema()})
	}
	r.history = history{session: r.Session, heard: r.hear, missed: r.queue, read: r.past.read, count: r.Count, base: r.base()}
	r.heardOf = map[string]bool{}
	for _, q := range r.queued {
		r.heardOf[q.entry] = true
	}
	r.suffixes = map[string]int{}
	if r.Session.Redactor() != nil {
		r.pieces = map[int]*redact.Stream{}
	}
	if r.Hooks.Start != nil {
		r.Hooks.Start(inner, r.outcome.Resumed)
	}
	err := r.loop(inner)
	if end := (*ending)(nil); errors.As(err, &end) {
		r.outcome.Status, r.outcome.Reason, err = end.status, end.reason, nil
	} else if err != nil {
		r.outcome.Status, r.outcome.Reason = FailedRun, err.Error()
	}
	r.outcome.Reason = cleared(r.Session.Redactor(), r.outcome.Reason)
	r.outcome.Total = r.spent.Spent()
	r.outcome.Spent = r.outcome.Total.less(r.before.Spent.less(r.before.Untold))
	r.outcome.Took = r.Now().Sub(r.began)
	data, jerr := json.Marshal(End{r.outcome, r.outcome.Took.Milliseconds()})
	if jerr == nil {
		_, jerr = r.Session.Append(context.WithoutCancel(ctx), entry.Custom{CustomType: EndType, Data: data})
	}
	if jerr != nil && err == nil { // else what ended the run is the reason of both
		err = fmt.Errorf("recording the end of the run: %w", jerr)
		r.outcome.Status, r.outcome.Reason = FailedRun, err.Error()
	}
	state := Stopped
	if r.outcome.Status == FailedRun {
		state = Failed
	}
	r.enter(state)
	r.observe(Ended{r.outcome})
	return r.outcome, err
}

// ending is how a loop ends that is no failure of agentrun.
type ending struct {
	status Status
	reason string
}

func (e *ending) Error() string { return fmt.Sprintf("%s: %s", e.status, e.reason) }

// interrupted is the ending that a done context stands for.
func interrupted(ctx context.Context) *ending {
	cause := context.Cause(ctx)
	if errors.Is(cause, errTimeUp) {
		return &ending{TimeoutEnd, errTimeUp.Error()}
	}
	if cause == nil || errors.Is(cause, context.Canceled) {
		return &ending{Cancelled, "the run was cancelled"}
	}
	return &ending{Cancelled, "the run was cancelled: " + cause.Error()}
}

// loop asks and calls until there is an ending.
func (r *run) loop(ctx context.Context) error {
	if ctx.Err() != nil { // before the calls that are open come to an end by that
		return interrupted(ctx)
	}
	resumed, err := r.history.load(ctx)
	if err == nil {
		err = r.answerOpenCalls(ctx, resumed)
	}
	if err != nil {
		return r.or(ctx, err)
	}
	if r.cut = cutAnswerOf(r.history.messages); r.past.failed() {
		r.cut.cuts = min(r.cut.cuts, 1)
	}
	if len(r.queued) == 0 && r.outcome.Resumed && r.done() {
		return &ending{Completed, ""}
	}
	if answer, ok := r.lastWord(); ok {
		if going, err := r.next(ctx, answer); err != nil || !going {
			return r.or(ctx, cmp.Or(err, error(&ending{Completed, ""})))
		}
	}
	for {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		if reason := r.spent.Exhausted(); reason != "" {
			return &ending{BudgetEnd, reason}
		}
		if err := r.takeUp(ctx); err != nil {
			return r.or(ctx, err)
		}
		if _, err := r.shorten(ctx, false); err != nil {
			return r.or(ctx, err)
		}
		answer, err := r.ask(ctx)
		if err != nil {
			return r.or(ctx, err)
		}
		if calls := r.called; len(calls) > 0 {
			r.useful = false
			err := r.call(ctx, calls)
			if err == nil {
				err = r.history.extend(ctx)
			}
			if err == nil {
				err = r.stuck()
			}
			if err != nil {
				return r.or(ctx, err)
			}
			if r.done() {
				return &ending{Completed, ""}
			}
			continue
		}
		going, err := r.next(ctx, answer)
		if err != nil {
			return r.or(ctx, err)
		}
		if !going {
			return &ending{Completed, ""}
		}
	}
}

// stuck ends a run whose model does nothing any more but ask for what it may not have.
func (r *run) stuck() error {
	if r.refusals++; r.useful {
		r.refusals = 0
	}
	if r.refusals < MaxRefusals || r.done() || r.spent.Exhausted() != "" {
		return nil
	}
	return &ending{FailedRun, fmt.Sprintf("every call of its last %d answers was refused, the last one so: %.300s", MaxRefusals, r.refusal)}
}

func (r *run) done() bool { return r.Done != nil && r.Done(r.history.messages) }

// lastWord is the answer of a run that was cut off behind its last answer.
func (r *run) lastWord() (entry.AssistantMessage, bool) {
	if n := len(r.history.messages); r.outcome.Resumed && n > 0 {
		if answer, ok := r.history.messages[n-1].(entry.AssistantMessage); ok && len(answer.Content.ToolCalls()) == 0 {
			r.outcome.Text, r.outcome.Entry = r.cut.text, r.history.lastAnswer
			if !wasCut(answer) {
				r.outcome.Text += answer.Content.Text()
			}
			return answer, true
		}
	}
	return entry.AssistantMessage{}, false
}

// or returns the ending that a done context stands for in the place of the error that it caused.
func (r *run) or(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return interrupted(ctx)
	}
	return err
}

// next decides whether the run goes on behind an answer without calls.
func (r *run) next(ctx context.Context, answer entry.AssistantMessage) (going bool, err error) {
	if err := r.history.extend(ctx); err != nil {
		return false, err
	}
	if wasCut(answer) {
		return true, r.goOnCut(ctx)
	}
	if len(r.queued) > 0 {
		return true, nil
	}
	if r.Await != nil {
		if more, err := r.Await(ctx); err != nil || more {
			return more, err
		}
	}
	say := ""
	if r.Next != nil {
		if say, err = r.Next(ctx, answer); err != nil {
			return false, err
		}
	}
	if say == "" {
		say = r.stopping(ctx, answer)
	}
	if say == "" {
		return false, nil
	}
	body, err := message(entry.PlainText(say), origin{Run: r.outcome.Run})
	if err != nil {
		return false, err
	}
	_, err = r.Session.Append(ctx, body)
	return true, err
}

// hear notes what others have said to the agent.
func (r *run) hear(entries []entry.Entry) {
	for _, e := range entries {
		r.countCompaction(e)
		if items, ok := plan.TodoOf(e); ok {
			r.observe(TodoChanged{items})
		}
		if e.Type() == entry.TypeModeChange {
			body, err := e.Body()
			if mode, ok := body.(entry.ModeChange); ok && err == nil {
				r.observe(ModeChanged{plan.ModeOf(mode.Mode)})
			}
		}
	}
	r.queue(entries)
}

// queue notes what has been said in entries, once.
func (r *run) queue(entries []entry.Entry) {
	for _, e := range entries {
		custom, ok := e.Custom()
		if !ok || custom.CustomType != SayType || r.heardOf[e.ID()] {
			continue
		}
		var said Said
		if json.Unmarshal(custom.Data, &said) == nil && said.Text != "" {
			r.heardOf[e.ID()] = true
			r.queued = append(r.queued, queued{e.ID(), said.Text})
		}
	}
}

// takeUp appends what was said and what comes from elsewhere, and reads everything that is new.
func (r *run) takeUp(ctx context.Context) error {
	if err := r.history.extend(ctx); err != nil {
		return err
	}
	var bodies []entry.Body
	for _, q := range r.queued {
		body, err := message(entry.PlainText(q.text), origin{Said: q.entry})
		if err != nil {
			return err
		}
		bodies = append(bodies, body)
	}
	if r.Inbox != nil {
		more, err := r.Inbox(ctx)
		if err != nil {
			return err
		}
		bodies = append(bodies, more...)
	}
	if len(bodies) == 0 {
		return nil
	}
	ids, err := r.Session.AppendAll(ctx, bodies...)
	if err != nil {
		return fmt.Errorf("taking up what was said: %w", err)
	}
	for i, q := range r.queued {
		r.observe(Heard{ids[i], q.text})
	}
	r.queued = nil
	return r.history.extend(ctx)
}

// enter changes the state, and tells it.
func (r *run) enter(s State) {
	if r.agent.enter(s) != s {
		r.observe(StateChanged{s})
	}
}

func (a *Agent) enter(s State) (before State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, a.state = a.state, s
	return before
}

func (r *run) observe(e Event) {
	if r.Observe == nil {
		return
	}
	r.observing.Lock()
	defer r.observing.Unlock()
	by := r.Session.Redactor()
	if by == nil {
		r.Observe(e)
		return
	}
	for _, e := range r.clearedEvents(by, e) {
		r.Observe(e)
	}
}
