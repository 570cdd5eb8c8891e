package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/gc"
	"github.com/agentrun/agentrun/task"
)

// gcCommand is the verb gc with its flags.
type gcCommand struct {
	*environment
	apply     bool
	trashDays int
	retention config.Age
	grace     time.Duration
	forget    []string
}

func newGCCommand(env *environment) *cobra.Command {
	g := gcCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Show what the home can do without, and with --apply remove it",
		Long: `gc shows how much can be freed, class by class, and changes nothing; with
--apply it frees it:

  blobs        that no session, artifact or other blob names
  trash        sessions that were removed more than 30 days ago
  temporaries  that killed processes left, and artifacts whose log is gone;
               files of subagents that were isolated, and need them no more
  indexes      of what is not there any more

Blobs that are younger than an hour stay, and so does everything that was
stored since an open session has stored its first. When something cannot be
read that may name blobs, none goes; nor while a log is empty or gone and its
artifacts are there.

The file config.json of the home may say how long sessions are kept:
{"retention": {"sessions": "90d", "trash": "30d"}}. A session that nobody has
written to for so long goes to the trash, a week after the gc --apply that first
warned of it. Without a setting, sessions stay.

Session files outside of the home keep their blobs, also when they are not
there; gc names them then. --forget gives them up. The sessions of all other
homes of this user are read as well (the file agentrun/homes in
XDG_STATE_HOME, else in ~/.local/state, lists them): what they name stays. One
that is not there is named and passed over, until --forget takes it off.

With --json it is one object: apply, blobs, trash, temporaries, indexes, each
of those count and bytes; with a retention also retention: count, bytes, warned.`,
		Example: `  agentrun gc
  agentrun gc --apply --trash-days 7`,
		Args: positional(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.run(cmd.Context(), cmd.Flags().Changed("trash-days"))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&g.apply, "apply", false, "remove what can go")
	f.IntVar(&g.trashDays, "trash-days", 30, "how many `DAYS` removed sessions stay in the trash")
	f.Var(&g.retention, "retention", "move sessions to the trash that nobody has written to for an `AGE`, such as 90d")
	f.DurationVar(&g.grace, "grace", gc.DefaultGrace, "the `TIME` for which blobs stay that nothing names; at least 10m")
	f.StringArrayVar(&g.forget, "forget", nil, "give up the blobs of a session `FILE` or home elsewhere that is gone")
	return cmd
}

// gcReport is what gc --json prints.
type gcReport struct {
	Apply       bool         `json:"apply"`
	Blobs       gc.Class     `json:"blobs"`
	Trash       gc.Class     `json:"trash"`
	Temporaries gc.Class     `json:"temporaries"`
	Indexes     gc.Class     `json:"indexes"`
	Retention   *gcRetention `json:"retention,omitempty"`
}

type gcRetention struct {
	gc.Class
	Warned []gcWarned `json:"warned"`
}

type gcWarned struct {
	Session *string `json:"session"`
	Path    string  `json:"path"`
	Goes    *string `json:"goes"`
}

func (g *gcCommand) run(ctx context.Context, daysGiven bool) error {
	if g.grace < localdir.MinGrace {
		return usagef("--grace %v: give 10m or more; a blob is stored before the entry that names it is written, and what is younger may be needed by one that is under way", g.grace)
	}
	m, err := g.manager()
	if err != nil {
		return err
	}
	g.guard.Recount() // it may free space
	settings, err := g.settings(m.Home())
	if err != nil {
		return err
	}
	o := gc.Options{Apply: g.apply, Grace: g.grace, Forget: g.forget, Cited: new(checkpointNeeds).cited}
	if o.Retention = time.Duration(settings.Retention.Sessions); g.retention > 0 {
		o.Retention = time.Duration(g.retention)
	}
	if o.TrashAge = time.Duration(settings.Retention.Trash); daysGiven {
		if g.trashDays < 0 || g.trashDays > 36500 {
			return usagef("--trash-days %d: give a number of days from 0 to 36500", g.trashDays)
		}
		// 0 days is what was removed until now.
		o.TrashAge = max(time.Duration(g.trashDays)*24*time.Hour, 1)
	}
	p := g.progress("looking")
	defer p.end()
	o.Progress = func(what string, done, total int) {
		p.what = "looking at " + what
		p.step(done, total)
	}
	r, err := gc.Run(ctx, m, o)
	p.end()
	if r == nil {
		return err
	}
	left, lerr := task.RemoveLeftovers(ctx, m, spacesOf(m.Home()), g.apply)
	r.Temporaries.Count, r.Temporaries.Bytes = r.Temporaries.Count+left.Count, r.Temporaries.Bytes+left.Bytes
	homes, bytes, herr := session.RemoveTemporaries(session.TemporaryPlace(m.Home()), g.apply)
	r.Temporaries.Count, r.Temporaries.Bytes = r.Temporaries.Count+homes, r.Temporaries.Bytes+bytes
	err = errors.Join(err, lerr, herr)
	for _, sentence := range r.Kept {
		g.say("%s", sentence)
	}
	for _, path := range r.Vanished {
		g.say("%s is not there: its blobs stay; --forget %s gives them up", path, strconv.Quote(path))
	}
	g.absent(r.Absent)
	if err != nil {
		return err
	}
	return g.print(r)
}

func (g *gcCommand) print(r *gc.Report) error {
	if g.json {
		out := gcReport{Apply: g.apply, Blobs: r.Blobs, Trash: r.Trash, Temporaries: r.Temporaries, Indexes: r.Indexes}
		if r.Retention != nil {
			out.Retention = &gcRetention{Class: r.Retention.Class, Warned: []gcWarned{}}
			for _, w := range r.Retention.Warned {
				out.Retention.Warned = append(out.Retention.Warned, gcWarned{orNull(w.ID), w.Path, timestamp(w.Goes)})
			}
		}
		return printJSON(g.stdout, out)
	}
	out := table(g.stdout)
	if !g.quiet {
		fmt.Fprintln(out, "CLASS\tCOUNT\tBYTES")
	}
	row := func(class string, c gc.Class) {
		fmt.Fprintf(out, "%s\t%d\t%s\n", class, c.Count, outputsink.FormatBytes(c.Bytes))
	}
	row("blobs", r.Blobs)
	row("trash", r.Trash)
	row("temporaries", r.Temporaries)
	row("indexes", r.Indexes)
	total := r.Blobs.Bytes + r.Trash.Bytes + r.Temporaries.Bytes + r.Indexes.Bytes
	if err := out.Flush(); err != nil {
		return err
	}
	if r.Retention != nil {
		g.printRetention(r.Retention)
	}
	switch {
	case g.apply:
		g.remark("%s freed", outputsink.FormatBytes(total))
	case r.Blobs.Count+r.Trash.Count+r.Temporaries.Count+r.Indexes.Count > 0:
		g.remark("nothing was changed: agentrun gc --apply frees %s", outputsink.FormatBytes(total))
	}
	return nil
}

func (g *gcCommand) printRetention(r *gc.Retention) {
	if r.Count > 0 {
		verb := "would go"
		if g.apply {
			verb = "went"
		}
		g.remark("%s %s to the trash: nobody has written to them for long", count(int64(r.Count), "session", "sessions"), verb)
	}
	for _, w := range r.Warned {
		when := "a week after gc --apply has warned of it"
		if g.apply {
			when = "on " + localTime(w.Goes)
		}
		g.say("%s (%s) goes to the trash %s: nobody has written to it since %s", w.Path, oneLine(w.Title), when, localTime(w.Modified))
	}
}
