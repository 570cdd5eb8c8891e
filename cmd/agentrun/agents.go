package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/task/isolation"
)

func newAgentsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "agents [NAME]",
		Short: "List the types of agents, or show one",
		Long: `agents lists the types of agents that run --agent and the tool task know, with
what is special about them; of NAME it shows all, also the prompt. They are
those of .agentrun/agents and .claude/agents in the working directory, of agents
in the home, and the ones that are built in. Each is a Markdown file with front
matter: name, description, and where needed tools, disallowedTools, model,
thinking, readOnly, spawns, isolation (worktree or copy: files of its own),
runner; below it is the system prompt. A file that cannot be read, or has a
member that must be a mistake (readonly), is told and left out.

With "runner: command" and "command: [program, argument, ...]" the agent is that
program. {prompt} in an argument is what it is told, with the text of the file
before it; without one it reads that from its standard input. It is run in the
sandbox, if the rules allow it as a command of bash, and its output is an
artifact. Its report is the last answer in lines of JSON that claude
(--output-format stream-json), codex (exec --json) or pi (--mode json) print,
else what it prints. One that a crash cut off is not run again.

With --json it prints one object a line, with prompt where NAME is given.`,
		Example: `  agentrun agents
  agentrun agents reviewer`,
		Args: positional(0, 1, "at most one name"),
		RunE: func(_ *cobra.Command, args []string) error { return env.listAgents(only(args, 0)) },
	}
}

func (e *environment) listAgents(name string) error {
	home, err := session.ResolveHome(e.home)
	if err != nil {
		return err
	}
	cwd, err := workingDirectory()
	if err != nil {
		return err
	}
	types, problems := agentTypes(cwd, home)
	for _, p := range problems {
		e.say("%s", sentence(p))
	}
	if name != "" {
		i := slices.IndexFunc(types, func(t task.Type) bool { return t.Name == name })
		if i < 0 {
			return fmt.Errorf("there is no agent %q: see agentrun agents", name)
		}
		return e.showAgent(types[i])
	}
	t := table(e.stdout)
	if !e.json && !e.quiet {
		fmt.Fprintln(t, "AGENT\tHAS\tDESCRIPTION\tFROM")
	}
	for _, typ := range types {
		if e.json {
			if err := printJSON(e.stdout, typ); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", typ.Name, firstWords(special(typ), 60), firstWords(typ.Description, 200), oneLine(typ.Source))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the agents: %w", err)
	}
	return nil
}

// special is what a type has that others have not, in one line.
func special(typ task.Type) string {
	var parts []string
	add := func(has bool, format string, args ...any) {
		if has {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(typ.Runner == task.RunnerCommand, "program %s", strings.Join(typ.Command, " "))
	add(typ.Isolation != "" && typ.Isolation != isolation.None, "%s", typ.Isolation)
	add(typ.ReadOnly, "read only")
	add(typ.Model != "", "%s", typ.Model)
	add(typ.Thinking != "", "thinking %s", typ.Thinking)
	add(typ.Tools != nil, "tools %s", cmp.Or(strings.Join(typ.Tools, " "), "none"))
	add(len(typ.Without) > 0, "not %s", strings.Join(typ.Without, " "))
	add(len(typ.Spawns) > 0, "starts %s", strings.Join(typ.Spawns, " "))
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// showAgent prints all of a type.
func (e *environment) showAgent(typ task.Type) error {
	if e.json {
		return printJSON(e.stdout, struct {
			task.Type
			Prompt string `json:"prompt"`
		}{typ, typ.System})
	}
	for _, row := range [][2]string{{"agent", typ.Name}, {"has", special(typ)}, {"description", typ.Description}, {"from", typ.Source}} {
		if _, err := fmt.Fprintf(e.stdout, "%-11s  %s\n", row[0], oneLine(row[1])); err != nil {
			return fmt.Errorf("printing the agent: %w", err)
		}
	}
	if _, err := fmt.Fprintf(e.stdout, "\n%s\n", runview.CleanLines(typ.System)); err != nil {
		return fmt.Errorf("printing the agent: %w", err)
	}
	return nil
}
