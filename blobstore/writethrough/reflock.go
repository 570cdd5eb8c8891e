package writethrough

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentrun/agentrun/blobref"
)

// refLocks are locks by reference. The zero value has none taken.
type refLocks struct {
	mu    sync.Mutex
	locks map[blobref.Ref]*refLock // guarded by mu
}

type refLock struct {
	token chan struct{}
	users int // who holds it or waits; guarded by refLocks.mu
}

// lock waits for the lock of ref and returns the way to give it back.
func (l *refLocks) lock(ctx context.Context, ref blobref.Ref) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = make(map[blobref.Ref]*refLock)
	}
	one, ok := l.locks[ref]
	if !ok {
		one = &refLock{token: make(chan struct{}, 1)}
		l.locks[ref] = one
	}
	one.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.locks, ref)
		}
	}
	select {
	case one.token <- struct{}{}:
		return func() { <-one.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("waiting for other calls on %s: %w", ref, ctx.Err())
	}
}
