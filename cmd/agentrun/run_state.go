package main

import (
	"context"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session"
)

// What a run is that has no end in its log; one that has is what that says.
const (
	runRunning     = "running"     // somebody drives it
	runInterrupted = "interrupted" // nobody does: agentrun resume goes on with it
)

// runState is how the last run of a session's agent stands, "" where there was none.
func runState(ctx context.Context, s *session.Session) (string, error) {
	standing, err := agent.StandingOf(ctx, s, agent.MainID)
	if err != nil || standing.Run == "" {
		return "", err
	}
	if standing.Status != agent.Unfinished {
		return string(standing.Status), nil
	}
	driven, err := s.Driven()
	if err != nil || !driven {
		return runInterrupted, err
	}
	return runRunning, nil
}

// runStates are those of listed sessions, by path. A log that cannot be read has none here: doctor says why.
func runStates(ctx context.Context, m *session.Manager, list []session.Info) map[string]string {
	states := map[string]string{}
	for _, i := range list {
		if !m.EverDriven(i.Path) {
			continue
		}
		s, err := m.View(ctx, i.Path)
		if err != nil {
			continue
		}
		if state, err := runState(ctx, s); err == nil && state != "" {
			states[i.Path] = state
		}
		s.Close()
	}
	return states
}
