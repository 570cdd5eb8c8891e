package localdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// lockWait is how long a call waits for another that moves a corrupt file.
const lockWait = 10 * time.Second

// setAside is called with the open file f that was found under the name of ref
// and does not hold its bytes, and moves it to .corrupt. It returns errChanged,
// and moves nothing, when the name stands for another file by now or the bytes
// are right at a second look. Where it cannot move the file the error matches
// ErrCorrupt. In a directory that is not ours it moves nothing: errNotOurs.
func (s *Store) setAside(ctx context.Context, ref blobref.Ref, f durable.File) error {
	if ours, err := s.ours(); err != nil {
		return err
	} else if !ours {
		return s.leave(ctx, ref, f)
	}
	err := s.withCorruptLock(ctx, func() error { return s.moveAside(ctx, ref, f) })
	if err == nil || errors.Is(err, errChanged) || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w (%s could not be moved aside: %w)", blobstore.ErrCorrupt, s.path(ref), err)
}

// errNotOurs says that a file has other bytes than those of its name, in a directory that
// another program made: they may mean something to that program.
var errNotOurs = errors.New("the directory is another program's")

// leave is setAside for a directory that is not ours.
func (s *Store) leave(ctx context.Context, ref blobref.Ref, f durable.File) error {
	id, err := f.Identify()
	if err != nil {
		return err
	}
	good, err := verify(ctx, f, id.Size, ref)
	switch {
	case err != nil:
		return err
	case good:
		return errChanged // another program was rewriting it in place
	}
	return errNotOurs
}

func (s *Store) moveAside(ctx context.Context, ref blobref.Ref, f durable.File) error {
	path, aside := s.path(ref), s.corruptPath(ref)
	judged, err := f.Identify()
	if err != nil {
		return err
	}
	named, err := s.fsys.Identify(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !named.SameFile(judged) {
		return errChanged // healed or deleted by another
	}
	if err != nil {
		return err
	}
	good, err := verify(ctx, f, judged.Size, ref)
	if err != nil {
		return err
	}
	if good {
		return errChanged // another program was rewriting it in place
	}
	if err := s.fsys.Rename(path, aside); err != nil {
		return err
	}
	// A delete and a publish may have come between the look and the rename:
	// neither takes the lock. Then a good file was moved, and goes back.
	if moved, err := s.fsys.Identify(aside); err == nil && !moved.SameFile(judged) {
		if err := s.fsys.RenameNoReplace(aside, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return errChanged
	}
	return nil
}

// takeBack is called when ref has no file. A file that was moved aside while
// another program was rewriting it in place may have been completed since: then
// it gets its name back, and errChanged says to look again. Otherwise the error
// is ErrNotFound.
func (s *Store) takeBack(ctx context.Context, ref blobref.Ref) error {
	if s.opts.Mode == blobstore.Opaque {
		return blobstore.ErrNotFound
	}
	aside := s.corruptPath(ref)
	f, err := s.fsys.OpenFile(aside, os.O_RDONLY, 0)
	if err != nil {
		return blobstore.ErrNotFound
	}
	defer f.Close()
	id, err := f.Identify()
	if err != nil {
		return err
	}
	good, err := verify(ctx, f, id.Size, ref)
	if err == nil && good {
		good, err = s.ours()
	}
	if err != nil {
		return err
	}
	if good {
		err = s.withCorruptLock(ctx, func() error {
			if named, err := s.fsys.Identify(aside); err != nil || !named.SameFile(id) {
				return errChanged
			}
			err := s.fsys.RenameNoReplace(aside, s.path(ref))
			if err == nil || errors.Is(err, fs.ErrExist) {
				return errChanged
			}
			return err
		})
		if errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("%w (what was under its name did not hash to it and is kept as %s)", blobstore.ErrNotFound, aside)
}

// withCorruptLock runs do while no other process moves files into or out of
// .corrupt.
func (s *Store) withCorruptLock(ctx context.Context, do func() error) error {
	dir := filepath.Join(s.dir, corruptDir)
	if err := s.makeOwn(dir); err != nil {
		return err
	}
	lock, err := durable.OpenLock(s.fsys, filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lock.Lock(ctx, lockWait); err != nil {
		return err
	}
	return do()
}
