package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// carryOut makes the steps of the move. When one fails, those before it are undone;
// when that fails too, the journal stays, and the next use of the home sees to it.
func (v *mover) carryOut(ctx context.Context) error {
	if v.j.From != v.j.To {
		_ = setForward(v.session.writer.lock, v.j.To) // a hint: previousSessionFiles says it too
	}
	err := v.forward(ctx)
	if err == nil {
		v.finish(ctx)
		return nil
	}
	if uerr := v.takeBack(); uerr != nil {
		v.stuck = true
		return fmt.Errorf("%w; and what was done could not be undone (%w): the next command that uses %s sees to it", err, uerr, v.home)
	}
	return v.abandon(err)
}

// forward brings the log and what belongs to it to the new place, from whatever step
// an earlier attempt has reached.
func (v *mover) forward(ctx context.Context) error {
	j := &v.j
	old, now := artifactsOf(j.From), artifactsOf(j.To)
	var err error
	switch {
	case j.Copied:
		if !j.Cross {
			err = v.place(old, now)
		}
		if err == nil {
			err = v.publish(ctx)
		}
	case j.From != j.To && there(v.fs, j.From):
		err = v.rename(j.From, j.To)
	}
	if err == nil {
		err = v.writeHeader()
	}
	if err == nil && j.From != j.To && !j.Copied {
		err = v.place(old, now)
	}
	if err == nil {
		err = v.fs.SyncDir(filepath.Dir(j.To))
	}
	if err == nil && j.From != j.To {
		err = v.fs.SyncDir(filepath.Dir(j.From))
	}
	return err
}

// publish puts the copies into place. The old log is withdrawn first, so that there
// is never one at either place: who waits to append to it finds it gone and follows.
func (v *mover) publish(ctx context.Context) error {
	j := &v.j
	for _, cold := range []bool{false, true} {
		staged, from, to := v.stagedLog(cold), j.From, j.To
		if cold {
			from, to = catalog.ColdPath(from), catalog.ColdPath(to)
		}
		if !there(v.fs, staged) {
			continue
		}
		if j.Cross {
			if err := v.place(filepath.Join(j.StagingDir(), moveArtifacts), artifactsOf(j.To)); err != nil {
				return err
			}
		}
		if there(v.fs, from) {
			if err := v.rename(from, j.WithdrawnPath()); err != nil {
				return err
			}
		}
		if !cold {
			if err := v.carryTail(staged); err != nil {
				return err
			}
		}
		return v.rename(staged, to)
	}
	return ctx.Err() // an earlier attempt has published them
}

// carryTail appends to the copy what a program without a lock has written to the log
// since it was copied.
func (v *mover) carryTail(staged string) error {
	old, err := v.fs.OpenFile(v.j.WithdrawnPath(), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	id, err := old.Identify()
	if err != nil || id.Size <= v.j.Size {
		return err
	}
	f, err := v.fs.OpenFile(staged, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(v.j.Written); err == nil { // of an earlier attempt
		if err = durable.Copy(&offsetWriter{f, v.j.Written}, old, v.j.Size, id.Size); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// writeHeader writes the new header line over the old one, unless it is there.
func (v *mover) writeHeader() error {
	h := v.j.Header
	if h == nil {
		return nil
	}
	f, err := v.fs.OpenFile(v.j.To, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	line := make([]byte, len(h.New))
	if _, err := f.ReadAt(line, h.At); err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	// A title given since is in a header of the new directory; a torn one is no header.
	if now, err := record.ParseHeader(line); err == nil && now.ID == v.j.ID && now.CWD == v.j.CWD && now.CRC != record.CRCMismatch {
		v.keepAge(f)
		return nil
	}
	v.undo = append(v.undo, func() error { return v.overwriteHeader(h.Old) })
	return v.overwriteHeader(h.New)
}

// overwriteHeader writes a line over the header of the log at its new place.
func (v *mover) overwriteHeader(line []byte) error {
	f, err := v.fs.OpenFile(v.j.To, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(line, v.j.Header.At); err == nil {
		v.keepAge(f)
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// keepAge makes f, the log whose header was written over, as old as it was: see age.go.
// When its size is another, somebody has appended meanwhile.
func (v *mover) keepAge(f durable.File) {
	if now, err := f.Identify(); err == nil && now.Size == v.j.Size && v.j.Modified != 0 {
		_ = setTime(f, v.j.Modified+aged)
	}
}

// place brings an artifact directory to its new place. One that is there already
// takes in what comes; Merges has said that it can.
func (v *mover) place(from, to string) error {
	if !there(v.fs, from) {
		return nil
	}
	if !there(v.fs, to) {
		return v.rename(from, to)
	}
	moved, err := artifacts.Merge(v.fs, from, to)
	v.undo = append(v.undo, func() error {
		var errs []error
		for _, name := range moved {
			errs = append(errs, v.fs.RenameNoReplace(filepath.Join(to, name), filepath.Join(from, name)))
		}
		return errors.Join(errs...)
	})
	return err
}

// rename is a step that can be undone.
func (v *mover) rename(from, to string) error {
	if err := v.fs.RenameNoReplace(from, to); err != nil {
		return err
	}
	v.undo = append(v.undo, func() error { return v.fs.RenameNoReplace(to, from) })
	return nil
}

// takeBack undoes the steps, the last one first, until one cannot be undone.
func (v *mover) takeBack() error {
	for len(v.undo) > 0 {
		last := len(v.undo) - 1
		if err := v.undo[last](); err != nil {
			return err
		}
		v.undo = v.undo[:last]
	}
	return errors.Join(v.fs.SyncDir(filepath.Dir(v.j.From)), v.fs.SyncDir(filepath.Dir(v.j.To)))
}

// finish removes what is left at the old place, and the journal. The session is
// whole at the new one: what fails is told, and done by the next use of the home.
func (v *mover) finish(ctx context.Context) {
	if err := v.clearOld(ctx); err != nil {
		v.report(Event{Kind: EventMove, Path: v.j.To, Err: fmt.Errorf("clearing up behind the move from %s: %w", v.j.From, err)})
	}
}

func (v *mover) clearOld(ctx context.Context) error {
	j := &v.j
	if j.From == j.To {
		return j.Remove(v.fs, v.home)
	}
	damaged := catalog.DamagedPath(j.From)
	if j.Cross {
		damaged = filepath.Join(j.StagingDir(), moveDamaged)
	}
	if err := v.placeDamaged(damaged); err != nil {
		return err
	}
	old := artifactsOf(j.From)
	if j.Cross {
		if err := v.removeCopied(ctx, old, artifactsOf(j.To)); err != nil {
			return err
		}
		if err := remove(v.fs, catalog.DamagedPath(j.From)); err != nil {
			return err
		}
	}
	if j.Copied {
		if err := remove(v.fs, catalog.IndexPath(j.From)); err != nil { // it was of the old file
			return err
		}
	} else if err := v.fs.Rename(catalog.IndexPath(j.From), catalog.IndexPath(j.To)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if err := remove(v.fs, catalog.IndexPath(j.From)); err != nil { // it can be rebuilt
			return err
		}
	}
	if there(v.fs, old) {
		if _, err := artifacts.RemoveEmpty(v.fs, old); err != nil {
			return err
		}
	}
	if j.Copied {
		if err := remove(v.fs, j.WithdrawnPath()); err != nil {
			return err
		}
		if err := durable.RemoveAll(v.fs, j.StagingDir()); err != nil {
			return err
		}
	}
	return j.Remove(v.fs, v.home)
}

// placeDamaged brings damaged bytes along. A file of that name at the new place is of
// an earlier stay there, and gets them appended.
func (v *mover) placeDamaged(from string) error {
	to := catalog.DamagedPath(v.j.To)
	err := v.fs.RenameNoReplace(from, to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		return errors.Join(v.fs.SyncDir(filepath.Dir(to)), v.fs.SyncDir(filepath.Dir(from)))
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	src, err := v.fs.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := joinDamaged(v.fs, src, to); err != nil {
		return err
	}
	return remove(v.fs, from)
}

// joinDamaged appends damaged bytes to those in the file to, durably, or changes nothing.
func joinDamaged(fsys durable.FS, src durable.File, to string) error {
	id, err := src.Identify()
	if err != nil {
		return err
	}
	// Not for appending: the kernel copies into no such file.
	dst, err := fsys.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	before, err := dst.Identify()
	if err == nil {
		if err = durable.Copy(&offsetWriter{dst, before.Size}, src, 0, id.Size); err == nil {
			err = dst.Sync()
		}
		if err != nil {
			err = errors.Join(err, dst.Truncate(before.Size))
		}
	}
	return errors.Join(err, dst.Close())
}

// holdArtifacts takes the locks of the artifact directories that there are, and
// refuses what could not be brought along.
func (v *mover) holdArtifacts(ctx context.Context) error {
	if v.j.From == v.j.To {
		return nil
	}
	var dirs []string
	for _, dir := range []string{artifactsOf(v.j.From), artifactsOf(v.j.To)} {
		id, err := v.fs.Identify(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if id.Mode&unix.S_IFMT != unix.S_IFDIR {
			return fmt.Errorf("%s is not a directory; move it away", dir)
		}
		release, err := artifacts.Hold(ctx, v.fs, dir)
		if err != nil {
			return err
		}
		v.held = append(v.held, release)
		dirs = append(dirs, dir)
	}
	switch {
	case len(dirs) == 2:
		if err := artifacts.Merges(v.fs, dirs[0], dirs[1]); err != nil {
			return err
		}
		fallthrough
	case len(dirs) == 1 && dirs[0] == artifactsOf(v.j.From):
		if v.j.Cross {
			return artifacts.Idle(ctx, v.fs, dirs[0])
		}
	}
	return nil
}

func artifactsOf(log string) string {
	dir, _ := catalog.ArtifactsDir(log)
	return dir
}

// there reports whether anything stands under name. Where that cannot be told, the
// step that follows says why.
func there(fsys durable.FS, name string) bool {
	_, err := fsys.Identify(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// remove removes a file that may be gone already.
func remove(fsys durable.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
