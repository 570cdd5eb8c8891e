package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/workspace"
)

// editCommand is the verb edit with its flags.
type editCommand struct {
	*environment
	old, new []string
	all      bool
	patch    string
	roots    roots
}

func newEditCommand(env *environment) *cobra.Command {
	c := &editCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "edit FILE --old TEXT --new TEXT [--all]",
		Short: "Exchange text in a file, and show the difference",
		Long: `edit exchanges a text, which must be in the file exactly and once, for another;
with --all wherever it is. Several pairs of --old and --new are all made or
none, each looked for in the file as it was. --patch applies a unified diff
instead; a hunk that fits elsewhere, or but for up to two lines of context, is
told.

Mode, encoding, line ends and the last newline of the file stay. The file is
replaced in one step. It is recorded in the session before and behind, so that
agentrun rewind gives it back. Refused, with the file as it was: a text that is
not there or is there several times, a file that changed since this session saw
it last, and files outside of the working directory and of --root.

With --json it prints an object: path, edits, hunks (line, offset, fuzz), added,
removed, encoding, diff, artifact.`,
		Example: `  agentrun edit main.go --old 'Port = 80' --new 'Port = 8080'
  agentrun edit README.md --old colour --new color --all
  git diff main.go | agentrun edit main.go --patch -`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args:        positional(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.old, "old", nil, "the `TEXT` to exchange; may be repeated, with as many --new")
	// It hides the switch of that name, for which a command line with edit has no room.
	f.StringArrayVar(&c.new, "new", nil, "the `TEXT` that comes in its place")
	f.BoolVar(&c.all, "all", false, "exchange it wherever it is")
	f.StringVar(&c.patch, "patch", "", "apply the unified diff in `FILE`, - for the standard input")
	c.roots.addFlag(f)
	c.addRedact(f)
	return cmd
}

// edited is what edit --json prints.
type edited struct {
	edit.Result
	Diff     string  `json:"diff"`
	Artifact *string `json:"artifact"`
}

func (c *editCommand) run(ctx context.Context, path string) (err error) {
	r, err := c.request(path)
	if err != nil {
		return err
	}
	b, err := c.workbench(ctx, c.roots)
	if err != nil {
		return err
	}
	defer func() { err = b.close(err) }()
	res, err := edit.Do(ctx, b.files, r, b.output())
	var record *workspace.RecordError
	if err != nil && !errors.As(err, &record) {
		return err
	}
	if c.json {
		return errors.Join(err, printJSON(c.stdout, edited{res, c.shown(res.Diff.View, res.Diff.Text), orNull(res.Diff.Artifact)}))
	}
	text := res.Text()
	if c.quiet {
		text = res.Diff.Text
	}
	return errors.Join(err, c.printText(text))
}

// shown is a view, with its notice unless the output alone is wanted.
func (e *environment) shown(view, text string) string {
	if e.quiet {
		return text
	}
	return view
}

// printText prints text that ends with a newline or does not.
func (e *environment) printText(text string) error {
	if text != "" && text[len(text)-1] != '\n' {
		text += "\n"
	}
	if _, err := io.WriteString(e.stdout, text); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

func (c *editCommand) request(path string) (edit.Request, error) {
	r := edit.Request{Path: path}
	switch {
	case c.patch != "" && len(c.old)+len(c.new) > 0:
		return r, usagef("--patch and --old exclude each other: give one of them")
	case c.patch != "":
		patch, err := c.readInput(c.patch, workspace.MaxFile)
		if err == nil && len(patch) == 0 {
			err = usagef("the patch in %s is empty", c.patch)
		}
		r.Patch = string(patch)
		return r, err
	case len(c.old) == 0:
		return r, usagef("give the text to exchange with --old, and what comes in its place with --new; or a diff with --patch")
	case len(c.old) != len(c.new):
		return r, usagef("%d --old and %d --new: give one --new for each --old", len(c.old), len(c.new))
	}
	for i, old := range c.old {
		r.Edits = append(r.Edits, edit.Edit{Old: old, New: c.new[i], All: c.all})
	}
	return r, nil
}
