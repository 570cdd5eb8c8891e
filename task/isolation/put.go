package isolation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

// tempName is where the new content of a file waits beside it. The merge that comes behind one that was killed uses it up.
func tempName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(filepath.Dir(path), ".tmp-agentrun-merge-"+hex.EncodeToString(sum[:6]))
}

// put puts the new contents in the place of the old ones: all of them, or none.
func (g *merging) put(ctx context.Context) (err error) {
	var work []*merge
	var paths []string
	for _, f := range g.files {
		if f.action != Already {
			work = append(work, f)
			paths = append(paths, filepath.Join(g.Dir, f.path))
		} else if err := g.fsRemove(tempName(filepath.Join(g.Dir, f.path))); err != nil {
			return err
		}
	}
	if g.Before != nil && len(work) > 0 {
		if err := g.Before(ctx, paths); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil || g.conflicts() {
			for _, undo := range slices.Backward(g.undone) {
				err = errors.Join(err, undo())
			}
		}
	}()
	// What may fail for want of room comes first, while nothing has changed.
	for _, f := range work {
		if err := g.prepare(f); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, deleted := range []bool{true, false} { // a directory may come where a file was
		for _, f := range work {
			if (f.action == Deleted) != deleted {
				continue
			}
			if err := g.place(f); err != nil || f.action == Conflict {
				return err
			}
		}
	}
	for _, f := range work {
		if err := g.syncAbove(filepath.Join(g.Dir, f.path)); err != nil {
			return err
		}
	}
	if g.After != nil && len(work) > 0 {
		return g.After(context.WithoutCancel(ctx), paths)
	}
	return nil
}

func (g *merging) syncAbove(path string) error {
	dir := filepath.Dir(path)
	if err := g.FS.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !isNotDir(err) {
		return err
	}
	return nil
}

func (g *merging) fsRemove(name string) error {
	if err := g.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !isNotDir(err) {
		return err
	}
	return nil
}

// old is where what stood under a path is kept until the end of the merge.
func (g *merging) old(f *merge) string { return filepath.Join(g.Scratch, "old", f.path) }

// prepare keeps what is there, and writes what is to come beside it. Where directories are missing, it waits in the scratch
// directory instead, if that is on the same file system.
func (g *merging) prepare(f *merge) error {
	target := filepath.Join(g.Dir, f.path)
	if f.current != (version{}) {
		if err := copyFile(g.FS, target, g.old(f), f.current.mode); err != nil {
			return err
		}
	}
	if f.action == Deleted {
		return nil
	}
	if err := g.makeDirs(filepath.Dir(target)); err != nil {
		if isNotDir(err) || errors.Is(err, fs.ErrExist) {
			return nil // a file is in the way that the patch deletes: place makes it
		}
		return err
	}
	return g.writeTemp(f)
}

// writeTemp writes what is to come beside its place.
func (g *merging) writeTemp(f *merge) error {
	target := filepath.Join(g.Dir, f.path)
	temp := tempName(target)
	if err := g.fsRemove(temp); err != nil {
		return err
	}
	made := filepath.Join(g.tree(), f.path)
	mode := f.new.mode
	if mode == "" || f.action == Merged && f.old.mode == f.new.mode {
		mode = f.current.mode
	}
	g.undone = append(g.undone, func() error { return g.fsRemove(temp) })
	if err := copyFile(g.FS, made, temp, mode); err != nil {
		return err
	}
	f.temp = temp
	if mode == modeLink {
		return nil
	}
	perm := 0o666 &^ g.mask
	if f.current.mode == modeFile || f.current.mode == modeExec {
		perm = fs.FileMode(f.id.Mode) & 0o777
	}
	if perm &^= 0o111; mode == modeExec {
		perm |= (perm >> 2) & 0o111
	}
	file, err := g.FS.OpenFile(temp, 2, 0) // for reading and writing
	if err != nil {
		return err
	}
	err = errors.Join(file.Chmod(perm), file.Sync())
	return errors.Join(err, file.Close())
}

// makeDirs makes the directories above a file, and notes them.
func (g *merging) makeDirs(dir string) error {
	err := g.FS.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err = g.makeDirs(filepath.Dir(dir)); err == nil {
			err = g.FS.Mkdir(dir, 0o777)
		}
	}
	if err == nil {
		g.undone = append(g.undone, func() error {
			_ = g.FS.Remove(dir) // unless somebody else put something there
			return nil
		})
		return g.FS.SyncDir(filepath.Dir(dir))
	}
	if errors.Is(err, fs.ErrExist) {
		if info, lerr := g.FS.Lstat(dir); lerr == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// place puts one file where it belongs, unless somebody has changed what is there meanwhile.
func (g *merging) place(f *merge) error {
	target := filepath.Join(g.Dir, f.path)
	id, err := g.FS.Identify(target)
	there := err == nil && id.Mode&0o170000 != 0o040000
	if was := f.current != (version{}); there != was || was && id != f.id {
		f.action, f.reason = Conflict, "somebody changed it meanwhile"
		return nil
	}
	if f.action == Deleted {
		g.undone = append(g.undone, func() error { return g.bringBack(f) })
		if err := g.FS.Remove(target); err != nil {
			return err
		}
		for dir := filepath.Dir(target); dir != g.Dir; dir = filepath.Dir(dir) {
			if !emptyDir(dir) || g.FS.Remove(dir) != nil {
				break
			}
		}
		return nil
	}
	if f.temp == "" {
		if err := g.makeDirs(filepath.Dir(target)); err != nil {
			return err
		}
		if err := g.writeTemp(f); err != nil {
			return err
		}
	}
	if f.current == (version{}) {
		// All that was in a directory here was deleted before.
		g.undone = append(g.undone, func() error { return g.takeBack(f) })
		return g.FS.RenameNoReplace(f.temp, target)
	}
	g.undone = append(g.undone, func() error { return g.bringBack(f) })
	return g.FS.Rename(f.temp, target)
}

// takeBack removes what was put where nothing was.
func (g *merging) takeBack(f *merge) error {
	if _, err := g.FS.Lstat(f.temp); err == nil {
		return nil // it was not put there
	}
	return g.fsRemove(filepath.Join(g.Dir, f.path))
}

// bringBack puts what stood there in its place again.
func (g *merging) bringBack(f *merge) error {
	target := filepath.Join(g.Dir, f.path)
	if id, err := g.FS.Identify(target); err == nil && id == f.id {
		return nil
	}
	if err := mkdirs(g.FS, filepath.Dir(target)); err != nil {
		return err
	}
	temp := tempName(target)
	if err := g.fsRemove(temp); err != nil {
		return err
	}
	if err := copyFile(g.FS, g.old(f), temp, f.current.mode); err != nil {
		return err
	}
	if f.current.mode != modeLink {
		file, err := g.FS.OpenFile(temp, 2, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Chmod(fs.FileMode(f.id.Mode)&0o777), file.Sync(), file.Close()); err != nil {
			return err
		}
	}
	return g.FS.Rename(temp, target)
}
