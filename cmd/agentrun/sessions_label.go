package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
)

func newSessionsLabelCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "label ENTRY TEXT",
		Short: "Name an entry of a session",
		Long: `label gives an entry a name, which sessions tree, pi and oh-my-pi show beside
it. An empty text takes the name away. ENTRY is an id as sessions tree shows it,
or its beginning.

With --json it prints an object: session, entry, label (null when it was taken
away), leaf (the entry that records it).`,
		Example: `  agentrun sessions label 019aa4f1 "before the refactoring"
  agentrun sessions label 019aa4f1 ""`,
		Args: positional(2, 2, "an entry and its label"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.label(cmd.Context(), args[0], args[1])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// labelled is what sessions label --json prints.
type labelled struct {
	Session string  `json:"session"`
	Entry   string  `json:"entry"`
	Label   *string `json:"label"`
	Leaf    string  `json:"leaf"`
}

func (e *environment) label(ctx context.Context, at, label string) (err error) {
	s, err := e.change(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	id, err := s.FindEntry(ctx, at)
	if err != nil {
		return err
	}
	leaf, err := s.Label(ctx, id, label)
	if err != nil {
		return err
	}
	if e.json {
		return printJSON(e.stdout, labelled{s.ID(), id, orNull(session.CleanTitle(label)), leaf})
	}
	if oneLine(label) == "" {
		_, err = fmt.Fprintf(e.stdout, "%s has no label\n", shortID(id))
	} else {
		_, err = fmt.Fprintf(e.stdout, "%s is labelled %s\n", shortID(id), oneLine(label))
	}
	return err
}
