package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (c *agentCommand) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.model, "model", "", "ask the model `MODEL`: anthropic:NAME, openai:NAME or script:FILE (default: that of the last run)")
	f.Var(&c.thinking, "thinking", "how much the model thinks: `LEVEL`, off to xhigh")
	f.Var(&c.cost, "max-cost", "end the run when it and its subagents have cost `N` US dollars")
	f.Var(&c.time, "max-time", "end the run after `TIME`: 10m, 2h, 30 (seconds)")
	f.Var(&c.retries, "retries", "ask again up to `N` times when the provider fails (default 7)")
	f.Var(&c.allow, "allow", "let the model call `TOOL` where no rule is about it: bash, python, ssh; may be repeated")
	f.StringVar(&c.record, "record", "", "write what the model says to a new `FILE`, which --model script:FILE plays")
	c.confine.roots.addFlag(f)
	c.confine.addFlags(f)
	c.addRedact(f)
}

func newRunCommand(env *environment) *cobra.Command {
	c := &agentCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Have an agent work on something",
		Long: `run gives PROMPT to an agent, which works in the session: it asks the model and
makes the tool calls that the model wants, until there is nothing more to do.
Its answers go to standard output, what its tools and subagents do to standard
error. At a terminal the agents, what they do and what they have spent stand
below that as a tree, as long as the run goes on.

With --json each event is one object a line: v (the version of this form, 1),
agent (main, or the id of a subagent), event, and what belongs to it:
  begin      session
  state      state: thinking, calling, waiting, compacting, stopped, failed
  text       text, a piece of an answer; thinking is one of its thoughts
  answer     entry, text: the whole answer, which is in the log
  call       id, tool, arguments
  result     id, tool, entry, text, isError, artifact, durationMs
  retry      error, durationMs (until the request is made again), try and
             tries (which one failed, and how many there are)
  heard      entry, text: what somebody said with agentrun task send
  spawned    type: a subagent that will work when it is its turn
  reported   status, reason, url, spent: its end, as agentrun tasks has it
  mode, todo, warning, compacted: mode, items, text
  end        outcome: run, status, reason, text, entry, spent, calls, usage, of
             this agent alone; of main also spent, by all agents together
Members without a value are left out. Others may be added to this version.

The run is in the session from its first moment. One that was interrupted,
cancelled or killed goes on with agentrun resume. A new PROMPT in a session
whose run was not completed takes the place of that run, which is said: its
conversation stays, its subagents in the background go on.

With --record what the model and those of subagents say is written to a script,
without secrets: run --model script:FILE plays it again, without a provider.

run ends when the agent and all its subagents have. With --detach it prints the
id of the session as soon as the agent is at work in the background, as a job of
the session: agentrun jobs tail --follow shows what it does, tasks, task send
and resume mean what they do for any run, agentrun jobs kill cancels it. Nobody
is there to be asked then. With --json it prints session, run, job, artifact,
and the artifact has one object a line, and the error of a run that failed.

With - for PROMPT it is read from standard input. The mode of --mode stays with
the session until --mode names another: agent does what is asked, ask answers
and plan makes a plan, and neither changes anything; debug finds the cause first
and shows it, and may change things then.

A PROMPT that begins with /NAME is the text of .agentrun/commands/NAME.md or
.claude/commands/NAME.md, with what follows as its arguments; one behind a space
is not. Files that it mentions as @path are shown to the model, if read may show
them by the rules below; what is not shown is said. So are AGENTS.md and
CLAUDE.md of the project and of the home, and the names of its skills.

Tools work below the working directory, and below --root. Commands run in the
sandbox "workspace" where this machine has one; with --sandbox read-only files
are not edited either. Which calls are made is decided by permissions.json in
the home; without it, what no sandbox confines is denied, unless --allow names
it: ssh, and without a sandbox bash and python too. The file holds rules, of
which the strictest counts (deny, ask, allow), and a default; * is any text.
What is to be asked is asked at the terminal, and denied where there is none:

  {"default": "ask", "rules": [
    {"action": "allow", "tool": "bash", "match": {"command": "go test*"}},
    {"action": "deny", "tool": "*", "match": {"path": "*/.env*"}}]}

A rule on path is about files, by any name: as written, relative, absolute, and
where symbolic links lead. It holds for paths and for @path too, and grep and
find leave out what it keeps from them or from read. It does not hold what bash
and python run: "cat .env" prints it. The sandbox bounds what those write, and
--net off where it goes, not what they read. To keep a file from the model, deny
python, and deny bash or allow only the commands that it may run.

With --agent the tools, readOnly, spawns, model and thinking of the type hold
as for a subagent; --model and --thinking count before those of the type.

The exit status is 0 when the run is completed, 1 when it failed, 3 when a limit
of cost or time ended it, and 4 when it was interrupted and can be resumed.`,
		Example: `  agentrun run --model script:testdata/script/two-subagents.jsonl 'review this'
  agentrun run --detach 'fix the failing test' && agentrun jobs tail --follow 0
  agentrun run --max-time 10m --max-cost 2 'fix the failing test'`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args:        onePrompt,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), &args[0], "")
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&c.apart, "detach", false, "begin the run, and have it go on in the background")
	cmd.Flags().StringVar(&c.typ, "agent", "", "work as the agent `NAME`, within its tools, model and so on: see agentrun agents")
	cmd.Flags().StringVar(&c.mode, "mode", "", "work in the mode `MODE` from now on: agent, ask, plan (both change nothing) or debug")
	return cmd
}

func newResumeCommand(env *environment) *cobra.Command {
	c := &agentCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "resume [ID]",
		Short: "Go on with a run that was interrupted",
		Long: `resume goes on with the last run of the session ID, by default of the newest of
the working directory, where it stopped: no tool call that had finished is made
again, subagents go on with their own work. A run that is completed is left as
it is, with status 0.

The model, the agent, the sandbox, the limits and the directory are those of the
run, unless flags say otherwise. What it has spent, and the time that it went
on, count: a run that ended at its limit of $2 goes on with --max-cost 5, and
may cost $3 more. With --detach it goes on in the background, as with agentrun
run, whose exit status it has.`,
		Example: `  agentrun resume
  agentrun resume --max-cost 5 01a1fd2c
  agentrun resume --detach`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			return c.run(cmd.Context(), nil, id)
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&c.apart, "detach", false, "have the run go on in the background")
	return cmd
}
