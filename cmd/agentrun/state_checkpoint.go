package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/storeurl"
)

// checkpointTries is how often a checkpoint is made anew of a session of which somebody else made one meanwhile.
const checkpointTries = 8

func newStateCheckpointCommand(env *environment) *cobra.Command {
	store := storeFlag{makes: true}
	cmd := &cobra.Command{
		Use:   "checkpoint [ID]",
		Short: "Keep the state of a session as it is now",
		Long: `checkpoint stores the state of a session, in the home or with --store elsewhere,
and makes it the latest one of its conversation, and the one at the last message
of a person. What earlier states of it have is not stored again.

A checkpoint keeps its blobs: agentrun gc leaves them.

With --json it prints an object: conversation, blob.`,
		Example: `  agentrun state checkpoint
  agentrun state checkpoint 01a1fa9b --store s3://bucket?endpoint=https://host`,
		Args:              positional(0, 1, "at most one session"),
		ValidArgsFunction: completeSession(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.interruptible(cmd.Context(), func(ctx context.Context) error {
				return env.stateCheckpoint(ctx, only(args, 0), store)
			})
		},
	}
	store.addTo(cmd)
	return cmd
}

func (e *environment) stateCheckpoint(ctx context.Context, arg string, flag storeFlag) (err error) {
	m, s, err := e.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	return flag.withPointers(ctx, e, m, func(kept keptStates) error {
		shown := e.progress("reading the log, MB")
		defer shown.end()
		projector := conversation.NewSessionProjector(m, s, kept.blobs)
		projector.OnProgress(shown.megabytes)
		return e.keepState(ctx, kept, s.ID(), projector)
	})
}

// keepState makes a checkpoint of a session and reports it.
func (e *environment) keepState(ctx context.Context, kept keptStates, id string, projector *conversation.SessionProjector) error {
	for try := 1; ; try++ {
		p, err := kept.checkpoint(ctx, id, projector)
		if errors.Is(err, pointers.ErrConflict) && try < checkpointTries {
			continue
		}
		if err != nil {
			return err
		}
		e.tellHoles(p.Holes)
		if err := e.sendCheckpoint(ctx, kept, id); err != nil {
			return err
		}
		if e.json {
			return printJSON(e.stdout, struct {
				Conversation string `json:"conversation"`
				Blob         string `json:"blob"`
			}{id, p.Root.String()})
		}
		e.remark("conversation %s is kept: %s, %s", id, p.Root, count(int64(p.Turns), "turn", "turns"))
		return nil
	}
}

// keptStates are a store of blobs and the pointers to states in it.
type keptStates struct {
	blobs    blobstore.Store
	pointers storeurl.Pointers
	stack    *storeurl.Stack // nil for the home
}

// sendCheckpoint lets a remote have the checkpoint, too, behind its blobs.
func (e *environment) sendCheckpoint(ctx context.Context, kept keptStates, id string) error {
	arrived, err := e.settle(ctx, kept.blobs, kept.stack)
	if err != nil || kept.stack == nil || kept.stack.Remote == nil {
		return err
	}
	if kept.pointers.Remote == nil {
		e.remark("the remote has the blobs, and keeps no checkpoints: those are here only")
		return nil
	}
	if arrived {
		return kept.pointers.Push(ctx, id)
	}
	e.remark("the remote has not the checkpoint yet; the next one that is made brings it")
	return nil
}

// checkpoint makes the state of a session, as it is now, the latest one.
func (k keptStates) checkpoint(ctx context.Context, id string, projector *conversation.SessionProjector) (conversation.Projection, error) {
	latest, err := lastKnown(k.pointers.Local.Get(ctx, id, ""))
	if err != nil {
		return conversation.Projection{}, err
	}
	p, err := projector.Project(ctx)
	if err != nil {
		return p, err
	}
	if k.stack == nil || k.stack.Writethrough == nil { // whose blobs are safe here, and sent later
		if err := k.blobs.Flush(ctx); err != nil {
			return p, err
		}
	}
	changes := []pointers.Change{{Old: latest.Ref, New: p.Root}}
	bubble, err := k.bubble(ctx, p)
	if err != nil {
		return p, err
	}
	if bubble != "" {
		at, err := lastKnown(k.pointers.Local.Get(ctx, id, bubble))
		if err != nil {
			return p, err
		}
		changes = append(changes, pointers.Change{Bubble: bubble, Old: at.Ref, New: p.Root})
	}
	return p, k.pointers.Local.CompareAndSet(ctx, id, changes...)
}

// bubble is the newest message of a person in a state, "" where there is none.
func (k keptStates) bubble(ctx context.Context, p conversation.Projection) (string, error) {
	s, err := conversation.New(p.State, k.blobs, conversation.Limits{})
	if err != nil {
		return "", err
	}
	for i := s.Len() - 1; i >= 0; i-- {
		t, err := s.Turn(ctx, i)
		if err != nil {
			return "", err
		}
		if id := t.User.GetMessageId(); id != "" && pointers.CheckID("bubble", id) == nil {
			return id, nil
		}
	}
	return "", nil
}

func newStateCheckpointsCommand(env *environment) *cobra.Command {
	var store storeFlag
	var history bool
	cmd := &cobra.Command{
		Use:   "checkpoints [CONVERSATION]",
		Short: "List the states that are kept",
		Long: `checkpoints lists the states that are kept in the home, or in the store that
--store names: of each conversation the latest one, and those at messages.

With --history it lists what those of one CONVERSATION were, newest first.

With --json it prints one object a line: conversation, bubble (the message, null
for the latest state), blob, time (null where that is not known).`,
		Example: `  agentrun state checkpoints
  agentrun state checkpoints --json | jq -r .blob`,
		Args: positional(0, 1, "at most one conversation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if history && len(args) == 0 {
				return usagef("name the conversation, as in: agentrun state checkpoints --history CONVERSATION")
			}
			return env.stateCheckpoints(cmd.Context(), only(args, 0), store, history)
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "list earlier ones, too")
	store.addTo(cmd)
	return cmd
}

func (e *environment) stateCheckpoints(ctx context.Context, arg string, flag storeFlag, history bool) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	return flag.withPointers(ctx, e, m, func(kept keptStates) error {
		id := ""
		if arg != "" {
			if id, err = kept.find(ctx, arg); err != nil {
				return err
			}
		}
		if history {
			return e.printPointers(kept.pointers.Local.History(ctx, id), id)
		}
		return e.printPointers(kept.pointers.List(ctx), id)
	})
}

// printPointers prints the pointers of a conversation, "" for all.
func (e *environment) printPointers(list iter.Seq2[pointers.Pointer, error], id string) error {
	out := table(e.stdout)
	if !e.json && !e.quiet {
		fmt.Fprintln(out, "CONVERSATION\tMESSAGE\tBLOB\tTIME")
	}
	var failed error
	for p, err := range list {
		if id != "" && p.Conversation != id && p.Conversation != "" {
			continue // also damage of another one
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if err := e.printPointer(out, p); err != nil {
			return err
		}
	}
	return errors.Join(failed, out.Flush())
}

func (e *environment) printPointer(out flusher, p pointers.Pointer) error {
	if e.json {
		return printJSON(e.stdout, struct {
			Conversation string  `json:"conversation"`
			Bubble       *string `json:"bubble"`
			Blob         string  `json:"blob"`
			Time         *string `json:"time"`
		}{p.Conversation, orNull(p.Bubble), p.Ref.String(), timestamp(p.Time)})
	}
	bubble, at := p.Bubble, "-"
	if bubble == "" {
		bubble = "-"
	}
	if !p.Time.IsZero() {
		at = p.Time.Local().Format(time.DateTime)
	}
	_, err := fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", p.Conversation, bubble, p.Ref, at)
	return err
}

func newStateRestoreCommand(env *environment) *cobra.Command {
	var store storeFlag
	var bubble string
	var maps pathMaps
	cmd := &cobra.Command{
		Use:   "restore CONVERSATION",
		Short: "Make a new session of a state that is kept",
		Long: `restore makes a session of the latest state of a conversation, or with --bubble
of the one at a message; agentrun state checkpoints lists them. Of both ids the
beginning is enough where it fits one alone. The session has the id of the
conversation where the home has no session of that id, else a new one: what is
there stays as it is. In a file of agent.v1 clients (diskkv:) a conversation may
have no checkpoint, and a state beside its other data: that is taken then.

With --json it prints an object: session, path.`,
		Example: `  agentrun state restore 01a1fa9b-79d4-7b5c-8c8e-0b6c2f0a9d11
  agentrun state restore 01a1fa9b --bubble ID --store dir:/mnt/blobs`,
		Args: positional(1, 1, "the conversation to restore; agentrun state checkpoints lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.interruptible(cmd.Context(), func(ctx context.Context) error {
				return env.stateRestore(ctx, args[0], bubble, store, conversation.ImportOptions{Map: maps})
			})
		},
	}
	cmd.Flags().StringVar(&bubble, "bubble", "", "the state at the message `ID`")
	cmd.Flags().Var(&maps, "map", "`OLD=NEW`: what lay in OLD lies in NEW here; may be given more than once")
	store.addTo(cmd)
	return cmd
}

func (e *environment) stateRestore(ctx context.Context, arg, bubble string, flag storeFlag, o conversation.ImportOptions) error {
	if e.session != "" {
		return usagef("restore makes a session of its own: leave --session out")
	}
	m, err := e.manager()
	if err != nil {
		return err
	}
	return flag.withPointers(ctx, e, m, func(kept keptStates) error {
		id, err := kept.find(ctx, arg)
		if errors.Is(err, pointers.ErrNotFound) && bubble == "" {
			if state := kept.composerState(ctx, arg); state != nil {
				return e.restoreBytes(ctx, m, kept.blobs, state, o)
			}
		}
		if err != nil {
			return err
		}
		p, err := kept.findBubble(ctx, id, bubble)
		var damaged *pointers.DamagedError
		if errors.As(err, &damaged) && !damaged.Last.Ref.IsZero() {
			e.say("%v; that is restored", err)
			p, err = damaged.Last, nil
		}
		if err != nil {
			return err
		}
		return e.importState(ctx, m, kept.blobs, p.Ref, o)
	})
}
