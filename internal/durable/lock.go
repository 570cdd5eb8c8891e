package durable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLockTimeout is returned by Lock when others held the lock for the whole
// wait.
var ErrLockTimeout = errors.New("lock is held by another process")

// Lock is an exclusive lock on a file of its own, by flock(2). The kernel frees
// it when the process dies. A Lock belongs to one holder: it is not safe for
// concurrent use, and two Locks on one file exclude each other within a process
// too.
type Lock struct {
	f    File
	held bool
}

// OpenLock opens the lock file name and makes it when it is not there.
func OpenLock(fsys FS, name string) (*Lock, error) {
	fsys = or(fsys)
	// Without O_CREATE first: only the first process ever pays for a create, and
	// a lock that exists can be taken on a full disk.
	lock, err := OpenExistingLock(fsys, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return lock, err
	}
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, FilePerm)
	if err != nil {
		return nil, fmt.Errorf("opening lock file: %w", err)
	}
	return &Lock{f: f}, nil
}

// OpenExistingLock is OpenLock for a lock file that somebody else has to have made;
// the error of one that is not there matches fs.ErrNotExist.
func OpenExistingLock(fsys FS, name string) (*Lock, error) {
	f, err := or(fsys).OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening lock file: %w", err)
	}
	return &Lock{f: f}, nil
}

// Locked reports whether somebody holds the lock of a file, which need not be there and is only read, so that it may be
// asked on a disk that nobody can write to. For the moment that it takes, it holds the lock itself.
func Locked(fsys FS, name string) (bool, error) {
	f, err := or(fsys).OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening lock file: %w", err)
	}
	l := &Lock{f: f}
	free, err := l.TryLock()
	return !free, errors.Join(err, l.Close())
}

// File is the lock file, for a holder that writes who it is.
func (l *Lock) File() File { return l.f }

// TryLock takes the lock if nobody has it.
func (l *Lock) TryLock() (bool, error) {
	for {
		switch err := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			l.held = true
			return true, nil
		case unix.EWOULDBLOCK:
			return false, nil
		case unix.EINTR:
		default:
			return false, fmt.Errorf("locking %s: %w", l.f.Name(), err)
		}
	}
}

// Waiting polls: flock(2) has no timeout, and a blocked call could not be
// cancelled.
const (
	pollFirst = 100 * time.Microsecond
	pollMax   = 10 * time.Millisecond
)

// Lock takes the lock and waits for it up to wait. It returns ErrLockTimeout
// after that, and the context's error when it is cancelled first; in both cases
// the lock is not held.
func (l *Lock) Lock(ctx context.Context, wait time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("locking %s: %w", l.f.Name(), err)
	}
	if ok, err := l.TryLock(); ok || err != nil {
		return err
	}
	deadline := time.Now().Add(wait)
	pause := pollFirst
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("locking %s: %w", l.f.Name(), ctx.Err())
		case <-timer.C:
		}
		if ok, err := l.TryLock(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("locking %s: waited %s: %w", l.f.Name(), wait, ErrLockTimeout)
		}
		pause = min(pause*2, pollMax)
		timer.Reset(pause)
	}
}

// Unlock gives the lock back.
func (l *Lock) Unlock() error {
	if !l.held {
		return nil
	}
	l.held = false
	if err := unix.Flock(int(l.f.Fd()), unix.LOCK_UN); err != nil {
		return fmt.Errorf("unlocking %s: %w", l.f.Name(), err)
	}
	return nil
}

// Close frees the lock and closes its file. The file stays: removing it would
// let two holders lock two files of one name.
func (l *Lock) Close() error {
	// Unlocked by hand first: a child between its fork and its exec still has the
	// descriptor, and a closed lock would stay taken until it lets go.
	return errors.Join(l.Unlock(), l.f.Close())
}
