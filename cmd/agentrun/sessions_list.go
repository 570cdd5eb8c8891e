package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/session"

	"github.com/agentrun/agentrun/outputsink"
)

// sessionsList is the verb list, and what sessions does without a verb.
type sessionsList struct {
	*environment
	all, trash bool
	adopt      bool
	choose     bool // --pick
}

func (l *sessionsList) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&l.all, "all", false, "the sessions of every directory")
	f.BoolVar(&l.adopt, "adopt", false, "move the sessions here that are kept for where this project was")
	f.BoolVar(&l.trash, "trash", false, "the removed sessions of every directory, the one removed last first")
}

func newSessionsListCommand(env *environment) *cobra.Command {
	list := sessionsList{environment: env}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions of the working directory",
		Long: `list prints the sessions of the working directory, the one modified last first.
One without a title is listed with its first prompt, or $ and its first command.
RUN is how the last run of its agent stands: running, interrupted (agentrun
resume goes on with it), or as it ended.

Sessions of this project that are kept for a directory where it is no longer
(it was moved, renamed or cloned anew) are listed behind them; --adopt moves
them here. A project is known by its git remote and first commit, else by its
directory, which may be renamed on its file system.

--all lists every directory, and the sessions outside of the home that were
written to with it.

With --json it is one object a line: id, path, cwd, title, created, modified,
size; where there is one, firstPrompt (without a title alone) and parent (id or
path of the session it was forked from); run (how the last run of its agent
stands); and offered, true, for those of another directory. With --adopt it is
what sessions move prints, a line for each. With --trash: id, path (where it
was), cwd, title, removed, trash (where it is).`,
		Args: positional(0, 0, "no arguments; --all lists every directory"),
		RunE: func(cmd *cobra.Command, _ []string) error { return list.run(cmd.Context()) },
	}
	list.addFlags(cmd.Flags())
	return cmd
}

// sessionItem is one line of sessions list --json. What a file does not tell is
// null.
type sessionItem struct {
	ID       *string `json:"id"`
	Path     string  `json:"path"`
	CWD      *string `json:"cwd"`
	Title    *string `json:"title"`
	Created  *string `json:"created"`
	Modified *string `json:"modified"`
	Size     int64   `json:"size"`
	// FirstPrompt stands for a title that is not there.
	FirstPrompt string `json:"firstPrompt,omitempty"`
	Parent      string `json:"parent,omitempty"`
	Offered     bool   `json:"offered,omitempty"` // it is of this project and of another directory
	Run         string `json:"run,omitempty"`     // how the last run of its agent stands
}

func (l *sessionsList) run(ctx context.Context) error {
	m, err := l.manager()
	if err != nil {
		return err
	}
	if l.session != "" { // a listing needs none, but what is named has to exist
		if _, err := m.Find(ctx, l.session); err != nil {
			return err
		}
	}
	switch {
	case l.adopt && (l.all || l.trash):
		return usagef("--adopt is about the sessions of this directory: leave --all and --trash out")
	case l.adopt:
		return l.adoptAll(ctx, m)
	case l.trash:
		return l.listTrash(ctx, m)
	}
	cwd := ""
	if !l.all {
		if cwd, err = workingDirectory(); err != nil {
			return err
		}
	}
	found, err := m.List(ctx, cwd)
	if err != nil {
		return err
	}
	for i := range found.Unreadable {
		l.say("%v", &found.Unreadable[i])
	}
	var strays []session.Info
	if l.all {
		elsewhere, err := m.Elsewhere(ctx)
		if err != nil {
			return err
		}
		found.Sessions = append(found.Sessions, elsewhere...)
		slices.SortStableFunc(found.Sessions, func(a, b session.Info) int { return b.Modified.Compare(a.Modified) })
	} else {
		if strays, err = m.Stray(ctx, cwd); err != nil {
			return err
		}
	}
	if l.json {
		if err := l.printItems(found.Sessions, false, runStates(ctx, m, found.Sessions)); err != nil {
			return err
		}
		return l.printItems(strays, true, nil)
	}
	if len(found.Sessions) > 0 {
		if err := l.print(found.Sessions, runStates(ctx, m, found.Sessions)); err != nil {
			return err
		}
	}
	if len(strays) > 0 {
		return l.offer(strays)
	}
	if len(found.Sessions) == 0 {
		hint := "this directory has no sessions: --all lists those of every directory"
		if l.all {
			hint = "there are no sessions: agentrun exec starts one"
		}
		l.remark("%s", hint)
	}
	return nil
}

func (l *sessionsList) printItems(sessions []session.Info, offered bool, states map[string]string) error {
	for _, s := range sessions {
		err := printJSON(l.stdout, sessionItem{
			ID: orNull(s.ID), Path: s.Path, CWD: orNull(s.CWD), Title: orNull(s.Title),
			Created: timestamp(s.Created), Modified: timestamp(s.Modified), Size: s.Size,
			FirstPrompt: s.FirstPrompt, Parent: s.Parent, Offered: offered, Run: states[s.Path],
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *sessionsList) print(sessions []session.Info, states map[string]string) error {
	out := table(l.stdout)
	row := func(id, modified, size, run, cwd, title string) {
		fmt.Fprintf(out, "%s\t%s\t%s", id, modified, size)
		if len(states) > 0 {
			fmt.Fprintf(out, "\t%s", cmp.Or(run, "-"))
		}
		if l.all {
			fmt.Fprintf(out, "\t%s", cwd)
		}
		fmt.Fprintf(out, "\t%s\n", title)
	}
	if !l.quiet {
		row("ID", "MODIFIED", "SIZE", "RUN", "DIRECTORY", "TITLE")
	}
	for _, s := range sessions {
		id := s.ID
		if id == "" {
			id = s.Path // nothing else names it
		}
		title := cmp.Or(s.Title, firstWords(s.FirstPrompt, 60), "-")
		if s.Parent != "" {
			title += forkMark
		}
		row(oneLine(id), localTime(s.Modified), outputsink.FormatBytes(s.Size), states[s.Path], oneLine(s.CWD), oneLine(title))
	}
	return out.Flush()
}

// forkMark stands behind the title of a session that was forked from another.
const forkMark = " (fork)"

// trashItem is one line of sessions list --trash --json.
type trashItem struct {
	ID      *string `json:"id"`
	Path    string  `json:"path"`
	CWD     *string `json:"cwd"`
	Title   *string `json:"title"`
	Removed *string `json:"removed"`
	Trash   string  `json:"trash"`
}

func (l *sessionsList) listTrash(ctx context.Context, m *session.Manager) error {
	found, err := m.ListTrash(ctx)
	if err != nil {
		return err
	}
	for i := range found.Unreadable {
		l.say("%v", &found.Unreadable[i])
	}
	if l.json {
		for _, t := range found.Sessions {
			err := printJSON(l.stdout, trashItem{
				ID: orNull(t.ID), Path: t.Path, CWD: orNull(t.CWD), Title: orNull(t.Title), Removed: timestamp(t.Removed), Trash: t.Dir,
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if len(found.Sessions) == 0 {
		l.remark("the trash is empty")
		return nil
	}
	out := table(l.stdout)
	if !l.quiet {
		fmt.Fprintln(out, "ID\tREMOVED\tDIRECTORY\tTITLE")
	}
	for _, t := range found.Sessions {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", oneLine(cmp.Or(t.ID, filepath.Base(t.Dir))), localTime(t.Removed), oneLine(t.CWD), cmp.Or(oneLine(t.Title), "-"))
	}
	return out.Flush()
}
