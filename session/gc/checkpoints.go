package gc

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/blobref"
)

// checkpointsDir is where a home has the pointers of its conversations. What they say is not known here: see
// Options.Cited.
const checkpointsDir = "checkpoints"

// markCheckpoints marks what the checkpoints of all homes refer to.
func (c *collector) markCheckpoints(ctx context.Context) error {
	registered, err := c.registry()
	if err != nil {
		return err
	}
	homes := c.homes(registered)
	for _, home := range slices.Concat(homes, c.otherHomes(homes)) {
		if err := c.markCheckpointsOf(ctx, home); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) markCheckpointsOf(ctx context.Context, home string) error {
	if c.Cited == nil {
		entries, err := c.readDir(filepath.Join(home, checkpointsDir))
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			c.marks.problem(fmt.Errorf("%s has checkpoints, and nobody said what they refer to", home))
		}
		return nil
	}
	for ref, err := range c.Cited(ctx, home) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.marks.problem(err)
			continue
		}
		c.marks.add([]blobref.Ref{ref})
	}
	return nil
}
