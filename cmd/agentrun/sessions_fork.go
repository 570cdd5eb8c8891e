package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

func newSessionsForkCommand(env *environment) *cobra.Command {
	var o session.ForkOptions
	cmd := &cobra.Command{
		Use:   "fork [ID]",
		Short: "Start a session that goes on from another one",
		Long: `fork makes a new session with the entries of another one, under the same ids,
and prints its id. It is the newest session of its directory then: commands
without --session go on in it. From then on each goes its own way: artifact://N
means the same text in both, and new numbers of the two have nothing to do with
each other. The artifacts share their bytes with the original where the file
system can, by reflink, else by hard link; what is still being written is copied
to its present length. Outputs and sessions of subagents come along.

An artifact that can't come along is named, and the fork has the rest.

With --at the fork has the log as it was when ENTRY was its last entry. With
--path-only it has the entries from the first one to ENTRY, or to the last
one, and their labels: no other branches, and of artifacts, outputs and
sessions of subagents only those that these entries cite. Numbers of the rest
are not given out again.

With --json it prints an object: session, path, parent, artifacts, which is an
object of reflinked, linked and copied (numbers of artifacts) and failed (a
list of ids). parent is the id of the original, with --path-only its path.`,
		Example: `  agentrun sessions fork
  agentrun sessions fork --at 19aa5d3f2b7c01d2e3f40516 --path-only`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.fork(cmd.Context(), only(args, 0), o)
		},
	}
	cmd.Flags().StringVar(&o.At, "at", "", "end with `ENTRY`, as agentrun sessions tree names it")
	cmd.Flags().BoolVar(&o.PathOnly, "path-only", false, "leave other branches out")
	return cmd
}

// forkedItem is what sessions fork --json prints.
type forkedItem struct {
	Session   string          `json:"session"`
	Path      string          `json:"path"`
	Parent    string          `json:"parent"`
	Artifacts forkedArtifacts `json:"artifacts"`
}

type forkedArtifacts struct {
	Reflinked int   `json:"reflinked"`
	Linked    int   `json:"linked"`
	Copied    int   `json:"copied"`
	Failed    []any `json:"failed"` // the number of an artifact, the name of another file
}

func (e *environment) fork(ctx context.Context, id string, o session.ForkOptions) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	info, err := e.find(ctx, m, id)
	if err != nil {
		return err
	}
	p := e.progress("forking, files")
	o.Progress = p.step
	forked, err := m.Fork(ctx, info.Path, o)
	p.end()
	if err != nil {
		return err
	}
	for _, f := range forked.Artifacts.Failed {
		e.remark("%v", f)
	}
	for _, f := range forked.Artifacts.Changed {
		e.remark("%s", f.AsIs())
	}
	if e.json {
		return printJSON(e.stdout, forkedItem{forked.ID, forked.Path, forked.Parent, forkedArtifacts{
			Reflinked: forked.Artifacts.Reflinked, Linked: forked.Artifacts.Linked, Copied: forked.Artifacts.Copied,
			Failed: failedIDs(forked.Artifacts.Failed),
		}})
	}
	_, err = fmt.Fprintln(e.stdout, forked.ID)
	e.remark("forked %s; %s; its log is %s", info.ID, artifactsOf(forked.Artifacts), forked.Path)
	if m.Holds(forked.Path) {
		e.remark("what is run without --session goes into the fork now; go on in the old one with --session %s", cmp.Or(info.ID, info.Path))
	} else {
		e.remark("it lies outside of the home, as the old one does; go on in it with --session %s", forked.ID)
	}
	return err
}

func failedIDs(failed []artifacts.CloneFailure) []any {
	ids := []any{}
	for _, f := range failed {
		var id any = f.Name
		if f.ID >= 0 {
			id = f.ID
		}
		if !slices.Contains(ids, id) { // two files of one number
			ids = append(ids, id)
		}
	}
	return ids
}

// artifactsOf says in words how the artifacts came along.
func artifactsOf(c artifacts.Cloned) string {
	if c.Reflinked+c.Linked+c.Copied+len(c.Failed) == 0 {
		return "it has no artifacts"
	}
	return fmt.Sprintf("artifacts: %d reflinked, %d linked, %d copied, %d failed", c.Reflinked, c.Linked, c.Copied, len(c.Failed))
}
