package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/hook"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/quantity"
)

func newHooksCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "List the commands that a run calls, and trust those of a project",
		Long: `hooks lists the hooks of the home, the member "hooks" of its config.json, and
those of the project in the working directory, its file .agentrun/hooks.json:

  {"hooks": [
    {"on": "before-tool", "tool": "bash", "command": "./check", "timeout": "5s",
     "required": true},
    {"on": "after-tool", "tool": "edit", "command": "./lint"},
    {"on": "stop", "command": "go vet ./... >&2 || exit 2"}
  ]}

on       session-start, before-tool, after-tool, before-compaction or stop; of
         subagents all but stop, and "agent" says whose it is
tool     a pattern with * and ? of the tools that it is for; all without it
command  what sh runs, in the directory of the session, outside of any sandbox
timeout  how long it may take, 10s if it is left out; then it is killed
required before-tool only: when the hook itself fails, the call is denied

A hook gets one JSON object on standard input: v, on, session, cwd, agent, and
call, tool, arguments, result, answer, tokens or resumed. With status 0 and
nothing on standard output it has nothing to say. With status 2 it denies the
call, puts a remark behind the result, or on stop makes the agent go on: with
what it wrote to standard error. It may say the same with status 0 and one of
{"deny": "..."}, {"remark": "..."} and {"continue": "..."} on standard output.
Whatever else it does is reported, and does nothing to the run.

Hooks of a project are run only when you trust the file, which hooks trust does
for the file as it is: after a change it is not trusted any more. Read it first,
and what it runs: the scripts that it names are not looked at.

With --json it is one object a line: on, tool, command, timeout, required,
source, trusted.`,
		Example: `  agentrun hooks
  agentrun hooks trust
  agentrun hooks distrust`,
		Args: positional(0, 0, "no arguments, trust or distrust"),
		RunE: func(*cobra.Command, []string) error { return env.listHooks() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "trust",
		Short:   "Let runs call the hooks of the project, as they are",
		Example: `  agentrun hooks trust`,
		Args:    positional(0, 0, "no arguments: it is about the working directory"),
		RunE: func(*cobra.Command, []string) error {
			return env.trustHooks(func(p *hook.Project, home string) error { return p.Trust(home) })
		},
	}, &cobra.Command{
		Use:     "distrust",
		Short:   "Take back what hooks trust said",
		Example: `  agentrun hooks distrust`,
		Args:    positional(0, 0, "no arguments: it is about the working directory"),
		RunE: func(*cobra.Command, []string) error {
			return env.trustHooks(func(p *hook.Project, home string) error { return p.Distrust(home) })
		},
	})
	return cmd
}

// hooksOf are the hooks of a home and of a project, which may be nil.
func hooksOf(home, dir string) ([]hook.Hook, *hook.Project, error) {
	set, _, err := config.Load(nil, home)
	if err != nil {
		return nil, nil, err
	}
	ours, err := hook.Parse(config.Path(home), set.Hooks)
	if err != nil {
		return nil, nil, err
	}
	p, err := hook.Read(home, dir)
	return ours, p, err
}

// listedHook is what hooks --json prints.
type listedHook struct {
	hook.Hook
	Source  string `json:"source"`
	Trusted bool   `json:"trusted"`
}

func (e *environment) listHooks() error {
	home, dir, err := e.homeAndDirectory()
	if err != nil {
		return err
	}
	ours, p, err := hooksOf(home, dir)
	if err != nil {
		return err
	}
	var all []listedHook
	for _, h := range ours {
		all = append(all, listedHook{h, h.Source, true})
	}
	if p != nil {
		for _, h := range p.Hooks {
			all = append(all, listedHook{h, h.Source, p.Trusted})
		}
	}
	if len(all) == 0 {
		e.remark("there are no hooks; agentrun hooks --help shows how they are written")
	}
	out := table(e.stdout)
	for _, h := range all {
		if e.json {
			if err := printJSON(e.stdout, h); err != nil {
				return err
			}
			continue
		}
		trusted := "trusted"
		if !h.Trusted {
			trusted = "not trusted"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%q\n", h.On, h.Tool, quantity.Time(time.Duration(h.Timeout)), trusted, h.Source, h.Command)
	}
	return out.Flush()
}

func (e *environment) homeAndDirectory() (home, dir string, err error) {
	m, err := e.manager()
	if err != nil {
		return "", "", err
	}
	dir, err = workingDirectory()
	return m.Home(), dir, err
}

func (e *environment) trustHooks(decide func(*hook.Project, string) error) error {
	home, dir, err := e.homeAndDirectory()
	if err != nil {
		return err
	}
	p, err := hook.Read(home, dir)
	if err != nil {
		return err
	}
	if p == nil {
		return errors.New("there is no " + hook.File + " in the working directory: go to the directory of the project")
	}
	if err := decide(p, home); err != nil {
		return err
	}
	return e.listHooks()
}

// hooks are the hooks that a run of the session calls. Those of a project that is not trusted are told of.
func (c *agentCommand) hooks(b *workbench, view *agentView) (*hook.Runner, error) {
	list, p, err := hooksOf(b.session.Home(), b.session.CWD())
	if err != nil {
		return nil, err
	}
	if p != nil && p.Trusted {
		list = append(list, p.Hooks...)
	} else if p != nil && len(p.Hooks) > 0 {
		c.remark("the hooks of %s are not run: read them, and if you trust them run agentrun hooks trust", p.Path)
	}
	return &hook.Runner{
		Hooks: list, Session: b.session.ID(), Dir: b.session.CWD(),
		Report: func(err error) { view.observe(agent.MainID, agent.Warned{Text: b.cleared(err.Error())}) },
	}, nil
}
