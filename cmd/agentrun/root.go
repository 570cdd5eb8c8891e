package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rootHelp fits a screen of 24 lines and 80 columns.
const rootHelp = `agentrun runs commands for agents: it prints bounded views and keeps the rest.

  agentrun exec -- seq 1 300000           run a program, without a shell
  agentrun bash|python|ssh HOST 'make'    run a script, Python code; on a host
  agentrun jobs start -- npm run dev      run it in the background; see to it
  agentrun run TEXT|chat|resume|tasks     have an agent work; its subagents
  agentrun read artifact://0:1500-1520    lines of what was kept; also of a FILE
  agentrun artifacts|blobs|state|kv       what was kept; stores; states
  agentrun sessions [show|tree|resume ID] list them; look at one
  agentrun grep|find|edit|write|tools|call find and change files; for a model
  agentrun sessions new|fork|branch|label|rename|move|rm|restore|compress|du
  agentrun search WORD|follow|doctor|gc   find words; watch; find damage; space
  agentrun export -o FILE | import FILE   take a session along, or make a page
  agentrun checkpoint PATH... | rewind ID keep files, and give them back
  agentrun agents|hooks|models|config|version|man DIR|completion bash|zsh|fish

Flags of every command, anywhere before "--":
  --home DIR         where everything is kept (AGENTRUN_HOME)
  --session ID       a session: id, its beginning, or path (AGENTRUN_SESSION);
                     else the newest one of this directory, else a new one
  --new, --json, --quiet   start a new session; for programs; the output alone
  --durability HOW   sync (survives power loss) or flush (AGENTRUN_DURABILITY)

exec, bash, python and ssh exit with its status. More: agentrun COMMAND --help
`

func newRootCommand(env *environment) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "agentrun",
		Short: "Run commands for agents: bounded, kept and recorded",
		Long: `agentrun runs commands for agents. A bounded view of the output is printed;
output that does not fit into it is kept whole in an artifact; the run is
recorded in the log of a session.`,
		Example: `  agentrun exec -- seq 1 300000
  agentrun read artifact://0:150000-150002
  agentrun sessions show`,
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args[0])
			case version:
				return env.printVersion()
			}
			fmt.Fprint(env.stderr, rootHelp)
			return &commandError{status: statusUsage}
		},
	}
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	env.addFlags(root.PersistentFlags())
	root.Flags().BoolVar(&version, "version", false, "print the version of agentrun")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return env.check(cmd) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.Name() == "exec" && !slices.Contains(env.args, "--") {
			return errNoDash // the flag is likely one of the command
		}
		err = plainFlagError(err)
		if cmd == root && strings.HasPrefix(err.Error(), "unknown ") {
			return usagef("%w: see agentrun --help; a flag of one command goes behind its name", err)
		}
		if name := cmd.Name(); name == "bash" || name == "ssh" || name == "python" {
			what := map[string]string{"bash": "a script", "ssh": "a script", "python": "code"}[name]
			if strings.HasSuffix(err.Error(), " in -c") {
				return usagef("agentrun %s takes %s without -c: see %s --help", name, what, cmd.CommandPath())
			}
			if !strings.HasPrefix(err.Error(), "unknown ") {
				return usagef("%w: see %s --help", err, cmd.CommandPath())
			}
			return usagef("%w: see %s --help; %s that begins with - goes behind --", err, cmd.CommandPath(), what)
		}
		return usagef("%w: see %s --help", err, cmd.CommandPath())
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root {
			fmt.Fprint(env.stdout, rootHelp)
			return
		}
		help(cmd, args)
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(env.stdout, usageText(cmd))
		return err
	})
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(commands(root, env)...)
	complete(root, "session", completeSession(env))
	complete(root, "durability", cobra.FixedCompletions([]cobra.Completion{"sync", "flush"}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

// unknownCommand refuses a word that is no command, with those that look like it.
func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(word); len(like) > 0 {
		return usagef("%s has no command %q: did you mean %s %s?", cmd.CommandPath(), word, cmd.CommandPath(), like[0])
	}
	return usagef("%s has no command %q: see %[1]s --help", cmd.CommandPath(), word)
}

// plainFlagError says of a value that is no number what is wanted, where the parser names a function of
// Go.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	want := "give a whole number"
	switch kind := invalid.GetFlag().Value.Type(); {
	case kind == "bool":
		want = "give true or false, or the switch alone"
	case strings.HasPrefix(kind, "float"):
		want = "give a number"
	case errors.Is(err, strconv.ErrRange):
		want = "give a smaller number"
	}
	return fmt.Errorf("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}
