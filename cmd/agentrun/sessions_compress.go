package main

import (
	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/outputsink"
)

func newSessionsCompressCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "compress [ID]",
		Short: "Compress the log of a session",
		Long: `compress replaces the log of a session by a compressed one. Every command goes
on to read it; the next entry restores the plain file. oh-my-pi and pi do not
read it.`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := env.manager()
			if err != nil {
				return err
			}
			before, err := env.find(cmd.Context(), m, only(args, 0))
			if err != nil {
				return err
			}
			if before.Compressed {
				env.remark("%s is compressed already: %s", before.Path, outputsink.FormatBytes(before.Size))
				return nil
			}
			if err := m.Compress(cmd.Context(), before.Path); err != nil {
				return err
			}
			after, err := m.Find(cmd.Context(), before.Path)
			if err != nil {
				return err
			}
			env.remark("%s: %s, before %s", after.Path, outputsink.FormatBytes(after.Size), outputsink.FormatBytes(before.Size))
			return nil
		},
	}
}
