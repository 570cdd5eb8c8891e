package localdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// leaseDir holds a file for each writer with blobs that may not be named yet. It is
// locked as long as the writer lives and wants it to be, and its time stamp is not
// after the first of the blobs.
const leaseDir = ".leases"

// Lease keeps the collector from the blobs that are stored from now on, until it is
// closed or the process ends. The grace period alone does for who names a blob soon
// after storing it; a lease is for who can be held up in between, by a full disk or a
// long import.
type Lease struct {
	fsys durable.FS
	name string
	lock *durable.Lock
	once sync.Once
}

// NewLease takes a lease. Close it when what names the blobs is on the disk.
func (s *Store) NewLease() (*Lease, error) {
	l := &Lease{fsys: s.fsys}
	err := s.prepare()
	dir := filepath.Join(s.dir, leaseDir)
	if err == nil {
		err = s.makeOwn(dir)
	}
	if err == nil {
		l.name = filepath.Join(dir, strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(rand.Uint64(), 36))
		l.lock, err = durable.OpenLock(s.fsys, l.name)
	}
	if err == nil {
		// Nobody else locks it, but a collector looks whether it is locked.
		if err = l.lock.Lock(context.Background(), lockWait); err != nil {
			l.lock.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("taking a lease on %s: %w", s.dir, err)
	}
	return l, nil
}

// Close gives the lease back. A file that it cannot remove is one for the collector.
// A second Close does nothing.
func (l *Lease) Close() error {
	var err error
	l.once.Do(func() {
		_ = l.fsys.Remove(l.name)
		err = l.lock.Close()
	})
	return err
}

// makeOwn makes a directory of the store's own beside the blobs. A symbolic link in
// its place would lead out of the home.
func (s *Store) makeOwn(dir string) error {
	if err := s.fsys.Mkdir(dir, durable.DirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := s.fsys.Lstat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is no directory; remove it", dir)
	}
	return nil
}

// Leased returns when the oldest lease that is held was taken, and false when none
// is.
func (s *Store) Leased(ctx context.Context) (since time.Time, held bool, err error) {
	err = s.eachLease(ctx, func(_ string, lock *durable.Lock, id durable.Identity, free bool) error {
		if at := time.Unix(0, id.ModTime); !free && (!held || at.Before(since)) {
			since, held = at, true
		}
		return nil
	})
	return since, held, err
}

// StaleLeases counts the lease files from before that their writers left behind when
// they were killed; remove says whether to take them away.
func (s *Store) StaleLeases(ctx context.Context, before time.Time, remove bool) (count int, bytes int64, err error) {
	err = s.eachLease(ctx, func(name string, _ *durable.Lock, id durable.Identity, free bool) error {
		if !free || !time.Unix(0, id.ModTime).Before(before) {
			return nil
		}
		if remove {
			if err := s.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		count++
		bytes += id.Size
		return nil
	})
	return count, bytes, err
}

// eachLease calls do with every lease file; where it is free, while it is locked.
func (s *Store) eachLease(ctx context.Context, do func(name string, lock *durable.Lock, id durable.Identity, free bool) error) error {
	dir := filepath.Join(s.dir, leaseDir)
	entries, err := s.fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		err = s.lookAtLease(filepath.Join(dir, e.Name()), do)
	}
	if err != nil {
		return fmt.Errorf("looking at the leases of %s: %w", s.dir, err)
	}
	return nil
}

func (s *Store) lookAtLease(name string, do func(string, *durable.Lock, durable.Identity, bool) error) error {
	lock, err := durable.OpenExistingLock(s.fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	free, err := lock.TryLock()
	if err != nil {
		return err
	}
	id, err := lock.File().Identify()
	if err != nil {
		return err
	}
	return do(name, lock, id, free)
}
