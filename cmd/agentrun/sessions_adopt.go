package main

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/session"
)

// offer prints the sessions that --adopt would move here.
func (l *sessionsList) offer(strays []session.Info) error {
	them, they := "them", "are"
	if len(strays) == 1 {
		them, they = "it", "is"
	}
	l.remark("%s of this project %s kept for another directory, where it is no longer; agentrun sessions list --adopt moves %s here",
		count(int64(len(strays)), "session", "sessions"), they, them)
	there := *l
	there.all = true // their directories tell them apart
	return there.print(strays, nil)
}

// adoptAll moves them. One that cannot be moved stays, and the others are moved.
func (l *sessionsList) adoptAll(ctx context.Context, m *session.Manager) error {
	cwd, err := workingDirectory()
	if err != nil {
		return err
	}
	strays, err := m.Stray(ctx, cwd)
	if err != nil {
		return err
	}
	if len(strays) == 0 {
		l.remark("no session of this project is kept for another directory")
		return nil
	}
	stayed := 0
	for _, s := range strays {
		p := l.progress("copying")
		moved, err := m.Move(ctx, s.Path, cwd, session.MoveOptions{Progress: p.bytes})
		p.end()
		switch {
		case ctx.Err() != nil:
			return err
		case err != nil:
			stayed++
			l.say("%v", err)
			continue
		}
		if err := l.printMoved(moved); err != nil {
			return err
		}
	}
	if stayed > 0 {
		return fmt.Errorf("%s of %d stayed where they were", count(int64(stayed), "session", "sessions"), len(strays))
	}
	return nil
}
