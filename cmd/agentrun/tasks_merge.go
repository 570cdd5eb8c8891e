package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/task/isolation"
)

func newTaskMergeCommand(env *environment) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "merge ID",
		Short: "Bring in what a subagent has changed in files of its own",
		Long: `merge applies the patch of the subagent ID, which worked with the isolation
worktree or copy, to the directory of the session: all of it, or nothing. A file
is replaced if it is what the patch was made from; one that was changed besides
gets the lines of the patch where those it replaces stand as they did. Anything
else is a conflict, told by file, with status 1; the patch stays an artifact
(agentrun tasks --json names it), which agentrun read and git apply read too.
What is merged already is left as it is. agentrun rewind takes a merge back, but
for links.

With --json it prints one object: id, artifact, done, and files, each with path,
action (added, changed, deleted, merged, already, conflict) and, for a conflict,
reason.`,
		Example: `  agentrun task merge 0-Fix --check
  agentrun task merge 0-Fix`,
		Args: positional(1, 1, "a subagent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.mergeTask(cmd.Context(), args[0], check)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only say what would be done")
	return cmd
}

// mergeTask merges the patch of a subagent of the session.
func (e *environment) mergeTask(ctx context.Context, name string, check bool) (err error) {
	id, err := artifacts.ParseAgentID(name)
	if err != nil {
		return usagef("%q is no subagent: %w", name, err)
	}
	m, root, err := e.view(ctx, "")
	if err != nil {
		return err
	}
	dir, path := root.CWD(), root.Path()
	if parent := id.Parent(); !parent.IsZero() {
		path = filepath.Join(root.ArtifactsDir(), parent.String()+".jsonl")
	}
	if err := root.Close(); err != nil {
		return err
	}
	log, err := m.Open(ctx, path)
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the session has no agent %s: agentrun tasks lists them: %w", name, session.ErrNotFound)
	}
	if err != nil {
		return err
	}
	defer func() { err = closeSession(log, err) }()
	end, done, err := task.Merge(ctx, task.MergeOptions{
		Log: log, Artifacts: artifacts.Open(log.ArtifactsDir(), artifacts.Options{}), ID: id, Dir: dir, Spaces: spacesOf(m.Home()), Check: check,
		Recorder: checkpoint.New(m, log, checkpoint.Options{}),
	})
	if err != nil {
		return err
	}
	if e.json {
		out := struct {
			ID       string  `json:"id"`
			Artifact *string `json:"artifact"`
			isolation.Merge
		}{name, orNull(end.Patch.Artifact), done}
		if out.Files == nil {
			out.Files = []isolation.MergedFile{}
		}
		err = printJSON(e.stdout, out)
	} else {
		_, err = fmt.Fprintln(e.stdout, task.SayMerge(name, done))
	}
	if n := len(done.Conflicts()); err == nil && n > 0 {
		err = &commandError{statusError, fmt.Errorf("%s was not merged: the patch is %s", name, end.Patch.Artifact)}
	}
	return err
}

// patchOf is the patch of a subagent in a table.
func patchOf(info task.Info) string {
	switch {
	case info.Patch == nil || info.Patch.Artifact == "":
		return ""
	case info.Merged:
		return ", merged: " + info.Patch.Artifact
	}
	return ", patch: " + info.Patch.Artifact
}
