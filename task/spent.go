package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session"
)

// spentSince is what the subagents of an agent have spent from a moment on, at any depth, and how many were started: for a run that
// goes on (see agent.Options.Below).
func (k *kin) spentSince(ctx context.Context, since time.Time) (agent.Spent, int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return agent.Spent{}, 0, err
	}
	if len(k.family.spawns) == 0 {
		return agent.Spent{}, 0, nil
	}
	c := counting{manager: k.tree.o.Manager, dir: k.parent.Session.ArtifactsDir(), since: since}
	names, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return agent.Spent{}, 0, fmt.Errorf("counting what subagents have spent: %w", err)
	}
	c.parents = map[string]bool{}
	for _, entry := range names {
		if id, log := strings.CutSuffix(entry.Name(), ".jsonl"); log {
			if i := strings.LastIndexByte(id, '.'); i > 0 {
				c.parents[id[:i]] = true
			}
		}
	}
	if err := c.below(ctx, &k.family, 0); err != nil {
		return agent.Spent{}, 0, fmt.Errorf("counting what subagents have spent: %w", err)
	}
	return c.spent, c.started, nil
}

// counting counts what was spent in a tree.
type counting struct {
	manager *session.Manager
	dir     string
	since   time.Time
	parents map[string]bool // which subagents have some of their own

	spent   agent.Spent
	started int
}

// below counts what the log of an agent says of its subagents, and what theirs say that it does not.
func (c *counting) below(ctx context.Context, f *family, depth int) error {
	if depth > maxDepth {
		return nil
	}
	for _, end := range f.all {
		if !end.Ended.Before(c.since) {
			c.spent = c.spent.Plus(end.Spent)
		}
	}
	for _, spawn := range f.spawns {
		for _, sp := range spawn.Agents {
			if !sp.Began.Before(c.since) {
				c.started++
			}
			if err := c.child(ctx, sp.ID, f.ends[sp.ID].Run, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// child counts what a subagent has spent in a run that has no end in its parent's log, and what those below it have. A log that cannot be
// read tells nothing: whoever goes on with it says so.
func (c *counting) child(ctx context.Context, id, told string, depth int) error {
	s, err := c.manager.View(ctx, filepath.Join(c.dir, filepath.Base(id)+".jsonl"))
	if err != nil {
		return ctx.Err()
	}
	defer s.Close()
	run, began, spent, err := agent.SpentIn(ctx, s, id)
	if err != nil {
		return ctx.Err()
	}
	if run != "" && run != told && !began.Before(c.since) {
		c.spent = c.spent.Plus(spent)
	}
	if !c.parents[id] {
		return nil
	}
	f, err := readFamily(ctx, s)
	if err != nil {
		return ctx.Err()
	}
	return c.below(ctx, &f, depth+1)
}
