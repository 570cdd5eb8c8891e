package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// Trashed describes a removed session. It is the file origin.json of the
// directory that the session's files were moved to.
type Trashed struct {
	ID      string    `json:"id"`
	Path    string    `json:"path"` // of the log before
	CWD     string    `json:"cwd"`
	Title   string    `json:"title,omitempty"`
	Removed time.Time `json:"removed"`
	Dir     string    `json:"-"` // where the files are now

	log string // its name in Dir
}

// Trash moves a session, its artifacts and its other files to the trash of the
// home. Nothing is deleted. A session that an agent loop drives is refused with
// a *LockedError. Whoever else has it open, a run in flight for example, goes on
// writing to it in the trash, and where it was once it is restored.
func (m *Manager) Trash(ctx context.Context, path string) (Trashed, error) {
	s, err := m.Open(ctx, path)
	if err != nil {
		return Trashed{}, err
	}
	defer s.Close()
	driver, err := s.Drive()
	if err != nil {
		return Trashed{}, err
	}
	defer driver.Close()
	title, err := s.Title(ctx)
	if err != nil {
		return Trashed{}, err
	}
	t := Trashed{ID: s.ID(), Path: s.Path(), CWD: s.CWD(), Title: title, Removed: m.opts.Now().UTC()}
	g := &group{wake: make(chan wake, 1), asIs: true, do: func() error { return s.moveToTrash(ctx, &t) }}
	if err := s.submit(ctx, g); err != nil {
		return Trashed{}, err
	}
	return t, nil
}

// originName says in the trash what a directory holds and where it was.
const originName = "origin.json"

// moveToTrash moves the files under the lock. The log goes first: from then on the
// session is gone from every list, and origin.json tells what belongs to it.
func (s *Session) moveToTrash(ctx context.Context, t *Trashed) error {
	if err := s.manager.keepBlobs(ctx, s); err != nil {
		return err
	}
	if err := s.manager.keepNested(ctx, s.ArtifactsDir()); err != nil {
		return err
	}
	stem, ok := catalog.Stem(s.Path())
	if !ok {
		stem = s.Path()
	}
	t.Dir = filepath.Join(catalog.TrashDir(s.manager.home), t.Removed.Format("20060102T150405.000Z")+"_"+filepath.Base(stem))
	if err := durable.MkdirAll(s.fs, t.Dir); err != nil {
		return fmt.Errorf("removing %s: %w", s.Path(), err)
	}
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("removing %s: %w", s.Path(), err)
	}
	if err := durable.WriteFile(s.fs, filepath.Join(t.Dir, originName), true, append(data, '\n')); err != nil {
		return fmt.Errorf("removing %s: %w", s.Path(), err)
	}
	// The way to the new directory is on the disk before anything is moved into it:
	// a power cut must not leave the session in neither place.
	trash := filepath.Dir(t.Dir)
	if err := errors.Join(s.fs.SyncDir(trash), s.fs.SyncDir(filepath.Dir(trash))); err != nil {
		return fmt.Errorf("removing %s: %w", s.Path(), err)
	}
	st := s.known()
	if !st.cold {
		// What an interrupted compression left; the plain file is complete. Were it still
		// there after a kill between two of the renames, it would be the session.
		if err := remove(s.fs, catalog.ColdPath(s.Path())); err != nil {
			return fmt.Errorf("removing %s: %w", s.Path(), err)
		}
	}
	names := []string{st.name(s.Path())}
	if dir, ok := catalog.ArtifactsDir(s.Path()); ok {
		names = append(names, dir)
		// Nobody is to be between taking a number and making its file.
		release, err := holdNumbers(ctx, s.fs, dir)
		if err != nil {
			return fmt.Errorf("removing %s: %w", s.Path(), err)
		}
		defer release()
	}
	names = append(names, catalog.DamagedPath(s.Path()), catalog.IndexPath(s.Path()))
	if st.cold {
		names = append(names, catalog.PlainPath(s.Path()))
	}
	for i, name := range names {
		err := s.fs.RenameNoReplace(name, filepath.Join(t.Dir, filepath.Base(name)))
		if err != nil && i == 0 {
			// Nothing was moved: leave no trace of what did not happen.
			err = errors.Join(err, s.fs.Remove(filepath.Join(t.Dir, originName)), s.fs.Remove(t.Dir))
		}
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("removing %s: moving %s to the trash: %w", s.Path(), name, err)
		}
	}
	return errors.Join(s.fs.SyncDir(t.Dir), s.fs.SyncDir(filepath.Dir(s.Path())))
}

// keepBlobs copies what a session refers to out of the reach of another program's
// collector, which reads plain logs only.
func (m *Manager) keepBlobs(ctx context.Context, s *Session) error {
	foreign, err := catalog.Foreign(m.opts.FS, m.home)
	if err != nil || !foreign {
		return err
	}
	st, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	var refs []blobref.Ref
	err = eachForward(ctx, st.src, st.end, st.src.size, func(line []byte, _ int64) bool {
		refs = append(refs, persist.Refs(line)...)
		return true
	})
	if err != nil {
		return fmt.Errorf("keeping the blobs of %s: %w", s.Path(), err)
	}
	seen := map[blobref.Ref]bool{}
	for _, ref := range refs {
		if seen[ref] {
			continue
		}
		seen[ref] = true
		data, err := m.blobs.store.Get(ctx, ref)
		switch {
		case errors.Is(err, blobstore.ErrNotFound), errors.Is(err, blobstore.ErrCorrupt):
			continue // nothing to keep
		case err == nil:
			err = m.blobs.kept.Set(ctx, ref, data)
		}
		if err != nil {
			return fmt.Errorf("keeping the blobs of %s: %w", s.Path(), err)
		}
	}
	return nil
}

// keepNested is keepBlobs for the sessions of subagents among the artifacts.
func (m *Manager) keepNested(ctx context.Context, dir string) error {
	foreign, err := catalog.Foreign(m.opts.FS, m.home)
	if err != nil || !foreign || dir == "" {
		return err
	}
	return m.eachLog(dir, func(path string) error {
		s, err := m.View(ctx, path)
		if err != nil {
			return err
		}
		return errors.Join(m.keepBlobs(ctx, s), s.Close())
	})
}

// eachLog calls do for every log below dir. One that do says is none is left out.
func (m *Manager) eachLog(dir string, do func(path string) error) error {
	entries, err := m.opts.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch _, isLog := catalog.Stem(path); {
		case err != nil:
			return err
		case e.IsDir():
			err = m.eachLog(path, do)
		case isLog && e.Type().IsRegular():
			if err = do(path); errors.Is(err, ErrNotSession) {
				err = nil
			}
		}
	}
	return err
}

// holdNumbers is artifacts.Hold for a directory that numbers were ever taken in: it
// makes nothing, so that there is no need of room on the disk.
func holdNumbers(ctx context.Context, fsys durable.FS, dir string) (release func(), err error) {
	if !there(fsys, filepath.Join(dir, ".index", "lock")) {
		return func() {}, nil
	}
	return artifacts.Hold(ctx, fsys, dir)
}

// trashed reports whether path is that of a file in the trash of the home.
func (m *Manager) trashed(path string) bool {
	for _, home := range []string{m.home, resolved(m.home)} {
		if strings.HasPrefix(path, catalog.TrashDir(home)+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// settleTrash finds out where the log is, and with wait waits until who moves it to the
// trash, or back, has moved all that belongs to it.
func (s *Session) settleTrash(ctx context.Context, wait bool) error {
	for range maxHops {
		old := s.Path()
		if _, err := s.snapshot(ctx); err != nil {
			return err
		}
		now := s.Path()
		if !wait || !s.manager.trashed(old) && !s.manager.trashed(now) {
			return nil
		}
		for _, path := range []string{old, now} {
			if err := s.manager.awaitLock(ctx, path); err != nil {
				return fmt.Errorf("looking for the artifacts of %s: %w", now, err)
			}
		}
		if path := s.Path(); there(s.fs, path) || there(s.fs, catalog.ColdPath(path)) {
			return nil
		}
	}
	return fmt.Errorf("looking for the artifacts of %s: %w", s.Path(), errAway)
}

// awaitLock waits until nobody has the lock of the log at path.
func (m *Manager) awaitLock(ctx context.Context, path string) error {
	lock, err := durable.OpenExistingLock(m.opts.FS, catalog.LockPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	return lock.Lock(ctx, LockWait)
}

// inTrash returns where the session with an id is in the trash whose log was called
// name, the one removed last if there are several, "" when it is not there.
func (m *Manager) inTrash(ctx context.Context, name, id string) string {
	l, err := m.ListTrash(ctx)
	if err != nil || id == "" {
		return ""
	}
	for _, t := range l.Sessions {
		if t.ID == id && catalog.PlainPath(t.log) == name {
			return filepath.Join(t.Dir, name)
		}
	}
	return ""
}
