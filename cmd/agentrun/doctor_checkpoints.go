package main

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

// brokenCheckpoints yields what is wrong with the checkpoints in a home, for agentrun doctor; whole: every blob that they
// need is read, and not only found.
func brokenCheckpoints(whole bool) func(ctx context.Context, home string) iter.Seq[doctor.Finding] {
	return func(ctx context.Context, home string) iter.Seq[doctor.Finding] {
		return checkCheckpoints(ctx, home, whole)
	}
}

func checkCheckpoints(ctx context.Context, home string, whole bool) iter.Seq[doctor.Finding] {
	return func(yield func(doctor.Finding) bool) {
		c := checkpointCheck{whole: whole, known: map[blobref.Ref]error{}}
		dir := pointers.DirOf(home)
		for p, err := range pointers.OpenDir(dir, pointers.DirOptions{}).List(ctx) {
			file := dir
			if p.Conversation != "" {
				file = filepath.Join(dir, p.Conversation+".jsonl")
			}
			if err == nil && c.blobs == nil {
				var m *session.Manager
				if m, err = session.OpenManager(home, session.Options{}); err == nil {
					c.blobs = m.Blobs()
				}
			}
			if err != nil {
				if !yield(doctor.Finding{Kind: doctor.KindCheckpointDamaged, File: file, What: fmt.Sprintf("%v; gc frees no blob of the home as long as it is there", err)}) {
					return
				}
				continue
			}
			if !c.examine(ctx, p, file, yield) {
				return
			}
		}
	}
}

// checkpointCheck looks for what checkpoints refer to, each blob once.
type checkpointCheck struct {
	blobs blobstore.Store
	whole bool
	known map[blobref.Ref]error // what is wrong with blobs in which no others are named, nil for nothing

	// walker is for the states of one conversation, which have most of their blobs in common.
	walker       *conversation.Walker
	conversation string
}

// examine yields what one checkpoint refers to and cannot be read, unless another one of its conversation did.
func (c *checkpointCheck) examine(ctx context.Context, p pointers.Pointer, file string, yield func(doctor.Finding) bool) bool {
	if c.walker == nil || c.conversation != p.Conversation {
		c.walker, c.conversation = conversation.NewWalker(c.blobs, conversation.Limits{}), p.Conversation
	}
	told := map[blobref.Ref]bool{}
	for ref, err := range c.walker.Walk(ctx, p.Ref) {
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			err = c.look(ctx, ref) // the walk reads only what names others
		}
		if err == nil || told[ref] {
			continue
		}
		told[ref] = true
		f := doctor.Finding{Kind: doctor.KindCheckpointMissing, File: file, What: fmt.Sprintf(
			"%s is not whole: %v; gc may free no blob of the home as long as it is so; put the blob back from a backup, or give the conversation up: agentrun state forget %s",
			pointers.Name(p.Conversation, p.Bubble), err, p.Conversation)}
		if !yield(f) {
			return false
		}
	}
	return true
}

// look says what is wrong with a blob.
func (c *checkpointCheck) look(ctx context.Context, ref blobref.Ref) error {
	err, known := c.known[ref]
	if known {
		return err
	}
	if c.whole {
		_, err = c.blobs.Get(ctx, ref)
	} else {
		_, err = blobstore.Stat(ctx, c.blobs, ref)
	}
	c.known[ref] = err
	return err
}
