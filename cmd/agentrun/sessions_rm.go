package main

import (
	"github.com/spf13/cobra"
)

func newSessionsRemoveCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID",
		Short: "Move a session and its artifacts to the trash of the home",
		Long: `rm moves a session, its artifacts and its other files to the directory trash of
the home, and says where. sessions restore gives it back; gc deletes it after a
month. The session must be named: neither --session nor the newest one is taken.

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
			info, err := m.Find(cmd.Context(), args[0])
			if err != nil {
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
}
