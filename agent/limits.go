package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/session/entry"
)

// Limits end a run. 0 is no limit. They are those of the work that a prompt begins: a run that was killed, cancelled or came to a limit
// goes on with what is left of them when it is resumed.
type Limits struct {
	Requests int           `json:"requests,omitempty"` // to the model, those that failed included
	Tokens   int64         `json:"tokens,omitempty"`   // of input, cached or not, and of output
	Cost     float64       `json:"cost,omitempty"`     // US dollars; models of unknown prices cost nothing
	Agents   int           `json:"agents,omitempty"`   // subagents that are started, at any depth
	Time     time.Duration `json:"time,omitempty"`     // by the wall clock, while the run goes on
}

// Budget is what a tree of runs may spend together. It is safe for concurrent use.
type Budget struct {
	Parent *Budget // everything spent here is spent there too; nil for the root

	mu     sync.Mutex
	limits Limits
	spent  Spent
	agents int  // that were started
	over   bool // more of them were wanted than there may be
}

// Spent is what was spent of a budget.
type Spent struct {
	Requests int     `json:"requests"`
	Tokens   int64   `json:"tokens"`
	Cost     float64 `json:"cost"`
}

// NewBudget returns a budget within parent, which may be nil. The time of limits is not its business.
func NewBudget(parent *Budget, limits Limits) *Budget {
	return &Budget{Parent: parent, limits: limits}
}

// Carry counts what was spent of it before, by a run that goes on, and how many subagents were started. It does not count above it,
// where whoever drives the root carries what was spent by all.
func (b *Budget) Carry(s Spent, agents int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent, b.agents = b.spent.Plus(s), b.agents+agents
}

// Spend counts a request.
func (b *Budget) Spend(u entry.Usage) {
	for ; b != nil; b = b.Parent {
		b.mu.Lock()
		b.spent = b.spent.Plus(spentOn(u))
		b.mu.Unlock()
	}
}

// Start counts subagents that are about to be started. Of more than there may be none is: the error says so, and the budget is
// spent then.
func (b *Budget) Start(n int) error {
	for at := b; at != nil; at = at.Parent {
		at.mu.Lock()
		l, before := at.limits.Agents, at.agents
		if at.over = at.over || l > 0 && before+n > l; !at.over {
			at.agents += n
		}
		over := at.over
		at.mu.Unlock()
		if over {
			for back := b; back != at; back = back.Parent { // none was started
				back.mu.Lock()
				back.agents -= n
				back.mu.Unlock()
			}
			return fmt.Errorf("a run may start %d subagents, and has started %d", l, before)
		}
	}
	return nil
}

// Spent returns what was spent.
func (b *Budget) Spent() Spent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

// Exhausted says which limit, of this budget or one above it, is reached, "" if none is.
func (b *Budget) Exhausted() string {
	for own := b.Spent(); b != nil; b = b.Parent {
		b.mu.Lock()
		l, s, over := b.limits, b.spent, b.over
		b.mu.Unlock()
		whose := ""
		if s != own {
			whose = ", together with other agents"
		}
		switch {
		case over:
			return fmt.Sprintf("its budget of %s is spent%s", quantity.Count(int64(l.Agents), "subagent", "subagents"), whose)
		case l.Requests > 0 && s.Requests >= l.Requests:
			return fmt.Sprintf("its budget of %s is spent%s", quantity.Count(int64(l.Requests), "request", "requests"), whose)
		case l.Tokens > 0 && s.Tokens >= l.Tokens:
			return fmt.Sprintf("its budget of %s is spent%s: %d", quantity.Count(l.Tokens, "token", "tokens"), whose, s.Tokens)
		case l.Cost > 0 && s.Cost >= l.Cost:
			return fmt.Sprintf("its budget of $%g is spent%s: $%.4f", l.Cost, whose, s.Cost)
		}
	}
	return ""
}

func tokensOf(u entry.Usage) int64 {
	return u.Input + u.Output + u.CacheRead + u.CacheWrite
}
