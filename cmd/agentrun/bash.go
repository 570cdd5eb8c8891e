package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/tool/bash"
)

func newBashCommand(env *environment) *cobra.Command {
	run := &commandRun{environment: env}
	cmd := &cobra.Command{
		Use:   "bash [flags] SCRIPT|-",
		Short: "Run a shell script, show and keep its output, record the run",
		Long: `bash runs a script with bash -c, or with sh -c where there is no bash. It shows
and keeps the output as exec does. With - the script is the standard input,
16 MiB at most. A script that begins with - goes behind --.
Programs see variables with which they open no pager and no editor and ask for
nothing. The script ends after 300 s unless --timeout says otherwise (0 never).

URLs of whole artifacts and agent outputs in the script become paths of their
files: wc -l artifact://3.

With --shell NAME the script runs in a shell of the session that goes on: the
next script with that NAME finds its working directory, variables, functions,
aliases and options, but not what --env gave. It ends after 30 minutes without
a script. A second script at the same time has a copy. With --background the
script runs as a job (see jobs), with --shell NAME in a copy of that shell.

With --background-after TIME a script that still runs after TIME becomes a job:
bash prints what there is until then and the status is 0. Its result is recorded
when it has ended, whatever became of the session meanwhile. --json prints
exitCode null then, and job, its URL.

A job ends after 24 h unless --timeout says otherwise (0 never).

` + fmt.Sprintf(ptyHelp, "; --stdin types standard input") + "\n\n" + runHelp,
		Example: `  agentrun bash 'make 2>&1 | grep -c warning'
  agentrun bash --timeout 30s --cwd /tmp 'while :; do date; sleep 1; done'
  agentrun bash --shell work 'cd src && export CGO_ENABLED=0'
  agentrun bash --pty --size 120x40 'npm test'
  agentrun bash --background 'npm run dev'
  agentrun bash --background-after 30s 'make check'`,
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
			switch {
			case cmd.Flags().Changed("shell") && run.shell == "":
				return usagef("--shell is empty: give the name of a shell, or leave it out")
			case cmd.Flags().Changed("background-after") && run.after == 0:
				return usagef("--background-after 0: give a time above 0; --background begins as a job")
			}
			if run.after > 0 && run.background {
				return usagef("--background and --background-after exclude each other: give one")
			}
			if (run.after > 0 || run.background) && !cmd.Flags().Changed("timeout") {
				run.timeout = timeout(bash.DefaultJobTimeout)
			}
			script := args[0]
			if script == "-" {
				if run.pass {
					return usagef("--stdin and - exclude each other: the standard input is either read by the script or is the script")
				}
				b, err := env.readInput("-", bash.MaxScript)
				if err != nil {
					return failed(err)
				}
				if script = string(b); strings.TrimSpace(script) == "" {
					return usagef("the script is empty: give commands, as in: agentrun bash 'make | tail'")
				}
			}
			if run.background {
				return run.start(cmd.Context(), script)
			}
			return run.run(cmd.Context(), bash.Options{Script: script})
		},
	}
	run.addFlags(cmd.Flags())
	run.addStdin(cmd.Flags())
	run.pty.addFlags(cmd.Flags())
	run.timeout = timeout(bash.DefaultTimeout)
	cmd.Flags().Lookup("timeout").DefValue = run.timeout.String()
	cmd.Flags().StringVar(&run.shell, "shell", "", "run in the shell of the session called `NAME`")
	cmd.Flags().BoolVar(&run.background, "background", false, "run as a job, and print its id")
	cmd.Flags().Var(&run.after, "background-after", "go on as a job after `TIME`: 10s, 2m, 30 (seconds)")
	cmd.Flags().StringVar(&run.program, "shell-path", "", "the shell is `PROGRAM`: a bash, zsh or sh")
	return cmd
}
