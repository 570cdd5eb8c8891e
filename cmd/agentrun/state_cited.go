package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/session"
)

// checkpointNeeds finds the blobs that the checkpoints in homes need. What it has read of a home it does not read again:
// a second look costs what was checkpointed since the first one. It is for one goroutine.
type checkpointNeeds struct {
	homes map[string]*conversation.Walker
}

// cited yields the blobs that the checkpoints in a home need and that were not yielded before.
func (c *checkpointNeeds) cited(ctx context.Context, home string) iter.Seq2[blobref.Ref, error] {
	return func(yield func(blobref.Ref, error) bool) {
		for p, err := range pointers.OpenDir(pointers.DirOf(home), pointers.DirOptions{}).List(ctx) {
			var walker *conversation.Walker
			if err == nil {
				walker, err = c.walker(home)
			}
			if err != nil {
				if !yield(blobref.Ref{}, fmt.Errorf("%w; agentrun doctor says more", err)) {
					return
				}
				continue
			}
			for r, err := range walker.Walk(ctx, p.Ref) {
				if err != nil {
					err = fmt.Errorf("%s: %w; agentrun doctor says more, agentrun state forget %s gives it up", pointers.Name(p.Conversation, p.Bubble), err, p.Conversation)
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

func (c *checkpointNeeds) walker(home string) (*conversation.Walker, error) {
	if w := c.homes[home]; w != nil {
		return w, nil
	}
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		return nil, err
	}
	if c.homes == nil {
		c.homes = map[string]*conversation.Walker{}
	}
	w := conversation.NewWalker(m.Blobs(), conversation.Limits{})
	c.homes[home] = w
	return w, nil
}
