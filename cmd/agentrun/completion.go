package main

import (
	"github.com/spf13/cobra"
)

func newCompletionCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Example: `  source <(agentrun completion bash)
  agentrun completion zsh > "${fpath[1]}/_agentrun"
  agentrun completion fish > ~/.config/fish/completions/agentrun.fish`,
		Args:        positional(1, 1, "the name of a shell"),
		ValidArgs:   []string{"bash", "zsh", "fish"},
		Annotations: map[string]string{needsNoHome: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(env.stdout, true)
			case "zsh":
				return root.GenZshCompletion(env.stdout)
			case "fish":
				return root.GenFishCompletion(env.stdout, true)
			}
			return usagef("there is no completion for %q: name bash, zsh or fish", args[0])
		},
	}
}

// complete sets what is proposed for a flag of every command.
func complete(root *cobra.Command, flag string, propose cobra.CompletionFunc) {
	if err := root.RegisterFlagCompletionFunc(flag, propose); err != nil {
		panic(err) // there is no such flag, or it was set twice: a mistake in this program
	}
}

// completeSession proposes the sessions of all directories, newest first.
func completeSession(env *environment) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		m, err := env.manager()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := m.List(cmd.Context(), "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []cobra.Completion
		for _, s := range list.Sessions {
			if s.ID != "" {
				ids = append(ids, cobra.CompletionWithDesc(visible(s.ID), visible(s.Title)))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeTrash proposes the removed sessions.
func completeTrash(env *environment) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		m, err := env.manager()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		l, err := m.ListTrash(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []cobra.Completion
		for _, t := range l.Sessions {
			if t.ID != "" {
				ids = append(ids, cobra.CompletionWithDesc(visible(t.ID), visible(t.Title)))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
