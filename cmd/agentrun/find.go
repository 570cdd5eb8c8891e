package main

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/workspace"
)

func newFindCommand(env *environment) *cobra.Command {
	c := &fileSearch{environment: env}
	cmd := &cobra.Command{
		Use:   "find [--glob G] [PATH|URL]...",
		Short: "List files by name, without those that git ignores",
		Long: `find lists the files in the working directory or in each PATH, in order, without
what git ignores (as git check-ignore --no-index has it) and without following
links. Any PATH can be given that you can read; agentrun call keeps the tool to
the working directory and --root. A GLOB has *, ?, [a-z], {a,b}, and ** for any
directories; without a slash it is matched with the file name, else with the
path below PATH.

artifact:// lists the artifacts of the session, agent:// the outputs of its
subagents, session:// the sessions of this directory.

What is printed is bounded as with exec; all of it is kept as an artifact when
it does not fit. --full prints everything instead.

With --json it prints all, an object a line: path, type (file, link, other). The
status is 1 when there is none, and 2 when that is not known: the GLOB or a PATH
is none, or a directory could not be read.`,
		Example: `  agentrun find --glob '*.go'
  agentrun find --glob 'src/**/*.{c,h}' --full | xargs wc -l`,
		Annotations: map[string]string{makesSessions: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.search(cmd.Context(), "find", func(ctx context.Context, w *workspace.Workspace, s *sources, sink *outputsink.Sink) ([]string, bool, error) {
				out := sink.Stdout()
				if c.whole {
					out = c.stdout
				}
				return c.list(ctx, w, s, out, args)
			})
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}

// foundFile is what find --json prints.
type foundFile struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

func (c *fileSearch) list(ctx context.Context, w *workspace.Workspace, s *sources, to io.Writer, targets []string) (problems []string, empty bool, err error) {
	l, err := find.List(ctx, w, s, c.Options, targets...)
	if err != nil {
		return nil, false, err
	}
	defer l.Close()
	out := bufio.NewWriter(to)
	for _, item := range l.Items {
		if !c.json {
			fmt.Fprintln(out, item.Name) // whose error Flush has
			continue
		}
		kind := "other"
		switch {
		case item.Regular():
			kind = "file"
		case item.Link():
			kind = "link"
		}
		if err := printJSON(out, foundFile{item.Name, kind}); err != nil {
			return nil, false, err
		}
	}
	if err := out.Flush(); err != nil {
		return nil, false, fmt.Errorf("printing the list: %w", err)
	}
	return l.Problems, len(l.Items) == 0, nil
}
