package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/conversation/pointers"
)

// find returns the conversation that arg names: its id, or the beginning of one alone. One whose checkpoints are damaged
// is found, too; what to do about it is the caller's.
func (k keptStates) find(ctx context.Context, arg string) (string, error) {
	if err := pointers.CheckID("conversation", arg); err != nil {
		return "", err
	}
	if _, err := k.pointers.Get(ctx, arg, ""); err == nil || errors.Is(err, pointers.ErrDamaged) {
		return arg, nil // without a look at all others
	}
	fits := map[string]bool{}
	var failed error
	for p, err := range k.pointers.List(ctx) {
		if err != nil && p.Conversation == "" {
			failed = errors.Join(failed, err)
		}
		if p.Conversation == arg {
			return arg, nil
		}
		if begins(p.Conversation, arg) {
			fits[p.Conversation] = true
		}
	}
	switch {
	case len(fits) == 1 && failed == nil:
		for id := range fits {
			return id, nil
		}
	case failed != nil:
		return "", failed
	case len(fits) == 0:
		return "", unknownConversation(arg)
	}
	return "", ambiguous("conversations", arg, fits)
}

// findBubble returns the pointer at a message, that its id or the beginning of one alone names; "" is the latest state.
func (k keptStates) findBubble(ctx context.Context, id, arg string) (pointers.Pointer, error) {
	p, err := k.pointers.Get(ctx, id, arg)
	unset := errors.Is(err, pointers.ErrNotFound)
	var damaged *pointers.DamagedError
	if errors.As(err, &damaged) {
		unset = damaged.Last.Ref.IsZero()
	}
	if !unset {
		return p, err
	}
	missing := fmt.Errorf("%w; agentrun state checkpoints %s lists those there are", err, id)
	if arg == "" {
		return p, missing
	}
	fits := map[string]bool{}
	for one, err := range k.pointers.List(ctx) {
		if err == nil && one.Conversation == id && begins(one.Bubble, arg) {
			p = one
			fits[one.Bubble] = true
		}
	}
	switch len(fits) {
	case 0:
		return p, missing
	case 1:
		return p, nil
	}
	return p, ambiguous("messages", arg, fits)
}

// begins reports whether an id begins with what was given for it, in any case of its letters.
func begins(id, with string) bool {
	return len(id) >= len(with) && strings.EqualFold(id[:len(with)], with)
}

func ambiguous(what, arg string, fits map[string]bool) error {
	const most = 5
	list := slices.Sorted(maps.Keys(fits))
	more := ""
	if len(list) > most {
		more = fmt.Sprintf(" and %d more", len(list)-most)
		list = list[:most]
	}
	return fmt.Errorf("%s is the beginning of several %s: %s%s; give more of it", arg, what, strings.Join(list, ", "), more)
}

// unknownConversation refuses a conversation of which nothing is kept.
func unknownConversation(id string) error {
	return fmt.Errorf("%w: nothing is kept of a conversation %s; agentrun state checkpoints lists those there are", pointers.ErrNotFound, id)
}

// lastKnown is what a pointer is as far as that can be read, zero where it is not set.
func lastKnown(p pointers.Pointer, err error) (pointers.Pointer, error) {
	var damaged *pointers.DamagedError
	switch {
	case errors.As(err, &damaged):
		return damaged.Last, nil
	case errors.Is(err, pointers.ErrNotFound):
		return p, nil
	}
	return p, err
}
