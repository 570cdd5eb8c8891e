package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
)

// compressCommand is the command sessions compress.
type compressCommand struct {
	*environment

	olderThan config.Age
	all       bool
}

func newSessionsCompressCommand(env *environment) *cobra.Command {
	c := compressCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "compress [ID]",
		Short: "Compress the log of a session, or of those left alone",
		Long: `compress replaces the log of a session by a compressed one. Every command goes
on to read it; the next entry restores the plain file. oh-my-pi and pi do not
read it. What a large log repeats, such as a history that every compaction
embeds, is stored once, as blobs of the home: without them zstd -d does not give
the log.

With --older-than it compresses the sessions of the working directory, with
--all those of every directory, that nobody has written to for that time. A
session that an agent drives is left alone.

With --json it is one object a line: session, path, before, after (bytes; null
when it was not compressed), skipped (why not, else null).`,
		Example: `  agentrun sessions compress 01a1fe48
  agentrun sessions compress --older-than 7d --all`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.olderThan == 0 && c.all:
				return usagef("--all goes with --older-than: say how long the sessions were left alone")
			case c.olderThan == 0:
				return c.one(cmd.Context(), only(args, 0))
			case len(args) > 0 || c.session != "":
				return usagef("a session and --older-than exclude each other: give one of them")
			}
			return c.idle(cmd.Context())
		},
	}
	cmd.Flags().Var(&c.olderThan, "older-than", "compress sessions not written to for `AGE`: 7d, 2w, 12h")
	cmd.Flags().BoolVar(&c.all, "all", false, "the sessions of every directory")
	return cmd
}

// compressItem is one line of sessions compress --json.
type compressItem struct {
	Session *string `json:"session"`
	Path    string  `json:"path"`
	Before  int64   `json:"before"`
	After   *int64  `json:"after"`
	Skipped *string `json:"skipped"`
}

func (c *compressCommand) one(ctx context.Context, arg string) error {
	m, err := c.manager()
	if err != nil {
		return err
	}
	c.guard.Recount() // it may free space
	before, err := c.find(ctx, m, arg)
	if err != nil {
		return err
	}
	if before.Compressed {
		if !c.json {
			c.remark("%s is compressed already: %s", before.Path, outputsink.FormatBytes(before.Size))
			return nil
		}
		return c.print(before, before, "compressed already")
	}
	if err := m.Compress(ctx, before.Path); err != nil {
		return err
	}
	return c.compressed(ctx, m, before)
}

// idle compresses the sessions that were left alone. One that cannot be does not keep
// the others from it.
func (c *compressCommand) idle(ctx context.Context) error {
	m, err := c.manager()
	if err != nil {
		return err
	}
	c.guard.Recount() // it may free space
	cwd := ""
	if !c.all {
		if cwd, err = workingDirectory(); err != nil {
			return err
		}
	}
	found, err := m.List(ctx, cwd)
	if err != nil {
		return err
	}
	var before, after int64
	done, failed := 0, 0
	p := c.progress("compressing sessions")
	defer p.end()
	for i, info := range found.Sessions {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.step(i, len(found.Sessions))
		if info.Compressed || time.Since(info.Modified) < time.Duration(c.olderThan) {
			continue
		}
		err := m.CompressIdle(ctx, info.Path, time.Duration(c.olderThan))
		switch {
		case errors.Is(err, session.ErrRecent), errors.Is(err, session.ErrLocked), errors.Is(err, session.ErrGone):
			p.end()
			if err := c.print(info, info, err.Error()); err != nil {
				return err
			}
			continue
		case err != nil:
			p.end()
			c.say("%v", err)
			failed++
			continue
		}
		p.end()
		now, err := m.Find(ctx, info.Path)
		if err != nil {
			return err
		}
		if err := c.print(info, now, ""); err != nil {
			return err
		}
		done, before, after = done+1, before+info.Size, after+now.Size
	}
	p.end()
	if !c.json {
		c.remark("compressed %s: %s, before %s", count(int64(done), "session", "sessions"), outputsink.FormatBytes(after), outputsink.FormatBytes(before))
	}
	if failed > 0 {
		return fmt.Errorf("%s could not be compressed: the lines above say why", count(int64(failed), "session", "sessions"))
	}
	return nil
}

// compressed prints what became of a session.
func (c *compressCommand) compressed(ctx context.Context, m *session.Manager, before session.Info) error {
	after, err := m.Find(ctx, before.Path)
	if err != nil {
		return err
	}
	return c.print(before, after, "")
}

// print prints one session; skipped says why it was not compressed.
func (c *compressCommand) print(before, after session.Info, skipped string) error {
	if !c.json {
		if skipped != "" {
			c.remark("%s: %s, %s", before.Path, outputsink.FormatBytes(before.Size), skipped)
		} else {
			c.remark("%s: %s, before %s", after.Path, outputsink.FormatBytes(after.Size), outputsink.FormatBytes(before.Size))
		}
		return nil
	}
	item := compressItem{Session: orNull(before.ID), Path: after.Path, Before: before.Size, Skipped: orNull(skipped)}
	if skipped == "" {
		item.After = &after.Size
	}
	return printJSON(c.stdout, item)
}
