package localdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Refs yields the reference of every name that is a blob's, in their order, without
// looking at what stands there. A directory that is not there holds no blobs.
func (s *Store) Refs(ctx context.Context) iter.Seq2[blobref.Ref, error] {
	return func(yield func(blobref.Ref, error) bool) {
		entries, err := s.fsys.ReadDir(s.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(blobref.Ref{}, fmt.Errorf("listing blobs: %w", err))
			return
		}
		for _, e := range entries {
			ref, err := blobref.ParseHex(e.Name())
			if err != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield(blobref.Ref{}, fmt.Errorf("listing blobs: %w", err))
				return
			}
			if !yield(ref, nil) {
				return
			}
		}
	}
}

// Walk yields every blob, unverified, in the order of the references. Names that
// are no blob's are passed over; something else than a regular file under a
// blob's name is yielded as an error, and the walk goes on. A directory that is
// not there holds no blobs.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		for ref, err := range s.Refs(ctx) {
			if err != nil {
				yield(blobstore.Info{}, err)
				return
			}
			info, err := s.stat(ref)
			switch {
			case errors.Is(err, blobstore.ErrNotFound):
				continue // deleted meanwhile
			case err != nil:
				info, err = blobstore.Info{Ref: ref}, fmt.Errorf("listing blobs: %w", err)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// Delete removes the blob's file. Hard links that oh-my-pi made to it stay, and so
// does what was moved aside as corrupt.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	if err := s.delete(ref); err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	return nil
}

func (s *Store) delete(ref blobref.Ref) error {
	if _, err := s.stat(ref); err != nil {
		return err
	}
	err := s.fsys.Remove(s.path(ref))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return blobstore.ErrNotFound
	case err != nil:
		return err
	case s.opts.Sync:
		return s.fsys.SyncDir(s.dir)
	}
	return nil
}

// Sweep removes temporaries that are older than age, which only a crash leaves,
// and returns how many. An age below the longest Put would remove what is being
// written: a day is a good one.
func (s *Store) Sweep(ctx context.Context, age time.Duration) (int, error) {
	entries, err := s.fsys.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweeping blob directory: %w", err)
	}
	oldest, removed := time.Now().Add(-age), 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return removed, fmt.Errorf("sweeping blob directory: %w", err)
		}
		path := filepath.Join(s.dir, e.Name())
		id, err := s.fsys.Identify(path)
		if err != nil || !regular(id) || time.Unix(0, id.ModTime).After(oldest) {
			continue
		}
		if err := s.fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("sweeping blob directory: %w", err)
		}
		removed++
	}
	return removed, nil
}
