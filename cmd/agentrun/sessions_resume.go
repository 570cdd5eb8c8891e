package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

func newSessionsResumeCommand(env *environment) *cobra.Command {
	write := false
	cmd := &cobra.Command{
		Use:   "resume [ID]",
		Short: "See whether a session can go on, and what has to be repaired",
		Long: `resume opens a session of agentrun, pi or oh-my-pi and builds the context that a
model call starts from, in a form that model providers accept: tool calls
without a result, calls that share an id, repeated and empty turns, images that
are too large, missing blobs, missing parents and circles of parents are
repaired in it. Each repair is told. The log stays as it is.

With --write-repairs the repairs are appended to the log as entries, so that pi
and oh-my-pi go on with a valid context as well. Nothing is removed, and no line
is changed: what follows the first repair is appended once more, as repaired and
with the times it had, on a new branch. So the log may grow by as many entries
as the branch has; it is told how many. Missing results at the end are appended
alone.

Runs without an end are told as well, one that was interrupted above all. No
model is sent them, so that they need no repair.

With --json it prints an object: session, entries (number in the log), repairs
(kind, entry, what). Runs without an end are told on the standard error.`,
		Example: `  agentrun sessions resume
  agentrun sessions resume 0198f2d3 --write-repairs`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.resume(cmd.Context(), only(args, 0), write)
		},
	}
	cmd.Flags().BoolVar(&write, "write-repairs", false, "append the repairs to the log")
	return cmd
}

// resumeReport is what sessions resume --json prints.
type resumeReport struct {
	Session string         `json:"session"`
	Entries int            `json:"entries"`
	Repairs []repairReport `json:"repairs"`
}

type repairReport struct {
	Kind  entry.RepairKind `json:"kind"`
	Entry string           `json:"entry"`
	What  string           `json:"what"`
}

func (e *environment) resume(ctx context.Context, arg string, write bool) (err error) {
	var s *session.Session
	if write {
		s, err = e.change(ctx, arg)
	} else {
		_, s, err = e.view(ctx, arg)
	}
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	do := s.Resume
	if write {
		do = s.WriteRepairs
	}
	resumed, err := do(ctx, session.ResumeOptions{})
	if errors.Is(err, session.ErrLocked) {
		return fmt.Errorf("%w; its open tool calls wait for their results and are not repaired", err)
	}
	if err != nil {
		return err
	}
	tree, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	runs, err := e.unfinished(ctx, s)
	if err != nil {
		return err
	}
	if resumed.Written > 0 {
		about := ""
		if resumed.Again > 0 {
			about = fmt.Sprintf("; %d of them repeat what follows the first repair, on a new branch, since no line of a log is changed", resumed.Again)
		}
		e.remark("%s appended%s", count(int64(resumed.Written), "entry was", "entries were"), about)
	}
	if !e.json {
		return e.describeResumed(ctx, s, resumed, runs, tree.Len(), write)
	}
	for _, run := range runs {
		e.remark("%s", aboutRun(run))
	}
	report := resumeReport{Session: s.ID(), Entries: tree.Len(), Repairs: []repairReport{}}
	for _, r := range resumed.Repairs {
		report.Repairs = append(report.Repairs, repairReport{r.Kind, r.EntryID, r.What()})
	}
	return printJSON(e.stdout, report)
}

// maxRepairLines is how many repairs are listed for a person.
const maxRepairLines = 20

// describeResumed tells a person how the session stands and how to go on.
func (e *environment) describeResumed(ctx context.Context, s *session.Session, r *session.Resumed, runs []bash.Unfinished, entries int, written bool) error {
	title, err := s.Title(ctx)
	if err != nil {
		return err
	}
	out := table(e.stdout)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("session", "%s", orDash(orNull(s.ID())))
	row("title", "%s", orDash(orNull(title)))
	row("directory", "%s", orDash(orNull(s.CWD())))
	row("entries", "%d", entries)
	row("context", "%s", count(int64(len(r.Context.Messages)), "message", "messages"))
	if model := r.Context.Settings.DefaultModel(); model != "" {
		row("model", "%s", oneLine(model))
	}
	if n := len(r.Context.Messages); n > 0 {
		last := r.Context.Messages[n-1].Entry()
		row("last", "%s, %s: %s", orDash(orNull(last.Role())), localTime(last.Time()), firstWords(words(last), 50))
	}
	for _, run := range runs {
		row("run", "%s", aboutRun(run))
	}
	if len(r.Repairs) == 0 {
		row("repairs", "none")
	}
	for i, repair := range r.Repairs {
		if i == maxRepairLines {
			row("repair", "and %d more: --json lists all", len(r.Repairs)-i)
			break
		}
		row("repair", "%s in %s: %s", repair.Kind, shortID(repair.EntryID), oneLine(repair.What()))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(r.Repairs) > 0 && !written {
		e.remark("the log is as it was; --write-repairs appends the repairs to it")
	}
	name := s.ID()
	if !strings.HasPrefix(s.Path(), s.Home()+"/") {
		name = s.Path() // only sessions of the home are known by their id
	}
	m, err := e.manager()
	if err != nil {
		return err
	}
	if info, err := m.Find(ctx, s.Path()); err == nil && info.Compressed {
		e.remark("go on with agentrun exec --session %s; pi and oh-my-pi open the log when that made it a plain one again", name)
		return nil
	}
	e.remark("go on with agentrun exec --session %s, or in pi or oh-my-pi with --session %s", name, s.Path())
	return nil
}
