package main

import (
	"github.com/spf13/cobra"
)

func newSessionsRestoreCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "restore ID",
		Short: "Move a removed session back from the trash",
		Long: `restore moves a session that sessions rm removed back to where it was, with its
artifacts and other files. Where something stands in the way nothing is moved.
ID is the id of the session or its beginning; sessions list --trash shows them.

With --json it prints an object: session, path.`,
		Example: `  agentrun sessions list --trash
  agentrun sessions restore 01a1fa9b`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name the session to restore, as in: agentrun sessions restore ID; agentrun sessions list --trash shows them")
			}
			return nil
		},
		ValidArgsFunction: completeTrash(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := env.manager()
			if err != nil {
				return err
			}
			gone, err := m.FindTrash(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path, err := m.RestoreTrashed(cmd.Context(), gone)
			if err != nil {
				return err
			}
			if env.json {
				return printJSON(env.stdout, struct {
					Session *string `json:"session"`
					Path    string  `json:"path"`
				}{orNull(gone.ID), path})
			}
			env.remark("restored to %s", path)
			return nil
		},
	}
}
