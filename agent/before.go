package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// Before is what was spent when a run goes on, since the prompt: by its agent in the runs that it goes on with.
type Before struct {
	Since  time.Time `json:"since"` // when the first of them began
	Spent  Spent     `json:"spent"`
	Untold Spent     `json:"untold,omitzero"` // of that, what no End has told: those runs were killed
	TookMS int64     `json:"tookMs"`          // by the wall clock, while they went on
}

// longest bounds what a log may say of times: of several of them the sum still is one.
const longest = 100 * 365 * 24 * time.Hour / 2

// before is what the run that goes on has spent. It is nil for one that begins anew: behind a run that is completed, and where a run
// came to an end of its own and was told something since, which is a task like a prompt.
func (p *past) before() *Before {
	if p.finished() || p.end != nil && p.end.Run == p.start.Run && p.end.Status != Cancelled && len(p.queued) > 0 {
		return nil
	}
	b := Before{Since: p.began}
	if p.start.Before != nil {
		b = *p.start.Before
		b.TookMS = min(max(0, b.TookMS), longest.Milliseconds())
	}
	if p.end != nil && p.end.Run == p.start.Run {
		b.Spent = b.Spent.less(b.Untold).Plus(p.end.Spent)
		b.Untold = Spent{}
		b.TookMS += min(max(0, p.end.DurationMS), longest.Milliseconds())
		return &b
	}
	b.Spent, b.Untold = b.Spent.Plus(p.spent), b.Untold.Plus(p.spent)
	if took := p.worked.Sub(p.began); took > 0 && !p.began.IsZero() {
		b.TookMS += min(took, longest).Milliseconds()
	}
	return &b
}

// note counts what an entry behind the beginning of the last run tells of it; those that come later were noted before.
func (p *past) note(e entry.Entry) {
	switch {
	case e.Type() == entry.TypeModelUsage:
		var u entry.ModelUsage
		if e.Decode(&u) == nil && u.Purpose == CompactPurpose {
			p.spent = p.spent.Plus(spentOn(u.Usage))
		}
	case e.Type() != entry.TypeMessage:
		return
	case e.Role() == entry.RoleAssistant:
		var m struct {
			Message struct {
				StopReason string      `json:"stopReason"`
				Usage      entry.Usage `json:"usage"`
			} `json:"message"`
		}
		if e.Decode(&m) != nil {
			return
		}
		if p.spent = p.spent.Plus(spentOn(m.Message.Usage)); counts(m.Message.StopReason) {
			p.answers++
		}
	case e.Role() != entry.RoleToolResult:
		return
	}
	if p.worked.IsZero() {
		p.worked = e.Time()
	}
}

// SpentIn is what an agent has spent in its last run, and in those that it went on with, as far as no End told of it that stands
// before that run's own; and the id of that run and when it began to work. "" is an agent without a run.
func SpentIn(ctx context.Context, s *session.Session, id string) (run string, since time.Time, spent Spent, err error) {
	p, err := readPast(ctx, s, id)
	if err != nil {
		return "", time.Time{}, Spent{}, fmt.Errorf("reading what agent %s has spent: %w", id, err)
	}
	if p.start == nil {
		return "", time.Time{}, Spent{}, nil
	}
	run, since = p.start.Run, p.began
	if p.end != nil && p.end.Run == run {
		return run, since, p.end.Spent, nil
	}
	if p.start.Before != nil {
		spent = p.start.Before.Untold
	}
	return run, since, spent.Plus(p.spent), nil
}

func spentOn(u entry.Usage) Spent { return Spent{1, tokensOf(u), u.Cost.Total} }

// Plus adds what was spent. A log may be hostile: less than nothing was spent by nobody.
func (s Spent) Plus(t Spent) Spent {
	return Spent{s.Requests + max(0, t.Requests), s.Tokens + max(0, t.Tokens), s.Cost + max(0, t.Cost)}
}

func (s Spent) less(t Spent) Spent {
	return Spent{max(0, s.Requests-t.Requests), max(0, s.Tokens-t.Tokens), max(0, s.Cost-t.Cost)}
}
