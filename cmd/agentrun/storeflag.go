package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/storeurl"
)

// storeFlag is --store: a store of blobs in the place of that of the home.
type storeFlag struct{ url string }

func (f *storeFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "store", "", "the store `URL`, such as dir:PATH, in the place of the home")
}

// openStack opens the store that was named.
func (f *storeFlag) openStack(ctx context.Context, e *environment) (*storeurl.Stack, error) {
	u, err := storeurl.Parse(f.url)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return u.Open(ctx, e.storeOptions())
}

// storeOptions say how a store is opened. Tokens and credentials are variables that this process is kept from showing.
func (e *environment) storeOptions() storeurl.Options {
	return storeurl.Options{
		Sync:   e.durability.value == session.Sync,
		Report: func(err error) { e.remark("%v", err) },
		Lookup: withhold.Lookup,
	}
}

// open opens the store that was named, else that of the home. The function ends its use.
func (f *storeFlag) open(ctx context.Context, e *environment, m *session.Manager) (blobstore.Store, func() error, error) {
	if f.url == "" {
		return m.Blobs(), func() error { return nil }, nil
	}
	stack, err := f.openStack(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	return stack.Store, stack.Close, nil
}

// openPointers opens a store with the pointers that are beside it.
func (f *storeFlag) openPointers(ctx context.Context, e *environment, m *session.Manager) (keptStates, func() error, error) {
	if f.url == "" {
		kept := keptStates{m.Blobs(), pointers.OpenDir(pointers.DirOf(m.Home()), pointers.DirOptions{})}
		return kept, func() error { return nil }, nil
	}
	stack, err := f.openStack(ctx, e)
	if err != nil {
		return keptStates{}, nil, err
	}
	p, err := stack.Pointers()
	if err != nil {
		_ = stack.Close() // which nothing was stored in
		return keptStates{}, nil, err
	}
	return keptStates{stack.Store, p}, stack.Close, nil
}
