package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
)

func newSessionsMoveCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "move [ID] DIR",
		Short: "Make a session one of another working directory",
		Long: `move brings a session with its artifacts to the sessions of the directory DIR,
which must exist. It happens whole or not at all; programs that have the session
open go on at its new place. It stays as old as it was, so that the newest one
of DIR, which the next command takes, may be another; --session names this one.
A session that an agent drives is refused.

With --json it prints an object: session, path, and from, where it was.`,
		Example: `  agentrun sessions move ~/src/new-name
  agentrun sessions move 01a1fa9b ~/src/new-name`,
		Args: positional(1, 2, "a directory, and before it the session if it is not the newest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, dir := "", args[len(args)-1]
			if len(args) == 2 {
				id = args[0]
			}
			return env.move(cmd.Context(), id, dir)
		},
	}
}

// movedSession is what sessions move --json prints.
type movedSession struct {
	Session string `json:"session"`
	Path    string `json:"path"`
	From    string `json:"from"`
}

func (e *environment) move(ctx context.Context, id, dir string) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	info, err := e.find(ctx, m, id)
	if err != nil {
		return err
	}
	p := e.progress("copying")
	defer p.end()
	moved, err := m.Move(ctx, info.Path, dir, session.MoveOptions{Progress: p.bytes})
	p.end()
	if err != nil {
		return err
	}
	return e.printMoved(moved)
}

func (e *environment) printMoved(moved session.Moved) error {
	if e.json {
		return printJSON(e.stdout, movedSession{Session: moved.ID, Path: moved.Path, From: moved.From})
	}
	if moved.Unchanged {
		e.remark("%s belongs to %s already", moved.ID, moved.CWD)
	} else {
		e.remark("%s belongs to %s now: %s", moved.ID, moved.CWD, moved.Path)
	}
	return nil
}
