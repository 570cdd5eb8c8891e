package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// maxOrigin bounds the memory for an origin.json.
const maxOrigin = 1 << 20

// trashLock is the file in the trash that is locked while something is taken out of
// it, back to where it was or for ever.
const trashLock = ".lock"

// TrashListing is what the trash holds.
type TrashListing struct {
	Sessions   []Trashed    // the one removed last first
	Unreadable []Unreadable // directories that hold something and do not say what, by path
	// Remains are directories without a session, which a removal or a restoration
	// leaves that is killed before it moved the log, or after.
	Remains []string
}

// ListTrash lists what is in the trash.
func (m *Manager) ListTrash(ctx context.Context) (*TrashListing, error) {
	trash := catalog.TrashDir(m.home)
	entries, err := m.opts.FS.ReadDir(trash)
	l := &TrashListing{}
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the trash: %w", err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("listing the trash: %w", err)
		}
		if !e.IsDir() || e.Name()[0] == '.' {
			continue
		}
		dir := filepath.Join(trash, e.Name())
		t, err := m.readTrashed(dir)
		switch {
		case err == nil:
			l.Sessions = append(l.Sessions, t)
		case errors.Is(err, fs.ErrNotExist) && m.isRemains(dir):
			l.Remains = append(l.Remains, dir)
		default:
			l.Unreadable = append(l.Unreadable, Unreadable{Path: dir, Reason: err.Error()})
		}
	}
	slices.SortFunc(l.Sessions, func(a, b Trashed) int { return cmp.Or(b.Removed.Compare(a.Removed), cmp.Compare(a.Dir, b.Dir)) })
	return l, nil
}

// isRemains reports whether a directory of the trash holds nothing but an origin.json,
// the temporary of one, or the lock of who has repaired the log there.
func (m *Manager) isRemains(dir string) bool {
	entries, err := m.opts.FS.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		return name != originName && !strings.HasPrefix(name, ".tmp-"+originName) && filepath.Ext(name) != ".lock"
	})
}

// readTrashed reads what a directory of the trash holds. The error of one without a
// session matches fs.ErrNotExist.
func (m *Manager) readTrashed(dir string) (Trashed, error) {
	data, err := durable.ReadFile(m.opts.FS, filepath.Join(dir, originName), maxOrigin)
	if err != nil {
		return Trashed{}, err
	}
	t := Trashed{Dir: dir}
	if err := json.Unmarshal(data, &t); err != nil {
		return Trashed{}, fmt.Errorf("its %s is no JSON; what is beside it can be moved back by hand: %w", originName, err)
	}
	t.log, err = m.logIn(dir, t.Path)
	return t, err
}

// logIn returns the name of the log in a directory of the trash. origin.json says
// what it was called; a path from a file becomes no path here before it has been
// compared with a name that is there.
func (m *Manager) logIn(dir, path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return "", fmt.Errorf("%s says that it was at %.200q, which is no path", originName, path)
	}
	base := filepath.Base(path)
	for _, name := range []string{base, catalog.PlainPath(base), catalog.ColdPath(base)} {
		info, err := m.opts.FS.Lstat(filepath.Join(dir, name))
		if err == nil && info.Mode().IsRegular() {
			return name, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("it holds no log: %w", fs.ErrNotExist)
}

// FindTrash resolves the id of a removed session, the beginning of one, or the name
// of its directory in the trash. Errors match ErrNotFound, or say which there are.
func (m *Manager) FindTrash(ctx context.Context, arg string) (Trashed, error) {
	l, err := m.ListTrash(ctx)
	if err != nil {
		return Trashed{}, err
	}
	all := l.Sessions
	want := strings.ToLower(arg)
	ranks := []func(t *Trashed) bool{
		func(t *Trashed) bool { return filepath.Base(t.Dir) == arg || t.Dir == arg },
		func(t *Trashed) bool { return strings.ToLower(t.ID) == want },
		func(t *Trashed) bool { return strings.HasPrefix(strings.ToLower(t.ID), want) },
		func(t *Trashed) bool { return strings.HasPrefix(strings.ToLower(t.log), want) },
	}
	for _, matches := range ranks {
		var found []Trashed
		for i := range all {
			if arg != "" && matches(&all[i]) {
				found = append(found, all[i])
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			names := make([]string, len(found))
			for i := range found {
				names[i] = filepath.Base(found[i].Dir)
			}
			return Trashed{}, fmt.Errorf("several removed sessions begin with %.100q: give more of the id, or the name of one in the trash (%s)", arg, catalog.Several(names))
		}
	}
	return Trashed{}, fmt.Errorf("the trash has no session %q: see agentrun sessions list --trash: %w", arg, ErrNotFound)
}

// RestoreTrashed moves a removed session back to where it was, with its artifacts and
// other files, and returns the path of its log. When something stands in the way
// nothing is moved. The log goes last: until then the session is in the trash, and
// restoring it again goes on where a process was killed.
func (m *Manager) RestoreTrashed(ctx context.Context, t Trashed) (path string, err error) {
	err = m.withTrash(ctx, func() error {
		// Under the lock it may be gone, or be another one than was looked at.
		now, err := m.readTrashed(t.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is not in the trash any more: %w", t.ID, ErrNotFound)
		}
		if err != nil {
			return err
		}
		path, err = m.restoreTrashed(ctx, now)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("restoring %s: %w", cmp.Or(t.ID, t.Dir), err)
	}
	return path, nil
}

// withTrash runs do while nobody else takes anything out of the trash.
func (m *Manager) withTrash(ctx context.Context, do func() error) error {
	lock, err := durable.OpenLock(m.opts.FS, filepath.Join(catalog.TrashDir(m.home), trashLock))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lock.Lock(ctx, LockWait); err != nil {
		return err
	}
	return do()
}

// whereTo is the directory that a removed session goes back to: the one it was in,
// or, when the home has been moved since, the same one of the home where it is now.
func (m *Manager) whereTo(t Trashed) string {
	dir := filepath.Dir(t.Path)
	if m.holds(t.Path) || filepath.Base(filepath.Dir(dir)) != filepath.Base(catalog.SessionsDir(m.home)) {
		return dir
	}
	if _, err := m.opts.FS.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir
	}
	return filepath.Join(catalog.SessionsDir(m.home), filepath.Base(dir))
}

func (m *Manager) restoreTrashed(ctx context.Context, t Trashed) (string, error) {
	dir := m.whereTo(t)
	if err := durable.MkdirAll(m.opts.FS, dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, t.log)
	lock, err := durable.OpenLock(m.opts.FS, catalog.LockPath(path))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := lock.Lock(ctx, LockWait); err != nil {
		return "", err
	}
	release, err := m.holdTrashed(ctx, t)
	if err != nil {
		return "", err
	}
	defer release()
	names, err := m.toRestore(t, dir)
	if err != nil {
		return "", err
	}
	log, err := m.opts.FS.Identify(filepath.Join(t.Dir, t.log))
	if err != nil {
		return "", err
	}
	stem, _ := catalog.ArtifactsDir(filepath.Join(t.Dir, t.log))
	if err := m.admitSession(log.Size, stem, true); err != nil {
		return "", err
	}
	if err := m.giveBlobsBack(ctx, t.Dir); err != nil {
		return "", err
	}
	if names, err = m.joinDamaged(t, dir, names); err != nil {
		return "", err
	}
	for i, name := range names {
		rename := m.opts.FS.RenameNoReplace
		if name == catalog.IndexPath(t.log) {
			rename = m.opts.FS.Rename // whoever had the session open has left one, and either can be made anew
		}
		err := rename(filepath.Join(t.Dir, name), filepath.Join(dir, name))
		if err == nil && i == len(names)-2 {
			// All but the log: it must not be on the disk before what belongs to it.
			err = m.opts.FS.SyncDir(dir)
		}
		if err != nil {
			// What was moved goes back: nothing was restored.
			for _, moved := range slices.Backward(names[:i]) {
				err = errors.Join(err, m.opts.FS.RenameNoReplace(filepath.Join(dir, moved), filepath.Join(t.Dir, moved)))
			}
			return "", err
		}
	}
	if err := errors.Join(m.opts.FS.SyncDir(dir), m.opts.FS.SyncDir(filepath.Dir(dir))); err != nil {
		return "", fmt.Errorf("it is back at %s, but a power loss may undo that: %w", path, err)
	}
	// It is back; what is left in the trash is no session, and the collector's.
	_ = m.opts.FS.Remove(catalog.LockPath(filepath.Join(t.Dir, t.log)))
	_ = m.opts.FS.Remove(filepath.Join(t.Dir, originName))
	_ = m.opts.FS.Remove(t.Dir)
	return path, nil
}

// holdTrashed keeps those from writing who had the session open when it was removed.
func (m *Manager) holdTrashed(ctx context.Context, t Trashed) (release func(), err error) {
	log := filepath.Join(t.Dir, t.log)
	lock, err := durable.OpenLock(m.opts.FS, catalog.LockPath(log))
	if err != nil {
		return nil, err
	}
	err = lock.Lock(ctx, LockWait)
	free := func() {}
	if dir, ok := catalog.ArtifactsDir(log); ok && err == nil {
		free, err = holdNumbers(ctx, m.opts.FS, dir)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return func() { free(); lock.Close() }, nil
}

// toRestore lists what moves, the log last, and refuses what would replace anything.
func (m *Manager) toRestore(t Trashed, dir string) ([]string, error) {
	entries, err := m.opts.FS.ReadDir(t.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	targets := []string{catalog.PlainPath(t.log), catalog.ColdPath(t.log)}
	for _, e := range entries {
		// A repair in the trash has left its lock, and that of the place is held.
		if name := e.Name(); name != originName && name != t.log && name != catalog.LockPath(t.log) {
			names = append(names, name)
			if name != catalog.IndexPath(t.log) && name != catalog.DamagedPath(t.log) {
				targets = append(targets, name)
			}
		}
	}
	for _, name := range targets {
		if _, err := m.opts.FS.Lstat(filepath.Join(dir, name)); err == nil {
			return nil, fmt.Errorf("%s is in the way of %s: move one of them elsewhere: %w",
				filepath.Join(dir, name), filepath.Join(t.Dir, name), fs.ErrExist)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return append(names, t.log), nil
}

// joinDamaged appends the damaged bytes in the trash to those that are at the place
// already: a removal that was killed left them there, and a repair in the trash made
// more. It returns what there is to move besides.
func (m *Manager) joinDamaged(t Trashed, dir string, names []string) ([]string, error) {
	name := catalog.DamagedPath(t.log)
	if !slices.Contains(names, name) || !there(m.opts.FS, filepath.Join(dir, name)) {
		return names, nil
	}
	from, err := m.opts.FS.OpenFile(filepath.Join(t.Dir, name), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if err := joinDamaged(m.opts.FS, from, filepath.Join(dir, name)); err != nil {
		return nil, err
	}
	if err := m.opts.FS.Remove(filepath.Join(t.Dir, name)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == name }), nil
}

// giveBlobsBack undoes keepBlobs: another program that shares the home sees the
// session and those of its subagents again, and looks for blobs in one place only.
func (m *Manager) giveBlobsBack(ctx context.Context, dir string) error {
	foreign, err := catalog.Foreign(m.opts.FS, m.home)
	if err != nil || !foreign {
		return err
	}
	release, err := m.LeaseBlobs()
	if err != nil {
		return err
	}
	defer release()
	return m.eachLog(dir, func(path string) error {
		st, err := load(m.opts.FS, m.blobs, path)
		if err != nil || st.none {
			return err
		}
		defer st.close()
		var refs []blobref.Ref
		err = eachForward(ctx, st.src, st.end, st.src.size, func(line []byte, _ int64) bool {
			refs = append(refs, persist.Refs(line)...)
			return true
		})
		for _, ref := range refs {
			if err == nil {
				err = m.giveBack(ctx, ref)
			}
		}
		if err != nil {
			return fmt.Errorf("giving back the blobs of %s: %w", path, err)
		}
		return nil
	})
}

func (m *Manager) giveBack(ctx context.Context, ref blobref.Ref) error {
	data, err := m.blobs.kept.Get(ctx, ref)
	switch {
	case errors.Is(err, blobstore.ErrNotFound), errors.Is(err, blobstore.ErrCorrupt):
		return nil
	case err != nil:
		return err
	}
	return m.blobs.store.Set(ctx, ref, data)
}

// DeleteTrashed deletes a directory of the trash for good. It is gone with one
// rename; what a killed process leaves behind that is a temporary of the trash.
func (m *Manager) DeleteTrashed(ctx context.Context, dir string) error {
	trash := catalog.TrashDir(m.home)
	if filepath.Dir(dir) != trash {
		return fmt.Errorf("deleting %s: it is not in the trash", dir)
	}
	err := m.withTrash(ctx, func() error {
		gone := filepath.Join(trash, ".tmp-"+strconv.FormatUint(rand.Uint64(), 36))
		if err := m.opts.FS.Rename(dir, gone); err != nil {
			return err
		}
		return durable.RemoveAll(m.opts.FS, gone)
	})
	if err != nil {
		return fmt.Errorf("deleting %s from the trash: %w", dir, err)
	}
	return nil
}
