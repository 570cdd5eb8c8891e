package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// needsNoHome marks the commands that open nothing: the flags of every command say
// nothing to them, and so their help does not list those.
const needsNoHome = "needs-no-home"

// helpColumns is the width of help: that of a terminal nobody has resized.
const helpColumns = 80

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND]",
		Short:       "Explain a command",
		Annotations: map[string]string{needsNoHome: "yes"},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, c := range about.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, word := range args {
				next, _, err := about.Find([]string{word})
				if err != nil || next == about {
					return unknownCommand(about, word)
				}
				about = next
			}
			return about.Help()
		},
	}
}

// usageText is the part of a command's help that follows from its definition.
func usageText(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", cmd.Commands()[0].NamePadding(), c.Name(), c.Short)
			}
		}
	}
	fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(helpColumns))
	if cmd.HasAvailableInheritedFlags() && cmd.Annotations[needsNoHome] == "" {
		fmt.Fprintf(&b, "\nFlags of every command:\n%s", cmd.InheritedFlags().FlagUsagesWrapped(helpColumns))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nMore: %s COMMAND --help\n", cmd.CommandPath())
	}
	return b.String()
}
