package session

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/agentrun/agentrun/internal/durable"
)

// foundingLock is held in a directory of sessions by the process that makes the
// first one there, from before it looks for others until its file exists.
const foundingLock = ".founding.lock"

// Continue opens the session of cwd that was modified last, and makes one when
// there is none. Processes that come at once get the same session: the first
// makes it, the others wait for its first entry, at most LockWait. made says
// whether this call made it; there is no file then before the first entry.
func (m *Manager) Continue(ctx context.Context, cwd string, o CreateOptions) (s *Session, made bool, err error) {
	if s, err := m.openNewest(ctx, cwd); s != nil || err != nil {
		return s, false, err
	}
	dir, _, err := m.placeFor(cwd)
	if err != nil {
		return nil, false, fmt.Errorf("making a session: %w", err)
	}
	if err := m.makeDir(dir); err != nil {
		return nil, false, fmt.Errorf("making a session: %w", err)
	}
	lock, err := durable.OpenLock(m.opts.FS, filepath.Join(dir, foundingLock))
	if err != nil {
		return nil, false, fmt.Errorf("making a session: %w", err)
	}
	if err := lock.Lock(ctx, LockWait); err != nil {
		lock.Close()
		return nil, false, fmt.Errorf("making a session: another process is making one: %w", err)
	}
	// Somebody may have made one while we waited.
	if s, err = m.openNewest(ctx, cwd); s == nil && err == nil {
		if s, err = m.Create(ctx, cwd, o); err == nil {
			s.founding = lock
			return s, true, nil
		}
	}
	lock.Close()
	return s, false, err
}

// openNewest returns nil when there is no session of cwd.
func (m *Manager) openNewest(ctx context.Context, cwd string) (*Session, error) {
	info, ok, err := m.Newest(ctx, cwd)
	if err != nil || !ok {
		return nil, err
	}
	return m.Open(ctx, info.Path)
}

// founded lets the others go on. s.mu is held.
func (s *Session) founded() {
	if s.founding != nil {
		s.founding.Close()
		s.founding = nil
	}
}
