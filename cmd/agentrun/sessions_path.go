package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newSessionsPathCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "path [ID]",
		Short: "Print where the log of a session is",
		Args:  positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := env.manager()
			if err != nil {
				return err
			}
			info, err := env.find(cmd.Context(), m, only(args, 0))
			if err != nil {
				return err
			}
			if env.json {
				return printJSON(env.stdout, struct {
					Path string `json:"path"`
				}{info.Path})
			}
			_, err = fmt.Fprintln(env.stdout, info.Path)
			return err
		},
	}
}
