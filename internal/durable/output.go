package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// outputPrefix is in the names of the temporaries of WriteOutput. The rest of such a
// name says nothing of what it will be called.
const outputPrefix = "agentrun-output"

// WriteOutput makes a file that a person asked for in a directory that is not ours:
// WriteFileFunc if it may replace one of that name, else WriteNewFunc, with sync. What
// a killed WriteOutput has left in that directory is removed first: its temporary is
// locked while it is at work, and free once it is dead. On a file system without locks
// leftovers stay.
func WriteOutput(fsys FS, name string, replace bool, write func(io.Writer) error) error {
	fsys = or(fsys)
	sweepOutputs(fsys, filepath.Dir(name))
	do := WriteNewTemp
	if replace {
		do = WriteFileTemp
	}
	const tries = 3
	for try := 1; ; try++ {
		var lock *os.File
		err := do(fsys, name, outputPrefix, true, func(w io.Writer) (err error) {
			if lock, err = lockOutput(w.(File)); err != nil {
				return err
			}
			return write(w)
		})
		if lock != nil {
			lock.Close()
		}
		if !errors.Is(err, errSwept) || try == tries {
			return err
		}
	}
}

// errSwept is returned for a temporary that another process took for a leftover, in
// the moment between its creation and its lock.
var errSwept = errors.New("another process removed the temporary file")

// lockOutput locks a temporary until the returned file is closed, which is to be after
// its rename. It is a second descriptor: the first one is closed before.
func lockOutput(f File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	lock := os.NewFile(uintptr(fd), f.Name())
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		// Nobody can take it for a leftover then: a sweeper has to get the lock.
		return lock, nil
	}
	id, err := f.Identify()
	if err == nil && id.Links == 0 {
		err = errSwept
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// sweepOutputs removes the temporaries of WriteOutput that nobody is at work on. What
// cannot be looked at or removed is only space.
func sweepOutputs(fsys FS, dir string) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type().IsRegular() && isOutputTemp(e.Name()) {
			_ = sweepOutput(fsys, filepath.Join(dir, e.Name()))
		}
	}
}

func sweepOutput(fsys FS, name string) error {
	lock, err := openLockReadOnly(fsys, name)
	if err != nil {
		return err
	}
	defer lock.Close()
	if ok, err := lock.TryLock(); !ok || err != nil {
		return err
	}
	held, err := lock.f.Identify()
	if err != nil {
		return err
	}
	if there, err := fsys.Identify(name); err != nil || !there.SameFile(held) {
		return errors.Join(err, fs.ErrNotExist)
	}
	return fsys.Remove(name)
}

// openLockReadOnly opens a file to lock it; flock(2) needs no right to write.
func openLockReadOnly(fsys FS, name string) (*Lock, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return &Lock{f: f}, nil
}

// isOutputTemp reports whether CreateTemp made the name for WriteOutput.
func isOutputTemp(name string) bool {
	random, ok := strings.CutPrefix(name, ".tmp-"+outputPrefix+"-")
	return ok && random != "" && len(random) <= 13 && strings.Trim(random, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}
