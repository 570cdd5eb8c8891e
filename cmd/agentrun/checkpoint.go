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

// checkpointCommand is the verb checkpoint with its flags.
type checkpointCommand struct {
	*environment
	name    string
	maxFile config.Size
}

func newCheckpointCommand(env *environment) *cobra.Command {
	c := checkpointCommand{environment: env, maxFile: checkpoint.DefaultMaxFile}
	cmd := &cobra.Command{
		Use:   "checkpoint [PATH...]",
		Short: "Record how files are, so that rewind can bring them back",
		Long: `checkpoint records files in the session: content and permissions. Of a
directory it records the regular files in it and below. Without a PATH it
records everything anew that tools and checkpoints of this session recorded
before, and what has come to be in those directories. A file that is as it was
costs a look, and the same bytes are stored once.

Tools that edit files record them by themselves. What a command of exec or bash
does to files is not known beforehand: a checkpoint before it makes that undone
by rewind, a checkpoint behind it also lets rewind delete the files it made.

Symbolic links are not followed. They, .git, the home of the sessions, and files
above --max-file are left out, and named; when nothing is left to record,
nothing is written, and the status is 1. Nothing is written outside of the home,
and nothing into git.

With --json it prints an object: entry (its id, for rewind), files (how many can
be brought back to this point).`,
		Example: `  agentrun checkpoint --name "before the refactoring" src go.mod
  agentrun exec -- make fmt
  agentrun rewind "before the refactoring"`,
		Annotations: map[string]string{makesSessions: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&c.name, "name", "", "a `TEXT` that rewind knows it by")
	addMaxFile(cmd, &c.maxFile)
	return cmd
}

func addMaxFile(cmd *cobra.Command, size *config.Size) {
	cmd.Flags().Var(size, "max-file", "leave out files of more than `SIZE`, such as 1GiB")
}

// checkpointed is what checkpoint --json prints.
type checkpointed struct {
	Entry string `json:"entry"`
	Files int    `json:"files"`
}

func (c *checkpointCommand) run(ctx context.Context, paths []string) (err error) {
	m, s, err := c.openWith(ctx)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	p := c.progress("recording")
	defer p.end()
	r := checkpoint.New(m, s, checkpoint.Options{MaxFile: int64(c.maxFile), Progress: p.step})
	done, err := r.Checkpoint(ctx, c.name, paths...)
	p.end()
	if err != nil && !errors.Is(err, checkpoint.ErrNothing) {
		return err
	}
	for _, skipped := range done.Skipped {
		c.say("%s is left out: %s", skipped.Path, skipped.Reason)
	}
	switch {
	case err != nil:
		return err
	case done.Files == 0:
		c.remark("no file is recorded, only where new ones may come to be")
	}
	if c.json {
		return printJSON(c.stdout, checkpointed{done.Entry, done.Files})
	}
	_, err = fmt.Fprintf(c.stdout, "%s: %s recorded, %d of them changed\n", done.Entry, count(int64(done.Files), "file", "files"), done.Changed)
	return err
}

// openWith is open, with the manager of the session.
func (e *environment) openWith(ctx context.Context) (*session.Manager, *session.Session, error) {
	m, err := e.manager()
	if err != nil {
		return nil, nil, err
	}
	s, err := e.openIn(ctx, m)
	return m, s, err
}
