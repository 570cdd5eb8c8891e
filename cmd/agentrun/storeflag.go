package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/storeurl"
)

// storeFlag is --store: a store of blobs in the place of that of the home.
type storeFlag struct {
	url    string
	given  bool            // also as ""
	makes  bool            // what is not there is made
	opaque bool            // whoever uses the store encrypts
	stack  *storeurl.Stack // once it is open
}

func (f *storeFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "store", "", "the store `URL`, such as dir:PATH, in the place of the home")
	before := cmd.PreRun
	cmd.PreRun = func(cmd *cobra.Command, args []string) {
		f.given = cmd.Flags().Changed("store")
		if before != nil {
			before(cmd, args)
		}
	}
}

// errNoStore is what an empty --store comes to: a variable that was not set, most likely.
var errNoStore = errors.New("--store is empty: give a store URL, or leave it out for the store of the home")

// openStack opens the store that was named.
func (f *storeFlag) openStack(ctx context.Context, e *environment) (*storeurl.Stack, error) {
	if f.url == "" {
		return nil, usagef("%w", errNoStore)
	}
	u, err := storeurl.Parse(f.url)
	if err != nil {
		return nil, usagef("%w", err)
	}
	if f.opaque && (u.PassphraseFile != "" || u.Remote != nil && u.Remote.PassphraseFile != "") {
		return nil, usagef("an opaque store is encrypted by those who are served: leave --opaque out, or encrypted=")
	}
	if !f.makes && u.Missing() && u.Remote == nil {
		return nil, fmt.Errorf("there is nothing at %s: is its disk mounted, and the path right?", u)
	}
	o := e.storeOptions()
	o.Opaque = f.opaque
	f.stack, err = u.Open(ctx, o)
	return f.stack, err
}

// storeOptions say how a store is opened. Tokens and credentials are variables that this process is kept from showing.
func (e *environment) storeOptions() storeurl.Options {
	var once sync.Once // what fails again and again is said once
	return storeurl.Options{
		Sync: e.durability.value == session.Sync,
		Report: func(err error) {
			if errors.Is(err, encrypted.ErrOthersMayRead) {
				e.remark("%v", err) // it is not the failure that is said once
				return
			}
			once.Do(func() { e.remark("%v", err) })
		},
		Lookup: withhold.Lookup,
	}
}

// open opens the store that was named, else that of the home. The function ends its use.
func (f *storeFlag) open(ctx context.Context, e *environment, m *session.Manager) (blobstore.Store, func() error, error) {
	if f.url == "" && !f.given {
		return m.Blobs(), func() error { return nil }, nil
	}
	stack, err := f.openStack(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	return stack.Store, stack.Close, nil
}

// withPointers opens a store, else the home, with the pointers that are beside it, lets use have them, and closes them.
func (f *storeFlag) withPointers(ctx context.Context, e *environment, m *session.Manager, use func(kept keptStates) error) (err error) {
	if f.url == "" && !f.given {
		local := pointers.OpenDir(pointers.DirOf(m.Home()), pointers.DirOptions{})
		return use(keptStates{blobs: m.Blobs(), pointers: storeurl.Pointers{Local: local}})
	}
	stack, err := f.openStack(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.Close()) }()
	p, err := stack.Pointers()
	if err != nil {
		return err
	}
	return use(keptStates{stack.Store, p, stack})
}

// sendFor is how long a remote is waited for that has what it is sent on disk here.
const sendFor = 5 * time.Second

// settle waits for what a store put off, of a remote for a while, and reports whether all has arrived.
func (e *environment) settle(ctx context.Context, store blobstore.Store, stack *storeurl.Stack) (bool, error) {
	if stack == nil || stack.Writethrough == nil || stack.IsMemory() {
		return true, store.Flush(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, sendFor)
	defer cancel()
	err := store.Flush(waiting)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		e.say("not all has arrived at the remote: %s for it here, and the next command on this store goes on; agentrun blobs sync waits for it", count(int64(stack.Writethrough.Queued()), "blob waits", "blobs wait"))
		return false, nil
	}
	return err == nil, err
}
