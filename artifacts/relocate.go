package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// Locator tells where the artifact directory of a session is, which may be moved
// while a Dir is open.
type Locator interface {
	// LocateArtifacts returns where the directory is now. settled is false while
	// somebody is moving it; with wait the call waits for the end of that.
	LocateArtifacts(ctx context.Context, wait bool) (path string, settled bool, err error)
}

// errMoved says that the directory that was locked is not at its path any more.
var errMoved = errors.New("the artifact directory is being moved")

// maxMoves is how often a directory that is moved is looked for.
const maxMoves = 16

// locate asks where the directory is, and goes there.
func (d *Dir) locate(ctx context.Context) error {
	if d.opt.Where == nil {
		return nil
	}
	path, _, err := d.opt.Where.LocateArtifacts(ctx, true)
	if err != nil {
		return err
	}
	d.follow(path)
	return nil
}

func (d *Dir) follow(path string) {
	if path != "" && path != d.Path() {
		d.place.Store(&path)
		d.published.Store(false)
	}
}

// stays reports whether the directory that lock is in is still where the session has
// its artifacts. Whoever moves it takes this lock after it has said so in a journal:
// when it has said nothing yet, the directory stays as long as the lock is held.
func (d *Dir) stays(ctx context.Context, lock *durable.Lock) error {
	in, err := lock.File().Identify()
	if err != nil {
		return err
	}
	at, err := d.fs.Identify(d.index("lock"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !at.SameFile(in) {
		return errMoved
	}
	if d.opt.Where == nil {
		return nil
	}
	path, settled, err := d.opt.Where.LocateArtifacts(ctx, false)
	if err == nil && (!settled || path != d.Path()) {
		err = errMoved
	}
	return err
}

// at makes sure that the directory is where the file of artifact f is.
func (f *File) at(ctx context.Context) error {
	here, err := f.f.Identify()
	if err != nil {
		return err
	}
	name := logName(f.id, f.side.Tool)
	for range maxMoves {
		if at, err := f.dir.fs.Identify(f.dir.join(name)); err == nil && at.SameFile(here) {
			return nil
		}
		if err := f.dir.locate(ctx); err != nil {
			return err
		}
	}
	if at, err := f.dir.fs.Identify(f.dir.join(name)); err != nil || !at.SameFile(here) {
		return goneError(f.dir.join(name))
	}
	return nil
}

// goneError is the path of a file that its directory does not have any more. It is fs.ErrNotExist.
type goneError string

func (e goneError) Error() string {
	return string(e) + " is not there any more: somebody moved or removed it"
}

func (e goneError) Is(target error) bool { return target == fs.ErrNotExist }

// Hold takes the lock of the artifact directory at path, so that no number or id is
// taken there until release is called. The directory must exist.
func Hold(ctx context.Context, fsys durable.FS, path string) (release func(), err error) {
	l, err := Open(path, Options{FS: fsys}).hold(ctx)
	if err != nil {
		return nil, fmt.Errorf("locking the artifacts in %s: %w", path, err)
	}
	return func() { _ = l.Close() }, nil // the kernel frees it with the descriptor
}

// BusyError names an artifact that somebody is writing.
type BusyError struct{ Info }

func (e *BusyError) Error() string {
	return fmt.Sprintf("artifact %d is being written (%s): try again when that has ended", e.ID, e.Note)
}

// Idle returns a *BusyError when an artifact in the directory at path is being
// written.
func Idle(ctx context.Context, fsys durable.FS, path string) error {
	infos, err := Open(path, Options{FS: fsys}).List(ctx)
	for _, info := range infos {
		if info.State == Writing {
			return &BusyError{info}
		}
	}
	return err
}

// ClashError says that two directories cannot become one.
type ClashError struct{ A, B string }

func (e *ClashError) Error() string {
	return fmt.Sprintf("%s and %s have the same id: rename or remove one of them; nothing was changed", e.A, e.B)
}

// Merges reports whether the directory from can be merged into the directory into:
// no number, agent or other name is in both, what can be rebuilt aside. The error is
// a *ClashError with a name of each.
func Merges(fsys durable.FS, from, into string) error {
	a, err := ids(fsys, from)
	if err != nil {
		return err
	}
	b, err := ids(fsys, into)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(a)) {
		if name, both := b[id]; both {
			return &ClashError{filepath.Join(from, a[id]), filepath.Join(into, name)}
		}
	}
	return nil
}

// ids maps what must be unique in a directory to the first file that has it.
func ids(fsys durable.FS, dir string) (map[string]string, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	found := make(map[string]string, len(entries))
	for _, e := range entries {
		name := e.Name()
		if name == indexDir || strings.HasPrefix(name, ".tmp-") {
			continue
		}
		id := "name " + name
		if n, ok := parseNumbered(name); ok {
			id = fmt.Sprintf("number %d", n)
		} else if agent, _, _, ok := parseAgentFile(name); ok {
			id = "agent " + agent.String()
		} else if agent, err := ParseAgentID(name); err == nil && e.IsDir() {
			id = "agent " + agent.String()
		}
		if have, ok := found[id]; !ok || strings.HasPrefix(have, ".") {
			found[id] = name // rather the artifact than its provenance
		}
	}
	return found, nil
}

// Merge renames everything in from into the directory into, on the same file system,
// and removes from. The locks of both are held and Merges found no clash. What a
// crash has left is merged by doing it again. moved are the names that were renamed,
// also when there is an error.
func Merge(fsys durable.FS, from, into string) (moved []string, err error) {
	entries, err := fsys.ReadDir(from)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", from, err)
	}
	for _, e := range entries {
		if e.Name() == indexDir {
			continue
		}
		if err := fsys.RenameNoReplace(filepath.Join(from, e.Name()), filepath.Join(into, e.Name())); err != nil {
			return moved, fmt.Errorf("merging %s into %s: %w", from, into, err)
		}
		moved = append(moved, e.Name())
	}
	if err := mergeIndexes(fsys, from, into); err != nil {
		return moved, fmt.Errorf("merging %s into %s: %w", from, into, err)
	}
	return moved, nil
}

// mergeIndexes makes the counters of into those that are higher, and moves the line
// indexes, which are for files that have moved.
func mergeIndexes(fsys durable.FS, from, into string) error {
	a, b := Open(from, Options{FS: fsys}), Open(into, Options{FS: fsys})
	one, err := a.counters()
	if err != nil {
		return err
	}
	two, err := b.counters()
	if err != nil {
		return err
	}
	if most := (counters{max(one.Artifact, two.Artifact), max(one.Agent, two.Agent)}); most != two {
		data, err := json.Marshal(most)
		if err == nil {
			err = b.make(context.Background()) // it has nobody to ask
		}
		if err == nil {
			err = durable.WriteFile(fsys, b.index("next"), false, data)
		}
		if err != nil {
			return err
		}
	}
	entries, err := fsys.ReadDir(filepath.Join(from, indexDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); filepath.Ext(name) == ".idx" {
			_ = fsys.RenameNoReplace(a.index(name), b.index(name)) // it can be rebuilt
		}
	}
	return nil
}

// RemoveEmpty removes the directory at path if it holds nothing but what can be
// rebuilt, and reports whether it is gone.
func RemoveEmpty(fsys durable.FS, path string) (bool, error) {
	entries, err := fsys.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() != indexDir || !e.IsDir() {
			return false, nil
		}
	}
	index := filepath.Join(path, indexDir)
	if entries, err = fsys.ReadDir(index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, e := range entries {
		if err := fsys.Remove(filepath.Join(index, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	for _, dir := range []string{index, path} {
		if err := fsys.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}
