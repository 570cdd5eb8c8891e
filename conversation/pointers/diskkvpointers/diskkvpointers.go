// Package diskkvpointers keeps the pointers of conversations in a file of package diskkv, under the keys where other agents
// look for them. Several changes are made together. A file of another program can be read.
package diskkvpointers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/conversation/pointers"
)

// Store is the pointers in a file.
type Store struct{ file *diskkv.Store }

var (
	_ pointers.Pointers = Store{}
	_ pointers.Remover  = Store{}
)

// New returns the pointers in a file that is open, and stays the caller's to close.
func New(file *diskkv.Store) Store { return Store{file} }

// Get returns a pointer. Its Time is zero where another program has set it.
func (s Store) Get(ctx context.Context, conversation, bubble string) (pointers.Pointer, error) {
	if err := pointers.CheckGet(conversation, bubble); err != nil {
		return pointers.Pointer{}, err
	}
	get := s.file.Checkpoint
	if bubble != "" {
		get = func(ctx context.Context, conversation string) (diskkv.Pointer, error) {
			return s.file.BubbleCheckpoint(ctx, conversation, bubble)
		}
	}
	p, err := get(ctx, conversation)
	if errors.Is(err, diskkv.ErrNoRecord) {
		return pointers.Pointer{}, pointers.NotSet(conversation, bubble)
	}
	if err != nil {
		return pointers.Pointer{}, err
	}
	return pointers.Pointer(p), nil
}

// CompareAndSet makes changes, all of them or none.
func (s Store) CompareAndSet(ctx context.Context, conversation string, changes ...pointers.Change) error {
	if err := pointers.CheckChanges(conversation, changes); err != nil {
		return err
	}
	list := make([]diskkv.Change, len(changes))
	for i, c := range changes {
		list[i] = diskkv.Change{Conversation: conversation, Bubble: c.Bubble, Old: c.Old, New: c.New}
	}
	err := s.file.SetCheckpoints(ctx, list...)
	var conflict *diskkv.ConflictError
	if errors.As(err, &conflict) {
		return &pointers.ConflictError{Conversation: conversation, Bubble: conflict.Is.Bubble, Now: conflict.Is.Ref}
	}
	return err
}

// Remove gives up the pointers of a conversation, one after the other: with an error, some may be gone. The file keeps
// what they were, which History does not tell any more.
func (s Store) Remove(ctx context.Context, conversation string) error {
	if err := pointers.CheckID("conversation", conversation); err != nil {
		return err
	}
	var found []diskkv.Pointer // all, before the file changes
	for p, err := range s.file.Checkpoints(ctx) {
		if err != nil && p.Conversation == "" {
			return fmt.Errorf("removing the checkpoints of conversation %s: %w", conversation, err)
		}
		if p.Conversation == conversation {
			found = append(found, p) // one that is damaged, too
		}
	}
	for _, p := range found {
		if err := s.file.RemoveCheckpoint(ctx, conversation, p.Bubble); err != nil {
			return err
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("removing the checkpoints of conversation %s: %w", conversation, pointers.ErrNotFound)
	}
	return nil
}

// List yields the pointers of all conversations. Those that package pointers would not take are left out, for nobody could
// ask for them.
func (s Store) List(ctx context.Context) iter.Seq2[pointers.Pointer, error] {
	return convert(s.file.Checkpoints(ctx))
}

// History yields what was set here, newest first. What other programs have set is not in it.
func (s Store) History(ctx context.Context, conversation string) iter.Seq2[pointers.Pointer, error] {
	if err := pointers.CheckID("conversation", conversation); err != nil {
		return func(yield func(pointers.Pointer, error) bool) { yield(pointers.Pointer{}, err) }
	}
	return func(yield func(pointers.Pointer, error) bool) {
		var all []diskkv.Pointer // the file has them in the order in which they were set
		for p, err := range s.file.History(ctx, conversation) {
			if err != nil {
				yield(pointers.Pointer(p), err)
				return
			}
			all = append(all, p)
		}
		gone := map[string]bool{} // bubbles whose pointers were given up, behind what they were set to since
		for _, p := range slices.Backward(all) {
			switch {
			case p.Ref.IsZero():
				gone[p.Bubble] = true
			case gone[p.Bubble] || pointers.CheckGet(p.Conversation, p.Bubble) != nil:
			case !yield(pointers.Pointer(p), nil):
				return
			}
		}
	}
}

func convert(list iter.Seq2[diskkv.Pointer, error]) iter.Seq2[pointers.Pointer, error] {
	return func(yield func(pointers.Pointer, error) bool) {
		for p, err := range list {
			if err == nil && (p.Ref.IsZero() || pointers.CheckGet(p.Conversation, p.Bubble) != nil) {
				continue // what cannot be named
			}
			if !yield(pointers.Pointer(p), err) {
				return
			}
		}
	}
}
