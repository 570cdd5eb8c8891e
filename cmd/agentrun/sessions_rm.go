package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
)

func newSessionsRemoveCommand(env *environment) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "Move a session and its artifacts to the trash of the home",
		Long: `rm moves a session, its artifacts and its other files to the directory trash of
the home, and says where. sessions restore gives it back; gc deletes it after a
month. The session must be named: neither --session nor the newest one is taken.

A session with a run in flight is refused; --force removes it all the same. Its
jobs and named shells are ended first; a run of exec or bash goes on, and its
output and end are recorded in the trash.

With --json it prints an object: id, path (where it was), trash (where it is).`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name the session to remove, as in: agentrun sessions rm ID; agentrun sessions list shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := env.manager()
			if err != nil {
				return err
			}
			env.guard.Recount() // it may free space
			info, err := m.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !force {
				if err := refuseRunning(cmd.Context(), m, info.Path); err != nil {
					return err
				}
			}
			if err := env.stopRunning(cmd.Context(), m, info.Path); err != nil {
				return err
			}
			gone, err := m.Trash(cmd.Context(), info.Path)
			if err != nil {
				return err
			}
			if env.json {
				return printJSON(env.stdout, struct {
					ID    *string `json:"id"`
					Path  string  `json:"path"`
					Trash string  `json:"trash"`
				}{orNull(gone.ID), gone.Path, gone.Dir})
			}
			env.remark("moved to %s", gone.Dir)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove a session that has a run in flight too")
	return cmd
}

// stopRunning ends the shells and jobs of a session, which end with it.
func (e *environment) stopRunning(ctx context.Context, m *session.Manager, path string) (err error) {
	s, err := m.View(ctx, path)
	if err != nil {
		return nil // what can not be opened has none
	}
	defer func() { err = closeSession(s, err) }()
	_, err = e.supervisorOf(s).Stop(ctx)
	return err
}

// refuseRunning returns an error when a run of the session is in flight.
func refuseRunning(ctx context.Context, m *session.Manager, path string) (err error) {
	s, err := m.View(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	runs, err := bash.FindUnfinished(ctx, s.Entries(ctx), nil)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if run.Life == bash.Alive {
			return fmt.Errorf("removing %s: %q of process %d is running since %s; wait for its end, or give sessions rm --force",
				s.Path(), firstWords(run.Command, 60), run.PID, localTime(run.Began))
		}
	}
	return nil
}
