package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
)

func newSessionsBranchCommand(env *environment) *cobra.Command {
	var o session.BranchOptions
	cmd := &cobra.Command{
		Use:   "branch ENTRY",
		Short: "Go on from an earlier entry, in the same session",
		Long: `branch makes an earlier entry the point where the session goes on: what is
recorded next follows it. Nothing is removed; the entries behind it stay as
another branch, and branch leads back to them as well. pi and oh-my-pi follow.

ENTRY is an id as sessions tree shows it, or its beginning; root is before the
first entry. A summary is put to a model as the first thing of the new branch.

With --json it prints an object: session, entry (the branch point), leaf (the
entry that records the branch).`,
		Example: `  agentrun sessions branch 019aa4f1
  agentrun sessions branch 019aa4f1 --summary "the parser way was a dead end"
  agentrun sessions branch root --session 0198f2d3`,
		Args: positional(1, 1, "the entry to go on from"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.branch(cmd.Context(), args[0], o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&o.Summary, "summary", "", "`TEXT` that stands for the path that is left")
	return cmd
}

// branched is what sessions branch --json prints.
type branched struct {
	Session string `json:"session"`
	Entry   string `json:"entry"`
	Leaf    string `json:"leaf"`
}

// rootWord names the place before the first entry.
const rootWord = "root"

func (e *environment) branch(ctx context.Context, at string, o session.BranchOptions) (err error) {
	s, err := e.change(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	id, err := findEntry(ctx, s, at)
	if err != nil {
		return err
	}
	leaf, err := s.Branch(ctx, id, o)
	if err != nil {
		return err
	}
	point := id
	if id == "" {
		point = rootWord
	}
	if e.json {
		return printJSON(e.stdout, branched{s.ID(), point, leaf})
	}
	if id == "" {
		_, err = fmt.Fprintln(e.stdout, "the session goes on before its first entry")
	} else {
		_, err = fmt.Fprintf(e.stdout, "the session goes on from %s\n", shortID(id))
	}
	return err
}

// findEntry is the entry that an argument names; "" is before the first one.
func findEntry(ctx context.Context, s *session.Session, arg string) (string, error) {
	id, err := s.FindEntry(ctx, arg)
	if errors.Is(err, session.ErrNoEntry) && arg == rootWord {
		return "", nil
	}
	return id, err
}

// change opens a session that exists to append to it.
func (e *environment) change(ctx context.Context, arg string) (*session.Session, error) {
	m, err := e.manager()
	if err != nil {
		return nil, err
	}
	info, err := e.find(ctx, m, arg)
	if err != nil {
		return nil, err
	}
	s, err := m.Open(ctx, info.Path)
	if err != nil {
		return nil, err
	}
	if err := e.redactIn(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
