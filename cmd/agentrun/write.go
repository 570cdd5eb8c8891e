package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/tool/workspace"
	"github.com/agentrun/agentrun/tool/write"
)

// writeCommand is the verb write with its flags.
type writeCommand struct {
	*environment
	exact bool
	roots roots
}

func newWriteCommand(env *environment) *cobra.Command {
	c := &writeCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "write FILE < TEXT",
		Short: "Make a file of standard input, or give one a new content",
		Long: `write gives a file the text of its standard input, and makes it and directories
above it where they are not there. Of a file that is there it shows the
difference.

A file that is there keeps its mode, and the text gets what the file had: its
encoding, byte order mark, carriage returns at the ends of lines, and a newline
at the end. --exact writes the very bytes. The file is replaced in one step. It
is recorded in the session before and behind, so that agentrun rewind gives it
back. Refused, with the file as it was: a file that changed since this session
saw it last, and files outside of the working directory and of --root.

With --json it prints an object: path, made, same, bytes, added, removed, kept,
diff, artifact.`,
		Example: `  agentrun write notes/today.md < draft.md
  go run ./gen | agentrun write --exact table.go`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args:        positional(1, 1, "one file, and its text on standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVar(&c.exact, "exact", false, "write the bytes as they are, also over a file of another form")
	c.roots.addFlag(cmd.Flags())
	c.addRedact(cmd.Flags())
	return cmd
}

// written is what write --json prints.
type written struct {
	write.Result
	Diff     string  `json:"diff"`
	Artifact *string `json:"artifact"`
}

func (c *writeCommand) run(ctx context.Context, path string) (err error) {
	content, err := c.readInput("-", workspace.MaxFile)
	if err != nil {
		return err
	}
	b, err := c.workbench(ctx, c.roots)
	if err != nil {
		return err
	}
	defer func() { err = b.close(err) }()
	out := b.output()
	res, err := write.Do(ctx, b.files, write.Request{Path: path, Content: content, Exact: c.exact}, out)
	var record *workspace.RecordError
	if err != nil && !errors.As(err, &record) {
		return err
	}
	if c.json {
		return errors.Join(err, printJSON(c.stdout, written{res, c.shown(res.Diff.View, res.Diff.Text), orNull(res.Diff.Artifact)}))
	}
	text := res.Text(out.Name(b.files, res.Path))
	if c.quiet {
		text = res.Diff.Text
	}
	return errors.Join(err, c.printText(text))
}
