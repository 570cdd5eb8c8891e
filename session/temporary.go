package session

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/internal/durable"
)

// Temporary is a home of its own for sessions that nobody keeps: a run of a program that wants no session has its log and its
// artifacts there, and agent:// and artifact:// find them as long as it lives. Close removes it; what a crash leaves,
// [RemoveTemporaries] does.
type Temporary struct {
	*Manager
	fs   durable.FS
	lock *durable.Lock
}

// temporaryLock is behind the name of a temporary home in that of its lock, which is held while it is used.
const temporaryLock = ".lock"

// TemporaryPlace is the directory of a home for temporary ones, where gc looks for what a crash has left.
func TemporaryPlace(home string) string { return filepath.Join(home, "temporary") }

// OpenTemporary makes a temporary home in the directory place, which is made too and may hold many. Nothing of it survives a
// power cut for sure, and no list of homes has it.
func OpenTemporary(place string, o Options) (*Temporary, error) {
	if o.FS == nil {
		o.FS = durable.OS
	}
	if err := durable.MkdirAll(o.FS, place); err != nil {
		return nil, fmt.Errorf("making a temporary home: %w", err)
	}
	o.Homes, o.Durability = "", Flush
	for {
		dir := filepath.Join(place, uuid.NewString())
		lock, err := lockTemporary(o.FS, dir+temporaryLock)
		if err != nil {
			return nil, fmt.Errorf("making a temporary home: %w", err)
		}
		if lock == nil {
			continue // somebody removed it as a leftover before it was locked
		}
		t := &Temporary{fs: o.FS, lock: lock}
		if err = o.FS.Mkdir(dir, durable.DirPerm); err == nil {
			t.Manager, err = OpenManager(dir, o)
		}
		if err != nil {
			return nil, fmt.Errorf("making a temporary home: %w", errors.Join(err, t.remove(dir)))
		}
		return t, nil
	}
}

// lockTemporary makes a lock and takes it; nil when it is not there any more by then.
func lockTemporary(fsys durable.FS, name string) (*durable.Lock, error) {
	lock, err := durable.OpenLock(fsys, name)
	if err != nil {
		return nil, err
	}
	held, err := lock.TryLock()
	if err == nil && held {
		var mine, there durable.Identity
		if mine, err = lock.File().Identify(); err == nil {
			if there, err = fsys.Identify(name); err == nil && mine.SameFile(there) {
				return lock, nil
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return nil, errors.Join(err, lock.Close())
}

// Close removes the home with all that is in it. Its sessions must be closed.
func (t *Temporary) Close() error {
	if err := t.remove(t.Home()); err != nil {
		return fmt.Errorf("removing a temporary home: %w", err)
	}
	return nil
}

// remove removes the home, then its lock, of which no other home will have the name.
func (t *Temporary) remove(dir string) error {
	err := durable.RemoveAll(t.fs, dir)
	if err == nil {
		err = t.fs.Remove(dir + temporaryLock)
	}
	return errors.Join(err, t.lock.Close())
}

// RemoveTemporaries looks for temporary homes in a directory that nobody uses any more, and removes them with apply. It returns
// how many there are, and their bytes.
func RemoveTemporaries(place string, apply bool) (count int, bytes int64, err error) {
	entries, err := durable.OS.ReadDir(place)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("looking for temporary homes: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), temporaryLock)
		if !ok || uuid.Validate(id) != nil {
			continue
		}
		dir := filepath.Join(place, id)
		lock, lerr := lockLeft(dir + temporaryLock)
		if lerr != nil || lock == nil {
			err = errors.Join(err, lerr)
			continue
		}
		count++
		_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it counts for nothing
			}
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				bytes += info.Size()
			}
			return nil
		})
		t := &Temporary{fs: durable.OS, lock: lock}
		if apply {
			err = errors.Join(err, t.remove(dir))
		} else {
			err = errors.Join(err, lock.Close())
		}
	}
	return count, bytes, err
}

// lockLeft takes a lock that nobody holds; nil for another one.
func lockLeft(name string) (*durable.Lock, error) {
	lock, err := durable.OpenExistingLock(durable.OS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held, err := lock.TryLock()
	if err == nil && held {
		return lock, nil
	}
	return nil, errors.Join(err, lock.Close())
}
