package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// CompactPurpose is the purpose of an entry.ModelUsage of a request that Options.Compact has made.
const CompactPurpose = "compaction"

// ErrTooLong is why Options.Compact gives up: the context does not fit, and cannot be made shorter.
var ErrTooLong = errors.New("the context does not fit and cannot be made shorter")

// shorten lets the context be made shorter, and reports whether it was.
func (r *run) shorten(ctx context.Context, overflow bool) (bool, error) {
	if r.Compact == nil {
		return false, nil
	}
	tokens := r.history.tokens(r.CompactAt)
	if !overflow && tokens < r.CompactAt {
		return false, nil
	}
	before := r.agent.enter(Compacting)
	r.observe(StateChanged{Compacting})
	done, err := r.Compact(ctx, tokens, overflow)
	r.enter(before)
	if failure := (*model.Error)(nil); errors.Is(err, ErrTooLong) || errors.As(err, &failure) {
		if ctx.Err() != nil {
			err = interrupted(ctx)
		} else {
			err = &ending{FailedRun, "compacting the context: " + err.Error()}
		}
	} else if err != nil {
		return false, fmt.Errorf("compacting the context: %w", err)
	}
	// Also behind a failure: what was asked for counts.
	if xerr := r.history.extend(ctx); xerr != nil && err == nil {
		err = xerr
	}
	if err != nil || !done {
		return false, err
	}
	r.observe(Compacted{tokens})
	if reason := r.spent.Exhausted(); reason != "" {
		return true, &ending{BudgetEnd, reason}
	}
	return true, nil
}

// countCompaction counts a request that made the context shorter.
func (r *run) countCompaction(e entry.Entry) {
	if e.Type() != entry.TypeModelUsage {
		return
	}
	var u entry.ModelUsage
	if e.Decode(&u) == nil && u.Purpose == CompactPurpose {
		r.spent.Spend(u.Usage)
		r.outcome.add(u.Usage)
	}
}

// base is what every request has beside the conversation, in tokens: the system prompt and the tools.
func (r *run) base() int64 {
	if r.Compact == nil {
		return 0
	}
	var n int64
	for _, part := range r.System {
		n += EstimateTokens(part)
	}
	for _, t := range r.tools {
		n += EstimateTokens(t.Name) + EstimateTokens(t.Description) + EstimateTokens(string(t.Schema))
	}
	return n
}
