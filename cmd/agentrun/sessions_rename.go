package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
)

func newSessionsRenameCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "rename [ID] TITLE",
		Short: "Give a session a title",
		Args:  positional(1, 2, "a title, and before it the session if it is not the newest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, title := "", args[len(args)-1]
			if len(args) == 2 {
				id = args[0]
			}
			return env.rename(cmd.Context(), id, title)
		},
	}
}

func (e *environment) rename(ctx context.Context, id, title string) (err error) {
	m, err := e.manager()
	if err != nil {
		return err
	}
	info, err := e.find(ctx, m, id)
	if err != nil {
		return err
	}
	s, err := m.Open(ctx, info.Path)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	if err := e.redactIn(s); err != nil {
		return err
	}
	return s.Rename(ctx, title, session.TitleUser)
}
