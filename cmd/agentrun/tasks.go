package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task"
)

func newTasksCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "tasks [SESSION]",
		Short: "List the subagents of a session",
		Long: `tasks lists the subagents that the agent of a session has started, and those
that they have, with what became of them: queued, running, interrupted (its
process is gone; agentrun resume goes on with it), or its end: completed,
failed, budget, timeout, cancelled, crashed, schema-violation.

With --json it prints one object a line: id, parent, agent, status, url,
artifact (the file of its output, or null), session (its log, or null), started,
ended, tokens, cost (what it spent in its runs that ended, those below it
aside); reason where there is one; and of one with files of its own isolation,
patch (artifact, the URL of a git patch; bytes; how many files were added,
changed, deleted; left, what is not in it) and merged.`,
		Example: `  agentrun tasks
  agentrun tasks --json | jq -r 'select(.status != "completed") | .id'`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.listTasks(cmd.Context(), strings.Join(args, ""))
		},
	}
}

func (e *environment) listTasks(ctx context.Context, id string) error {
	m, s, err := e.view(ctx, id)
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := task.List(ctx, m, s, agent.MainID)
	if err != nil {
		return err
	}
	t := table(e.stdout)
	if len(list) == 0 && !e.json {
		e.remark("the agent of session %s has started no subagents", s.ID())
	} else if !e.json && !e.quiet {
		fmt.Fprintln(t, "ID\tAGENT\tSTATUS\tTIME\tSPENT\tREPORT")
	}
	for _, info := range list {
		if e.json {
			if err := printJSON(e.stdout, info); err != nil {
				return err
			}
			continue
		}
		took, spent, report := "-", count(info.Tokens, "token", "tokens"), info.URL
		if info.Ended != nil {
			took = runview.Duration(info.Ended.Sub(info.Started))
		}
		if info.Cost > 0 {
			spent += ", " + runview.Dollars(info.Cost)
		}
		if info.Artifact == nil {
			report = "-"
		}
		fmt.Fprintf(t, "%s%s\t%s\t%s\t%s\t%s\t%s%s\n", strings.Repeat("  ", strings.Count(info.ID, ".")), info.ID, info.Agent, info.Status, took, spent, report, patchOf(info)+reasonOf(info))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the subagents: %w", err)
	}
	return nil
}

// reasonOf is why a subagent ended as it did, for the end of its line.
func reasonOf(info task.Info) string {
	if info.Reason == "" {
		return ""
	}
	return "  " + runview.Clean(info.Reason)
}

func newTaskCommand(env *environment) *cobra.Command {
	return group(&cobra.Command{
		Use:   "task",
		Short: "Speak to an agent, or bring in what one changed",
	}, &cobra.Command{
		Use:   "send ID TEXT",
		Short: "Say something to an agent",
		Long: `send says TEXT to the agent ID of the session: main, or a subagent such as
0-Review. One that is at work reads it before it asks its model again. A
subagent that has ended is run again when the agent that started it asks its
model next, or by agentrun resume: its report is then a new version, and the
old one stays as agent://0-Review.v1. It is on disk when send returns, and read
once.`,
		Example: `  agentrun task send main 'leave the tests alone'
  agentrun task send 0-Review 'look at the locks too'`,
		Args: positional(2, 2, "an agent and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.sendTask(cmd.Context(), args[0], args[1])
		},
	}, newTaskMergeCommand(env))
}

// sendTask says something to an agent of the session.
func (e *environment) sendTask(ctx context.Context, to, text string) (err error) {
	m, s, err := e.view(ctx, "")
	if err != nil {
		return err
	}
	path := s.Path()
	if to != agent.MainID {
		id, err := artifacts.ParseAgentID(to)
		if err != nil {
			return errors.Join(usagef("%q is no agent: %w", to, err), s.Close())
		}
		path = filepath.Join(s.ArtifactsDir(), id.String()+".jsonl")
	}
	driven, err := s.Driven()
	if err := errors.Join(err, e.redactAsRun(ctx, s), s.Close()); err != nil {
		return err
	}
	target, err := m.Open(ctx, path)
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the session has no agent %s: agentrun tasks lists them: %w", to, session.ErrNotFound)
	}
	if err != nil {
		return err
	}
	defer func() { err = closeSession(target, err) }()
	if err := e.redactIn(target); err != nil {
		return err
	}
	id, err := agent.Say(ctx, target, agent.Said{Text: text})
	if err != nil {
		return err
	}
	if !driven {
		e.remark("no run is under way in the session: agentrun resume has the agent take it up")
	}
	if e.json {
		return printJSON(e.stdout, map[string]string{"entry": id, "agent": to})
	}
	return nil
}

// taskStatus tells what subagents do that have no output.
func taskStatus(m *session.Manager) func(context.Context, string, artifacts.AgentID) (string, error) {
	return func(ctx context.Context, dir string, id artifacts.AgentID) (string, error) {
		return task.StatusOf(ctx, m, dir, id)
	}
}
