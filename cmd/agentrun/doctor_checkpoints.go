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

// brokenCheckpoints yields what is wrong with the checkpoints in a home, for agentrun doctor.
func brokenCheckpoints(ctx context.Context, home string) iter.Seq[doctor.Finding] {
	return func(yield func(doctor.Finding) bool) {
		c := checkpointCheck{told: map[string]bool{}, whole: map[blobref.Ref]bool{}}
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

// checkpointCheck reads what checkpoints refer to, each blob once.
type checkpointCheck struct {
	blobs blobstore.Store
	told  map[string]bool      // conversation and blob, of what is lost
	whole map[blobref.Ref]bool // what could be read
}

// examine yields what one checkpoint refers to and cannot be read.
func (c *checkpointCheck) examine(ctx context.Context, p pointers.Pointer, file string, yield func(doctor.Finding) bool) bool {
	for ref, err := range conversation.Walk(ctx, c.blobs, p.Ref, conversation.Limits{}) {
		if ctx.Err() != nil {
			return false
		}
		if err == nil && !c.whole[ref] {
			_, err = c.blobs.Get(ctx, ref) // the walk reads only what names others
			c.whole[ref] = err == nil
		}
		key := p.Conversation + " " + ref.Hex()
		if err == nil || c.told[key] {
			continue
		}
		c.told[key] = true
		f := doctor.Finding{Kind: doctor.KindCheckpointMissing, File: file, What: fmt.Sprintf(
			"%s is not whole: %v; gc may free no blob of the home as long as it is so; put the blob back from a backup, or give the conversation up: agentrun state forget %s",
			pointers.Name(p.Conversation, p.Bubble), err, p.Conversation)}
		if !yield(f) {
			return false
		}
	}
	return true
}
