package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand(*environment) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the man pages into a directory",
		Example: "  agentrun man ~/.local/share/man/man1",
		Args:    positional(1, 1, "the directory to write to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { // pages are for everybody to read
				return fmt.Errorf("making the directory of the man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same pages for the same program
			header := &doc.GenManHeader{Title: "AGENTRUN", Section: "1", Source: "agentrun " + buildVersion().Version, Manual: "agentrun"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("writing man pages: %w", err)
			}
			return nil
		},
	}
}
