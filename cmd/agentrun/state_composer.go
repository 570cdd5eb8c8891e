package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
)

// composerState is the state that another program has among the data of a conversation, nil where there is none.
func (k keptStates) composerState(ctx context.Context, id string) []byte {
	if k.stack == nil {
		return nil
	}
	file, ok := k.stack.Base.(*diskkv.Store)
	if !ok {
		return nil
	}
	state, err := file.ComposerState(ctx, id)
	if err != nil || len(state) == 0 {
		return nil // what the caller has to say is said of checkpoints
	}
	return state
}

// restoreBytes makes a session of the bytes of a state whose blobs are in a store, which stays as it is.
func (e *environment) restoreBytes(ctx context.Context, m *session.Manager, blobs blobstore.Store, state []byte, o conversation.ImportOptions) (err error) {
	scratch, remove, err := scratchStore(m.Home())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	store := overlay{upper: scratch, lower: blobs}
	root, err := conversation.ReadTransfer(ctx, bytes.NewReader(state), store)
	if err != nil {
		return err
	}
	return e.importState(ctx, m, store, root, o)
}
