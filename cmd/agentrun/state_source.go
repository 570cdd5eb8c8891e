package main

import (
	"context"
	"errors"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
)

// stateSource is what a state is made of: a session, or a log that lacks its header.
type stateSource struct {
	m        *session.Manager
	s        *session.Session // nil for a log
	headless string           // its path, "" for a session
}

// stateSource finds the session that arg, a flag or a variable names, or the log.
func (e *environment) stateSource(ctx context.Context, m *session.Manager, arg string) (stateSource, error) {
	info, err := e.find(ctx, m, arg)
	if err == nil {
		s, err := m.View(ctx, info.Path)
		return stateSource{m: m, s: s}, err
	}
	var log *session.Unreadable
	if !errors.As(err, &log) {
		return stateSource{}, err
	}
	if c, cerr := m.Check(ctx, log.Path); cerr != nil || c.Entries == 0 || c.Compressed {
		return stateSource{}, err
	}
	return stateSource{m: m, headless: log.Path}, nil
}

func (f stateSource) project(ctx context.Context, store blobstore.Store, progress func(done, total int64)) (conversation.Projection, error) {
	if f.headless != "" {
		return conversation.ProjectHeadless(ctx, f.m, f.headless, store, progress)
	}
	p := conversation.NewSessionProjector(f.m, f.s, store)
	p.OnProgress(progress)
	return p.Project(ctx)
}

func (f stateSource) name() string {
	if f.headless != "" {
		return "the log " + f.headless
	}
	return "session " + f.s.ID()
}

// close ends the use of a source; err is what came first.
func (f stateSource) close(err error) error {
	if f.s == nil {
		return err
	}
	return closeSession(f.s, err)
}
