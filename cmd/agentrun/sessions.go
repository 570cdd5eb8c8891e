package main

import (
	"github.com/spf13/cobra"
)

func newSessionsCommand(env *environment) *cobra.Command {
	list := sessionsList{environment: env}
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show and manage sessions",
		Long: `sessions lists the sessions of the working directory, as sessions list does. At
a terminal it is a list to pick from: / filters, a shows the sessions of every
directory, enter tells how to go on with a session, r renames it, f forks it, c
compresses it, e exports it, t draws its tree, d moves it to the trash, ? shows
all keys. With --json or --quiet, or into a pipe, it is the plain list. With
--pick it is always the list to pick from, and prints the id of the session that
is chosen; its status is 1 when none is.

Its commands take the session as ID: an id, its beginning, or the path of a
log. Without an ID it is that of --session, else the newest session of the
working directory.`,
		Example: `  agentrun sessions
  agentrun sessions show "$(agentrun sessions --pick)"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list.choose {
				return list.pickID(cmd.Context())
			}
			if list.picks() {
				return list.pick(cmd.Context())
			}
			return list.run(cmd.Context())
		},
	}
	list.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&list.choose, "pick", false, "choose a session from the list, and print its id")
	verbs := []*cobra.Command{
		newSessionsListCommand(env), newSessionsShowCommand(env), newSessionsTreeCommand(env),
		newSessionsNewCommand(env), newSessionsRenameCommand(env), newSessionsRemoveCommand(env),
		newSessionsPathCommand(env), newSessionsForkCommand(env), newSessionsMoveCommand(env), newSessionsCompressCommand(env),
		newSessionsBranchCommand(env), newSessionsLabelCommand(env), newSessionsResumeCommand(env),
		newSessionsDuCommand(env), newSessionsRestoreCommand(env),
	}
	for _, verb := range verbs {
		if verb.ValidArgsFunction == nil {
			verb.ValidArgsFunction = completeSession(env)
		}
		cmd.AddCommand(verb)
	}
	return cmd
}

// only is the argument at i, "" when there are fewer.
func only(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}
