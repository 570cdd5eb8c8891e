package conversation

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Turn is one turn with all that belongs to it. What could not be read is nil, and in
// Holes.
type Turn struct {
	ID     blobref.Ref
	Timing *agentv1.StepTiming // nil for none

	// Agent is set for what a user said and an agent did, with User and Steps.
	Agent *agentv1.AgentConversationTurnStructure
	User  *agentv1.UserMessage
	Steps []*agentv1.ConversationStep // as many as Agent.Steps

	// Shell is set for a command that a user ran.
	Shell   *agentv1.ShellConversationTurnStructure
	Command *agentv1.ShellCommand
	Output  *agentv1.ShellOutput

	Holes []*Hole
}

// Turn reads turn i, several blobs at once. A missing blob is a hole of the turn and no
// error; an error is the end of ctx, or an i that is no turn.
func (s *State) Turn(ctx context.Context, i int) (*Turn, error) {
	if i < 0 || i >= s.Len() {
		return nil, fmt.Errorf("reading turn %d: the state has %d turns", i, s.Len())
	}
	t := &Turn{}
	if i < len(s.Message.TurnTimings) {
		t.Timing = s.Message.TurnTimings[i]
	}
	id := s.Message.Turns[i]
	if len(id) == 32 {
		t.ID = blobref.FromSum([32]byte(id))
	}
	m := &agentv1.ConversationTurnStructure{}
	if err := s.fill(ctx, t, s.message(ctx, id, "turn", m)); err != nil || len(t.Holes) > 0 {
		return t, err
	}
	t.Agent, t.Shell = m.GetAgentConversationTurn(), m.GetShellConversationTurn()
	if t.Shell != nil {
		command, output := &agentv1.ShellCommand{}, &agentv1.ShellOutput{}
		if len(t.Shell.ShellCommand) > 0 {
			if err := s.fill(ctx, t, s.message(ctx, t.Shell.ShellCommand, "shell command", command)); err != nil {
				return t, err
			}
		}
		if len(t.Shell.ShellOutput) > 0 {
			if err := s.fill(ctx, t, s.message(ctx, t.Shell.ShellOutput, "shell output", output)); err != nil {
				return t, err
			}
		}
		t.Command, t.Output = command, output
		return t, nil
	}
	if t.Agent == nil {
		return t, nil
	}
	return t, s.steps(ctx, t)
}

// fill notes the hole that err tells of, and returns any other error.
func (s *State) fill(ctx context.Context, t *Turn, err error) error {
	if err == nil {
		return nil
	}
	if h := holeOf(err); h != nil && ctx.Err() == nil {
		t.Holes = append(t.Holes, h)
		return nil
	}
	return err
}

// maxTurnBytes bounds what the steps of one turn take in memory.
const maxTurnBytes = 1 << 30

// steps reads the user message and the steps of a turn.
func (s *State) steps(ctx context.Context, t *Turn) error {
	ids := t.Agent.Steps
	t.Steps = make([]*agentv1.ConversationStep, len(ids))
	errs := make([]error, len(ids)+1)
	var size atomic.Int64
	parallel(s.limits.Parallel, len(ids)+1, func(i int) {
		if i == len(ids) {
			if len(t.Agent.UserMessage) > 0 {
				u := &agentv1.UserMessage{}
				if errs[i] = s.message(ctx, t.Agent.UserMessage, "user message", u); errs[i] == nil {
					t.User = u
				}
			}
			return
		}
		step := &agentv1.ConversationStep{}
		if size.Load() > maxTurnBytes {
			errs[i] = &Hole{What: "step", Err: fmt.Errorf("the steps before it have %d bytes: %w", size.Load(), ErrTooMuch)}
			return
		}
		if errs[i] = s.message(ctx, ids[i], "step", step); errs[i] == nil {
			t.Steps[i] = step
			size.Add(int64(proto.Size(step)))
		}
	})
	for _, err := range errs {
		if err := s.fill(ctx, t, err); err != nil {
			return err
		}
	}
	return nil
}

// Turns reads the turns [from, to), some ahead of who takes them, and yields them in
// their order. A missing blob is a hole of its turn; an error ends the sequence.
func (s *State) Turns(ctx context.Context, from, to int) iter.Seq2[*Turn, error] {
	return func(yield func(*Turn, error) bool) {
		from, to := max(0, from), min(to, s.Len())
		for from < to {
			n := min(to-from, s.limits.Parallel)
			turns, errs := make([]*Turn, n), make([]error, n)
			parallel(n, n, func(i int) { turns[i], errs[i] = s.Turn(ctx, from+i) })
			for i := range n {
				if !yield(turns[i], errs[i]) || errs[i] != nil {
					return
				}
			}
			from += n
		}
	}
}
