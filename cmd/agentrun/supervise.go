package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

// newSuperviseCommand is not for people: it is what agentrun starts where a session has shells and jobs.
func newSuperviseCommand(env *environment) *cobra.Command {
	var shellIdle, lingers time.Duration
	cmd := &cobra.Command{
		Use:    "supervise",
		Short:  "Own the shells and jobs of a session",
		Long:   "supervise is started by bash --shell, bash --background and jobs start.",
		Hidden: true,
		Args:   positional(0, 0, "no arguments"),
		RunE:   func(cmd *cobra.Command, _ []string) error { return env.supervise(cmd.Context(), shellIdle, lingers) },
	}
	cmd.Flags().DurationVar(&shellIdle, "shell-idle", 0, "end a shell after `TIME` without a script")
	cmd.Flags().DurationVar(&lingers, "linger", 0, "end after `TIME` without shells and jobs")
	return cmd
}

// reopen opens the session anew for each job: it may have moved meanwhile.
func (e *environment) reopen(m *session.Manager) func(context.Context) (*session.Session, *artifacts.Dir, error) {
	return func(ctx context.Context) (*session.Session, *artifacts.Dir, error) {
		info, err := m.Find(ctx, e.session)
		if err != nil {
			return nil, nil, err
		}
		s, err := m.Open(ctx, info.Path)
		if err != nil {
			return nil, nil, err
		}
		dir := e.artifacts(s)
		if dir == nil {
			s.Close()
			return nil, nil, errNoArtifacts
		}
		return s, dir, nil
	}
}
