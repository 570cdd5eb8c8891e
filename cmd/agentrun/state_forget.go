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
	cmd := &cobra.Command{
		Use:   "forget CONVERSATION",
		Short: "Give up the states of a conversation that are kept",
		Long: `forget gives up the checkpoints of a conversation, in the home or with --store
elsewhere: its latest state, those at messages, and what they were before. No
blob is removed; agentrun gc removes those of the home that nothing else needs.

Checkpoints that are damaged are given up, too; a file that cannot be read is
kept beside the others as CONVERSATION.jsonl.damaged-TIME.

With --json it prints an object: conversation.`,
		Example: `  agentrun state forget 01a1fa9b-79d4-7b5c-8c8e-0b6c2f0a9d11
  agentrun state forget CONVERSATION --store s3://bucket?endpoint=https://host`,
		Args: positional(1, 1, "the conversation to forget; agentrun state checkpoints lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.interruptible(cmd.Context(), func(ctx context.Context) error {
				return env.stateForget(ctx, args[0], store)
			})
		},
	}
	store.addTo(cmd)
	return cmd
}

func (e *environment) stateForget(ctx context.Context, arg string, flag storeFlag) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	return flag.withPointers(ctx, e, m, func(kept keptStates) error {
		id, err := kept.find(ctx, arg)
		if err != nil {
			return err
		}
		remover, ok := kept.pointers.Local.(pointers.Remover)
		if !ok {
			return fmt.Errorf("forgetting conversation %s: checkpoints cannot be given up in that store", id)
		}
		if err := remover.Remove(ctx, id); errors.Is(err, pointers.ErrNotFound) {
			return unknownConversation(id)
		} else if err != nil {
			return err
		}
		if e.json {
			return printJSON(e.stdout, struct {
				Conversation string `json:"conversation"`
			}{id})
		}
		e.remark("the checkpoints of conversation %s are given up", id)
		return nil
	})
}
