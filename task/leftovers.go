package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task/isolation"
)

// Leftovers are files of subagents of their own that nobody needs: a kill came between the end of the subagent and their
// removal, or their session is gone.
type Leftovers struct {
	Count int
	Bytes int64
}

// RemoveLeftovers looks through a directory of such files (Options.Spaces) for what nobody needs, and removes it with apply.
// What an interrupted run goes on with stays, and so does what could not be kept as a patch, as long as the session is there or
// in the trash.
func RemoveLeftovers(ctx context.Context, m *session.Manager, spaces string, apply bool) (l Leftovers, err error) {
	entries, err := os.ReadDir(spaces)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("looking for files of subagents: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue // a merge's, which the next one uses up
		}
		if err := l.ofSession(ctx, m, filepath.Join(spaces, e.Name()), apply); err != nil {
			return l, fmt.Errorf("looking for files of subagents: %w", err)
		}
	}
	return l, nil
}

// ofSession looks at the subagents of one session.
func (l *Leftovers) ofSession(ctx context.Context, m *session.Manager, dir string, apply bool) error {
	needed, release, err := neededBy(ctx, m, filepath.Base(dir), apply)
	if err != nil {
		return err
	}
	defer release()
	places, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range places {
		place := filepath.Join(dir, e.Name())
		if needed(e.Name()) || isolation.InUse(place) {
			continue
		}
		bytes := sizeOf(place)
		if apply {
			if err := isolation.Remove(ctx, nil, place); err != nil {
				return err
			}
		}
		l.Count++
		l.Bytes += bytes
	}
	return nil
}

// neededBy returns which subagents of a session need their files. Nobody begins to drive the session before release.
func neededBy(ctx context.Context, m *session.Manager, id string, apply bool) (needed func(agent string) bool, release func(), err error) {
	all := func(string) bool { return true }
	info, err := m.Find(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		_, err = m.FindTrash(ctx, id)
		if errors.Is(err, session.ErrNotFound) {
			return func(string) bool { return false }, func() {}, nil
		}
	}
	if err != nil || info.Path == "" {
		return all, func() {}, err // in the trash, from where it may come back
	}
	s, release, err := hold(ctx, m, info.Path, apply)
	if err != nil {
		return all, func() {}, nil //nolint:nilerr // who cannot be asked may need it
	}
	over := map[string]bool{}
	if err := noteOver(ctx, m, s, over, 0); err != nil {
		return all, release, nil //nolint:nilerr // as above
	}
	return func(agent string) bool {
		ended, known := over[agent]
		return known && !ended
	}, release, nil
}

// hold opens a session that nobody drives; with apply nobody can until release.
func hold(ctx context.Context, m *session.Manager, path string, apply bool) (s *session.Session, release func(), err error) {
	if !apply {
		if s, err = m.View(ctx, path); err != nil {
			return nil, nil, err
		}
		if driven, err := s.Driven(); err != nil || driven {
			return nil, nil, errors.Join(err, s.Close(), session.ErrLocked)
		}
		return s, func() { _ = s.Close() }, nil // nothing was written
	}
	if s, err = m.Open(ctx, path); err != nil {
		return nil, nil, err
	}
	driver, err := s.Drive()
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, func() { _ = driver.Close(); _ = s.Close() }, nil // as above
}

// noteOver notes the subagents of an agent, and those below, and whether they have handed in what they changed and nothing to
// do since.
func noteOver(ctx context.Context, m *session.Manager, s *session.Session, over map[string]bool, depth int) error {
	if depth > maxDepth {
		return nil
	}
	f, err := readFamily(ctx, s)
	if err != nil {
		return err
	}
	for _, spawn := range f.spawns {
		for _, sp := range spawn.Agents {
			log := filepath.Join(s.ArtifactsDir(), filepath.Base(sp.ID)+".jsonl")
			end, ended := f.ends[sp.ID]
			more := false
			if ended && end.Patch != nil {
				if more, err = moreToDo(ctx, m, log, end, 0); err != nil {
					return err
				}
			}
			over[sp.ID] = ended && end.Patch != nil && !more
			child, err := m.View(ctx, log)
			if errors.Is(err, session.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := errors.Join(noteOver(ctx, m, child, over, depth+1), child.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizeOf is how many bytes a directory has.
func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
