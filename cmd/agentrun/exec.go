package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/tool/bash"
)

var errNoDash = usagef("put -- before the command, as in: agentrun exec -- make test")

func newExecCommand(env *environment) *cobra.Command {
	run := &commandRun{environment: env}
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG...]",
		Short: "Run a program, show and keep its output, record the run",
		Long: `exec runs a program without a shell. What it prints is shown within bounds
(51,200 bytes, 3,000 lines), the beginning and the end of it; when it does not
fit, a notice tells what is missing and where all of it, to the byte, was kept.
Without --timeout the program may run for as long as it likes.

` + fmt.Sprintf(ptyHelp, "; --stdin types standard input") + "\n\n" + runHelp,
		Example: `  agentrun exec -- seq 1 300000
  agentrun exec --timeout 30s --env CI=1 -- go test ./...
  agentrun exec --pty -- top -n 1
  agentrun exec --json -- make | jq .exitCode`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0 || dash > 0:
				return errNoDash
			case len(args) == 0 || args[0] == "":
				return usagef("no command behind --: give a program and its arguments, as in: agentrun exec -- make test")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return run.run(cmd.Context(), bash.Options{Argv: args})
		},
	}
	run.addFlags(cmd.Flags())
	run.pty.addFlags(cmd.Flags())
	run.addStdin(cmd.Flags())
	return cmd
}
