package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobstore/writethrough"
)

func (b *blobsCommand) newSync() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Wait until a remote has what is queued for it",
		Long: `sync sends what is queued for the remote of a store, the one that remote= names,
and returns when all of it has arrived. It waits for a remote that does not
answer until it is interrupted; what has not arrived stays queued.

A blob that is gone or damaged here before it was sent is named, and the exit
status is 1: store its bytes again, with agentrun blobs put, and it goes.

With --all it compares the stores first, and sends all blobs that the remote has
not: those from before there was a remote, and those of a damaged queue.

With --json it is one object: store; arrived: how many blobs did so while it
waited; queued: how many wait still; undelivered: those that cannot go, a list
of ref and problem.`,
		Example: `  agentrun blobs sync --store 'dir:blobs?remote=https://example.com/store'`,
		Args:    positional(0, 0, "no arguments; --store names the store"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.makes = true // what is not there has nothing queued
			return b.with(cmd, func(ctx context.Context, s *openStore) error { return b.sync(ctx, s, all) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "send what the remote has not, and not only what is queued")
	return cmd
}

// blobSync is what blobs sync --json prints.
type blobSync struct {
	Store       string            `json:"store"`
	Arrived     int               `json:"arrived"`
	Queued      int               `json:"queued"`
	Undelivered []blobUndelivered `json:"undelivered"`
}

type blobUndelivered struct {
	Ref     string `json:"ref"`
	Problem string `json:"problem"`
}

func (b *blobsCommand) sync(ctx context.Context, s *openStore, all bool) error {
	if s.stack == nil || s.stack.Writethrough == nil {
		return usagef("%s has no remote: name a store with one, as in --store 'dir:PATH?remote=URL'", s.name)
	}
	w := s.stack.Writethrough
	p := b.progress("blobs sent")
	done := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				left := w.Left()
				p.step(left, left+w.Queued())
			case <-done:
				return
			}
		}
	})
	var err error
	if all {
		_, err = w.Reconcile(ctx)
	}
	if err == nil {
		err = s.Flush(ctx)
	}
	close(done)
	shown.Wait()
	p.end()
	return errors.Join(err, b.printSync(s, err))
}

func (b *blobsCommand) printSync(s *openStore, err error) error {
	w := s.stack.Writethrough
	r := blobSync{Store: s.name, Arrived: w.Left(), Queued: w.Queued(), Undelivered: []blobUndelivered{}}
	if lost := (*writethrough.UndeliveredError)(nil); errors.As(err, &lost) {
		for i, ref := range lost.Refs {
			r.Undelivered = append(r.Undelivered, blobUndelivered{ref.String(), lost.Errs[i].Error()})
		}
	}
	if b.json {
		return printJSON(b.stdout, r)
	}
	what := "nothing waits: the remote has it all"
	switch {
	case r.Queued > 0:
		what = fmt.Sprintf("%s arrived, %d still queued", count(int64(r.Arrived), "blob", "blobs"), r.Queued)
	case r.Arrived > 0:
		what = count(int64(r.Arrived), "blob", "blobs") + " arrived"
	}
	_, werr := fmt.Fprintln(b.stdout, what)
	return werr
}
