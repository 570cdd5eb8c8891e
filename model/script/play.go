package script

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// Stream plays the line for the agent and turn of the request.
func (m *Model) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return model.Assemble(ctx, m.info, req, func(ctx context.Context, a *model.Answer) error {
		n, err := m.line(req.Agent, req.Turn)
		if err != nil {
			return &model.Error{Kind: model.KindInvalid, Message: err.Error(), Err: err}
		}
		if what := n.Expect.unmet(req); what != "" {
			return &model.Error{
				Kind:    model.KindInvalid,
				Message: fmt.Sprintf("%s:%d: agent %s, turn %d: %s", m.name, n.number, req.Agent, req.Turn, what),
			}
		}
		a.Response(fmt.Sprintf("script_%d_%d", n.number, req.Turn), "")
		p := player{answer: a, line: n, turn: req.Turn}
		for i := range n.Say {
			if err := p.step(ctx, &n.Say[i]); err != nil {
				return err
			}
		}
		if !n.ends() {
			return nil // cut
		}
		return a.Finish(n.Stop)
	})
}

// player plays one line.
type player struct {
	answer *model.Answer
	line   *numbered
	turn   int
	calls  int
	key    int64  // of the last block
	kind   string // of the last block, "" if nothing can go on in it
}

// begin gives a block its key. What is of the same kind as the block before goes on in it.
func (p *player) begin(kind string) (int64, error) {
	if kind == entry.BlockText && p.kind == kind {
		return p.key, nil
	}
	err := p.answer.End(p.key)
	p.key++
	p.kind = kind
	return p.key, err
}

func (p *player) step(ctx context.Context, s *Step) error {
	a := p.answer
	switch {
	case s.Delay > 0:
		return wait(ctx, time.Duration(s.Delay))
	case s.Hang:
		<-ctx.Done()
		return ctx.Err()
	case s.Usage != nil:
		return a.Usage(s.Usage.entry())
	case s.Retry != nil:
		p.kind = ""
		return a.Retry(s.Retry.err(), time.Duration(s.Retry.RetryAfter))
	case s.Error != nil:
		return s.Error.err()
	case s.Cut:
		return nil
	case s.Redacted != "":
		key, err := p.begin(entry.BlockRedactedThinking)
		if err != nil {
			return err
		}
		return a.Whole(key, entry.RedactedThinkingBlock{Data: s.Redacted})
	case s.Parallel != nil:
		return p.parallel(s.Parallel)
	}
	v, err := p.block(s)
	if err != nil {
		return err
	}
	for range max(s.Repeat, 1) {
		for _, piece := range v.pieces {
			if err := v.grow(piece); err != nil {
				return err
			}
		}
	}
	if s.Text != nil && s.Signature == "" {
		return nil // more text may follow; what follows else ends it
	}
	return v.end()
}

// voice is a block that is being streamed.
type voice struct {
	pieces Pieces
	grow   func(string) error
	end    func() error
}

// block begins the block of a step.
func (p *player) block(s *Step) (voice, error) {
	a, v := p.answer, voice{pieces: s.pieces()}
	switch {
	case s.Text != nil:
		key, err := p.begin(entry.BlockText)
		v.grow = func(piece string) error { return a.Text(key, piece) }
		v.end = func() error {
			if p.key == key {
				p.kind = "" // nothing goes on in it
			}
			if err := a.Sign(key, entry.BlockText, s.Signature); err != nil {
				return err
			}
			return a.End(key)
		}
		return v, err
	case s.Thinking != nil:
		key, err := p.begin(entry.BlockThinking)
		v.grow = func(piece string) error { return a.Thinking(key, piece) }
		v.end = func() error {
			if err := a.Sign(key, entry.BlockThinking, s.Signature); err != nil {
				return err
			}
			return a.End(key)
		}
		return v, err
	}
	key, err := p.begin(entry.BlockToolCall)
	if err != nil {
		return v, err
	}
	p.calls++
	id := s.ID
	if id == "" {
		id = fmt.Sprintf("call_%d_%d_%d", p.line.number, p.turn, p.calls)
	}
	v.grow = func(piece string) error { return a.Arguments(key, piece) }
	v.end = func() error { return a.End(key) }
	return v, a.ToolCall(key, id, s.Call)
}

// parallel plays steps whose pieces come by turns.
func (p *player) parallel(steps []Step) error {
	if _, err := p.begin(""); err != nil {
		return err
	}
	var voices []voice
	for i := range steps {
		p.kind, p.key = "", p.key+1 // none goes on in, or ends, the one before it
		v, err := p.block(&steps[i])
		if err != nil {
			return err
		}
		voices = append(voices, v)
	}
	p.kind, p.key = "", p.key+1
	for len(voices) > 0 {
		rest := voices[:0]
		for _, v := range voices {
			if len(v.pieces) == 0 {
				if err := v.end(); err != nil {
					return err
				}
				continue
			}
			if err := v.grow(v.pieces[0]); err != nil {
				return err
			}
			v.pieces = v.pieces[1:]
			rest = append(rest, v)
		}
		voices = rest
	}
	return nil
}

// wait sleeps, or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
