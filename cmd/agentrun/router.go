package main

import (
	"context"
	"encoding/json"

	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
)

// routerOf opens URLs, with s as the session at hand, which may be nil.
func routerOf(m *session.Manager, s *session.Session) *internalurl.Router {
	r := internalurl.ForSession(m, s, taskStatus(m))
	if s == nil {
		return r
	}
	return r.WithJob(func(ctx context.Context, n int64) ([]byte, error) {
		now, err := m.View(ctx, s.Path()) // its end is written by another process
		if err != nil {
			return nil, err
		}
		defer now.Close()
		j, err := supervisor.Find(now.ID(), now.Entries(ctx), n)
		if err != nil {
			return nil, err
		}
		return json.Marshal(j)
	})
}
