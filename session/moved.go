package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/journal"
)

// forward is the content of a lock file whose log has moved: it stays where it is, and
// so tells whoever waits for it, or has the old path from somewhere, where to go.
type forward struct {
	Moved string `json:"moved"`
}

// maxForward bounds what is read as one.
const maxForward = 64 << 10

// setForward writes into the lock file where the log has gone, "" for nowhere. It is
// a hint that the log itself confirms, and need not be durable.
func setForward(lock *durable.Lock, to string) error {
	f := lock.File()
	if to == "" {
		if id, err := f.Identify(); err != nil || id.Size == 0 {
			return err
		}
		return f.Truncate(0)
	}
	data, err := json.Marshal(forward{Moved: to})
	if err == nil {
		_, err = f.WriteAt(append(data, '\n'), 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(data) + 1))
	}
	return err
}

// forwardOf returns where the lock file of the log at path says that it went.
func (m *Manager) forwardOf(path string) (to string, ok bool) {
	data, err := durable.ReadFile(m.opts.FS, catalog.LockPath(path), maxForward)
	return parseForward(data, path), err == nil && parseForward(data, path) != ""
}

// parseForward returns "" for what setForward would not have written.
func parseForward(data []byte, path string) string {
	var f forward
	if json.Unmarshal(data, &f) != nil || !filepath.IsAbs(f.Moved) || filepath.Clean(f.Moved) != f.Moved ||
		filepath.Base(f.Moved) != filepath.Base(path) || f.Moved == path || strings.IndexByte(f.Moved, 0) >= 0 {
		return ""
	}
	return f.Moved
}

// trashLooks is how often a log that vanished is looked for once more.
const trashLooks = 8

// maxHops bounds how many moves are followed.
const maxHops = 64

// moved returns where the log that was at path is now: where a move that is under way
// or the lock files say, else where a log says in its header that it was there. id is
// the session's, "" when it is not known. The error matches fs.ErrNotExist when there
// is no such log. With an id it is also looked for in the trash: who has a session open
// that is removed goes on there. The caller holds no lock.
func (m *Manager) moved(ctx context.Context, path, id string) (string, error) {
	path = catalog.PlainPath(path)
	waited := false
	for try := range maxHops {
		before := m.moves()
		if there(m.opts.FS, path) || there(m.opts.FS, catalog.ColdPath(path)) {
			return path, nil // it came back
		}
		to, err := m.trace(ctx, path, id)
		if to != "" || err != nil {
			return to, err
		}
		changed := m.moves() != before
		// A copy takes the place of a log in two steps, and on its way to the trash, or
		// back, it may have been in neither place that was looked at.
		if away := !waited && m.moving(path); !changed && !away && (id == "" || try >= trashLooks) {
			break
		}
		m.settle(ctx, movesOf(path)) // it went on while we looked
		waited = !changed
	}
	return "", fmt.Errorf("looking for %s: %w", path, fs.ErrNotExist)
}

// trace is one look for moved; "" is nowhere.
func (m *Manager) trace(ctx context.Context, path, id string) (string, error) {
	at := path
	all, _ := journal.All(m.opts.FS, m.home)
	for range maxHops {
		to, ok := "", false
		for _, j := range all {
			if j.From == at && j.To != at && (there(m.opts.FS, j.To) || there(m.opts.FS, catalog.ColdPath(j.To))) {
				to, ok = j.To, true
			}
		}
		if !ok {
			to, ok = m.forwardOf(at)
		}
		if !ok {
			break
		}
		if at = to; m.came(at, path, id) {
			return at, nil
		}
	}
	// A log keeps its name wherever it goes.
	info, err := m.catalog.Find(ctx, filepath.Base(path))
	if err == nil && catalog.PlainPath(info.Path) != path && m.came(catalog.PlainPath(info.Path), path, id) {
		return catalog.PlainPath(info.Path), nil
	}
	if to := m.inTrash(ctx, filepath.Base(path), id); to != "" && to != path {
		return to, nil
	}
	return "", ctx.Err()
}

// came reports whether the log at path says that it was at old.
func (m *Manager) came(path, old, id string) bool {
	st, err := openState(m.opts.FS, m.blobs, path)
	if err != nil {
		return false
	}
	defer st.close()
	p, err := readPreamble(st.src)
	if err != nil || p.none || id != "" && p.header.ID != id {
		return false
	}
	if id != "" && (m.trashed(path) || m.trashed(old)) {
		return true // removed, or given back, under somebody who has it open
	}
	return slices.Contains(p.header.PreviousSessionFiles, old) || m.moving(path)
}

// errAway says that the log is not at its path, neither plain nor compressed.
var errAway = fmt.Errorf("it was deleted or moved; open it where it is now: %w", ErrGone)

// follow goes to where the log has been moved. The caller holds no lock.
func (s *Session) follow(ctx context.Context) error {
	old, id := s.Path(), s.ID()
	s.manager.settle(ctx, movesOf(old))
	if s.Path() != old || there(s.fs, old) || there(s.fs, catalog.ColdPath(old)) {
		return nil // it is there again: the move was undone
	}
	for try := 0; ; try++ {
		to, err := s.manager.moved(ctx, old, id)
		if err == nil {
			if err = s.goTo(old, to); errors.Is(err, fs.ErrNotExist) && try < maxHops {
				continue // it went on meanwhile
			}
			if err == nil && s.manager.trashed(to) && !s.manager.trashed(old) {
				s.report(Event{Kind: EventRemoved, Path: to})
			}
			return err
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = errAway
		}
		return fmt.Errorf("reading %s: %w", old, err)
	}
}

// goTo goes on with the log at to, unless another goroutine has gone somewhere already.
func (s *Session) goTo(old, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("reading %s: %w", old, ErrClosed)
	}
	if s.Path() != old || to == old {
		return nil
	}
	return s.enter(to)
}

// arrive goes on at the place that a move of ours has brought the log to.
func (s *Session) arrive(to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(to)
}

// enter goes on with the log at to, which is this session. s.mu is held.
func (s *Session) enter(to string) error {
	st, err := load(s.fs, s.blobs, to)
	if err != nil {
		return err
	}
	if st.header.ID != s.st.header.ID {
		st.close()
		return fmt.Errorf("reading %s: it is session %.40q; open it anew: %w", to, st.header.ID, ErrGone)
	}
	s.place.Store(&to)
	if st.id.SameFile(s.st.id) && s.st.image == nil && st.end == s.st.end {
		// The very file under another name: what is known of it holds, its first lines
		// aside.
		s.st.preamble = st.preamble
		return st.close()
	}
	s.take(st)
	return nil
}

// LocateArtifacts returns where the directory of the session's artifacts is, which
// follows the log when that is moved. settled is false while somebody is moving it;
// with wait the call waits for the end of that.
func (s *Session) LocateArtifacts(ctx context.Context, wait bool) (dir string, settled bool, err error) {
	if !s.Exists() {
		return s.ArtifactsDir(), true, nil
	}
	if wait {
		s.manager.settle(ctx, movesOf(s.Path()))
	}
	if settled = !s.manager.moving(s.Path()); settled || wait {
		if err := s.settleTrash(ctx, wait); err != nil {
			return "", settled, err
		}
	}
	return s.ArtifactsDir(), settled, nil
}

var _ artifacts.Locator = (*Session)(nil)

func isClash(err error) bool { return asError[*artifacts.ClashError](err) }
func isBusy(err error) bool  { return asError[*artifacts.BusyError](err) }

func asError[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
