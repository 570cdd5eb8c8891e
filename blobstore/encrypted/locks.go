package encrypted

import (
	"context"
	"sync"

	"github.com/agentrun/agentrun/blobref"
)

// lock is a mutex that whoever waits for it gives up with its context: it is held
// while the store below is asked.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) release() { <-l }

// idLocks keep those apart who store a blob of one id.
type idLocks struct {
	mu   sync.Mutex
	held map[blobref.Ref]chan struct{} // guarded by mu; closed on release
}

func (l *idLocks) acquire(ctx context.Context, id blobref.Ref) error {
	for {
		l.mu.Lock()
		held, taken := l.held[id]
		if !taken {
			if l.held == nil {
				l.held = make(map[blobref.Ref]chan struct{})
			}
			l.held[id] = make(chan struct{})
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *idLocks) release(id blobref.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[id])
	delete(l.held, id)
}
