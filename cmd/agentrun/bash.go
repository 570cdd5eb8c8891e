package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/tool/bash"
)

func newBashCommand(env *environment) *cobra.Command {
	run := &commandRun{environment: env}
	cmd := &cobra.Command{
		Use:   "bash [flags] SCRIPT",
		Short: "Run a shell script, show and keep its output, record the run",
		Long: `bash runs a script with bash -c, or with sh -c where there is no bash. It shows
and keeps the output as exec does. A script that begins with - goes behind --.

` + runHelp,
		Example: `  agentrun bash 'make 2>&1 | grep -c warning'
  agentrun bash --timeout 30s --cwd /tmp 'while :; do date; sleep 1; done'`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("bash takes one script: quote it, as in: agentrun bash 'make | tail'")
			}
			if strings.TrimSpace(args[0]) == "" {
				return usagef("the script is empty: give commands, as in: agentrun bash 'make | tail'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return run.run(cmd.Context(), bash.Options{Script: args[0]})
		},
	}
	run.addFlags(cmd.Flags())
	return cmd
}
