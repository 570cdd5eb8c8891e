package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// createdType is the custom entry of a session that was made before there was
// anything to record: a session has a file from its first entry on.
const createdType = "agentrun.session"

func newSessionsNewCommand(env *environment) *cobra.Command {
	var title string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Start a session of the working directory and print its id",
		Long: `new starts a session. As the newest one of the working directory it is the
session of the commands that follow there.

With --json it prints an object: id, path.`,
		Example:           `  AGENTRUN_SESSION=$(agentrun sessions new --title 'fix the build')`,
		Annotations:       map[string]string{makesSessions: "yes"},
		Args:              positional(0, 0, "no arguments; --title gives a title"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return env.newSession(cmd.Context(), title) },
	}
	cmd.Flags().StringVar(&title, "title", "", "`TITLE` of the session")
	return cmd
}

func (e *environment) newSession(ctx context.Context, title string) (err error) {
	if e.session != "" {
		return usagef("sessions new starts a session: leave --session out")
	}
	m, err := e.manager()
	if err != nil {
		return err
	}
	o := session.CreateOptions{Title: title}
	if title != "" {
		o.TitleSource = session.TitleUser
	}
	s, err := e.create(ctx, m, o)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	if err := e.redactIn(s); err != nil {
		return err
	}
	if _, err := s.Append(ctx, entry.Custom{CustomType: createdType}); err != nil {
		return err
	}
	if e.json {
		return printJSON(e.stdout, struct {
			ID   string `json:"id"`
			Path string `json:"path"`
		}{s.ID(), s.Path()})
	}
	_, err = fmt.Fprintln(e.stdout, s.ID())
	return err
}
