package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/session"
)

// rewindCommand is the verb rewind with its flags.
type rewindCommand struct {
	*environment
	checkpoint.PlanOptions
	files, dryRun bool
	maxFile       config.Size
}

func newRewindCommand(env *environment) *cobra.Command {
	r := rewindCommand{environment: env, maxFile: checkpoint.DefaultMaxFile}
	cmd := &cobra.Command{
		Use:   "rewind ENTRY",
		Short: "Bring files, and the conversation, back to an earlier entry",
		Long: `rewind brings the recorded files back to how they were at an entry, and then
lets the session go on from that entry, as sessions branch does. With --files it
leaves the conversation where it is. ENTRY is the name of a checkpoint, or an id
as sessions tree shows it, or its beginning, or root for before the first. Any
entry will do: there is one disk, so files are as the last record before it
says, on whatever branch. A session that an agent loop drives is refused.

--dry-run shows the plan, and changes nothing:

  restore    the file gets its content and permissions of then
  recreate   it was deleted since
  delete     it was made since
  skip       it is left alone: above all, someone else changed it since it was
             recorded, and no run or tool call of the session was at work then
  refuse     it cannot be done: a directory or link is in its place
  unchanged  it is as it was (with --json only)

A file that was never recorded is not touched, and nothing in .git is; how many
such files have come to be in recorded directories is told. The rewind is
recorded first, with what the files hold now: a rewind to that entry undoes it,
and when a rewind was interrupted, the same again finishes it.

The status is 1 when a file that was to be brought back is not: one that is
refused, that changed meanwhile, or that is too large to keep. A skip that
--changed or --outside would have undone is none, and a dry run has status 0.

With --json it prints an object: plan (a list of path, action, reason), applied:
true when the rewind changed a file or moved the conversation, false when it
changed nothing. Where the conversation goes on is said on the standard error.`,
		Example: `  agentrun rewind "before the refactoring" --dry-run
  agentrun rewind 019aa4f1 --files`,
		Args: positional(1, 1, "the entry to go back to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.BoolVar(&r.files, "files", false, "bring back the files alone, not the conversation")
	f.BoolVar(&r.dryRun, "dry-run", false, "show what would be done")
	f.BoolVar(&r.Changed, "changed", false, "restore files as well that someone else changed")
	f.BoolVar(&r.Outside, "outside", false, "restore files as well that are outside of the session's directory")
	addMaxFile(cmd, &r.maxFile)
	return cmd
}

// rewound is what rewind --json prints.
type rewound struct {
	Plan    []rewindItem `json:"plan"`
	Applied bool         `json:"applied"`
}

type rewindItem struct {
	Path   string `json:"path"`
	Action string `json:"action"`
	Reason string `json:"reason"`
}

func (r *rewindCommand) run(ctx context.Context, arg string) (err error) {
	m, err := r.manager()
	if err != nil {
		return err
	}
	info, err := r.find(ctx, m, "")
	if err != nil {
		return err
	}
	open := m.Open
	if r.dryRun {
		open = m.View
	}
	s, err := open(ctx, info.Path)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	p := r.progress("comparing")
	defer p.end()
	rec := checkpoint.New(m, s, checkpoint.Options{MaxFile: int64(r.maxFile), Durability: r.durability.value, Progress: p.step})
	id, err := rec.Find(ctx, arg)
	if errors.Is(err, session.ErrNoEntry) && arg == rootWord {
		id, err = "", nil
	}
	if err != nil {
		return err
	}
	plan, err := rec.Plan(ctx, id, r.PlanOptions)
	p.end()
	if err != nil {
		return err
	}
	if plan.Damaged > 0 {
		r.say("the log names %s that no record may have; left out", count(int64(plan.Damaged), "path", "paths"))
	}
	if r.dryRun {
		err := r.print(plan, false)
		r.tellNew(ctx, rec)
		if err != nil || r.files {
			return err
		}
		return r.leaf("would go on", plan.Leaf)
	}
	return r.apply(ctx, s, rec, plan, p)
}

func (r *rewindCommand) apply(ctx context.Context, s *session.Session, rec *checkpoint.Recorder, plan *checkpoint.Plan, p *progress) error {
	// An agent loop must not find its files, or its leaf, somewhere else.
	driver, err := s.Drive()
	if err != nil {
		return err
	}
	defer driver.Close()
	p.what = "bringing back"
	done, err := rec.Apply(ctx, plan)
	p.end()
	moved := false
	if err == nil && !r.files {
		_, err = s.Branch(ctx, plan.Leaf, session.BranchOptions{})
		moved = err == nil
	}
	perr := r.print(plan, moved || done.Changed > 0)
	if moved && perr == nil {
		perr = r.leaf("goes on", plan.Leaf)
	}
	r.tellNew(ctx, rec)
	if done.Entry != "" {
		r.remark("to undo this: agentrun rewind %s", done.Entry)
	}
	if err == nil && perr == nil {
		return missed(plan)
	}
	return errors.Join(err, perr)
}

// tellNew tells a person of files that a rewind leaves since nothing knows them.
func (r *rewindCommand) tellNew(ctx context.Context, rec *checkpoint.Recorder) {
	if r.json || r.quiet {
		return
	}
	found, err := rec.Unrecorded(ctx)
	if err != nil {
		return // it is only a remark
	}
	for _, u := range found {
		least, rest := "", "are not recorded and stay; after agentrun checkpoint a rewind deletes them"
		if u.More {
			least = "at least "
		}
		if u.Files == 1 {
			rest = "is not recorded and stays; after agentrun checkpoint a rewind deletes it"
		}
		r.remark("%s%s under %s %s", least, count(int64(u.Files), "new file", "new files"), oneLine(u.Dir), rest)
	}
}

// missed is the error about files that were to be brought back and are not, nil when
// there are none.
func missed(plan *checkpoint.Plan) error {
	n, first := 0, checkpoint.Item{}
	for _, it := range plan.Items {
		if it.Missed() {
			if n++; n == 1 {
				first = it
			}
		}
	}
	if n == 0 {
		return nil
	}
	about := fmt.Sprintf("%s: %s", oneLine(first.Path), oneLine(first.Reason))
	if n > 1 {
		about += fmt.Sprintf(", and %d more: see the plan", n-1)
	}
	return fmt.Errorf("%s not brought back: %s", count(int64(n), "file was", "files were"), about)
}

// leaf tells where the conversation goes on.
func (r *rewindCommand) leaf(how, id string) error {
	where := "from " + shortID(id)
	if id == "" {
		where = "before its first entry"
	}
	if r.json {
		r.remark("the session %s %s", how, where)
		return nil
	}
	_, err := fmt.Fprintf(r.stdout, "the session %s %s\n", how, where)
	return err
}

func (r *rewindCommand) print(plan *checkpoint.Plan, applied bool) error {
	if r.json {
		out := rewound{Plan: []rewindItem{}, Applied: applied}
		for _, it := range plan.Items {
			out.Plan = append(out.Plan, rewindItem{it.Path, string(it.Action), it.Reason})
		}
		return printJSON(r.stdout, out)
	}
	out := table(r.stdout)
	if !r.quiet && len(plan.Items) > 0 {
		fmt.Fprintln(out, "ACTION\tPATH\tREASON")
	}
	unchanged, leftAlone := 0, 0
	for _, it := range plan.Items {
		switch {
		case it.Action == checkpoint.Unchanged:
			unchanged++
			continue
		case !it.Action.Changes():
			leftAlone++
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", it.Action, oneLine(it.Path), oneLine(it.Reason))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	changes := count(int64(plan.Changes()), "file", "files")
	rest := fmt.Sprintf("%d unchanged", unchanged)
	if leftAlone > 0 {
		rest += fmt.Sprintf(", %d left alone", leftAlone)
	}
	switch {
	case len(plan.Items) == 0:
		r.remark("no file was ever recorded in this session; agentrun checkpoint records some")
	case r.dryRun:
		r.remark("a dry run, nothing was changed; it would change %s, %s", changes, rest)
	default:
		r.remark("%s changed, %s", changes, rest)
	}
	return nil
}
