package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/conversation/pointers"
)

func newStateForgetCommand(env *environment) *cobra.Command {
	var store storeFlag
	var damaged bool
	cmd := &cobra.Command{
		Use:   "forget CONVERSATION",
		Short: "Give up the states of a conversation that are kept",
		Long: `forget gives up the checkpoints of a conversation, in the home or with --store
elsewhere: its latest state, those at messages, and what they were before. No
blob is removed; agentrun gc removes those of the home that nothing else needs.

Checkpoints that are damaged are given up, too; with --damaged those alone. A
file with damage is kept beside the others as CONVERSATION.jsonl.damaged-TIME.

With --json it prints an object: conversation.`,
		Example: `  agentrun state forget 01a1fa9b-79d4-7b5c-8c8e-0b6c2f0a9d11
  agentrun state forget CONVERSATION --store s3://bucket?endpoint=https://host`,
		Args: positional(1, 1, "the conversation to forget; agentrun state checkpoints lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.interruptible(cmd.Context(), func(ctx context.Context) error {
				return env.stateForget(ctx, args[0], store, damaged)
			})
		},
	}
	cmd.Flags().BoolVar(&damaged, "damaged", false, "give up what cannot be read, and nothing else")
	store.addTo(cmd)
	return cmd
}

func (e *environment) stateForget(ctx context.Context, arg string, flag storeFlag, damaged bool) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	return flag.withPointers(ctx, e, m, func(kept keptStates) error {
		id, err := kept.find(ctx, arg)
		if err != nil {
			return err
		}
		what := "the checkpoints"
		if damaged {
			what = "the damaged checkpoints"
			err = forgetDamaged(ctx, kept.pointers.Local, id)
		} else {
			err = forget(ctx, kept.pointers.Local, id)
		}
		if err != nil {
			return err
		}
		if e.json {
			return printJSON(e.stdout, struct {
				Conversation string `json:"conversation"`
			}{id})
		}
		e.remark("%s of conversation %s are given up", what, id)
		return nil
	})
}

func forget(ctx context.Context, p pointers.Pointers, id string) error {
	remover, ok := p.(pointers.Remover)
	if !ok {
		return fmt.Errorf("forgetting conversation %s: checkpoints cannot be given up in that store", id)
	}
	err := remover.Remove(ctx, id)
	if errors.Is(err, pointers.ErrNotFound) {
		return unknownConversation(id)
	}
	return err
}

func forgetDamaged(ctx context.Context, p pointers.Pointers, id string) error {
	repairer, ok := p.(pointers.Repairer)
	if !ok {
		return fmt.Errorf("forgetting what is damaged of conversation %s: in that store checkpoints are given up as a whole: leave --damaged out", id)
	}
	err := repairer.Repair(ctx, id)
	if errors.Is(err, pointers.ErrNotFound) {
		return fmt.Errorf("nothing is damaged of the checkpoints of conversation %s", id)
	}
	return err
}
