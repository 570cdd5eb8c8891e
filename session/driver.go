package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// Driver is the right to run an agent loop over a session, held until Close or
// the death of the process. Single appends need no Driver.
type Driver struct {
	mu   sync.Mutex    // guards lock
	lock *durable.Lock // nil after Close
}

// holder is what a driver writes into the lease file, for the one who finds it
// taken.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// Drive takes the driver lease of the session. It waits for nobody: when another
// process, or another Session of this one, has it, the error is a *LockedError.
func (s *Session) Drive() (*Driver, error) {
	if s.readOnly {
		return nil, fmt.Errorf("driving %s: it was opened for reading: %w", s.Path(), ErrReadOnly)
	}
	for try := 0; ; try++ {
		path := s.Path()
		if err := s.manager.makeDir(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("driving %s: %w", path, err)
		}
		lock, err := drive(s.fs, path, s.now())
		if err != nil {
			return nil, err
		}
		// Who moves a session has the lease: now it stays. It may have gone before.
		if _, err := s.snapshot(context.Background()); err != nil && !errors.Is(err, ErrClosed) || s.Path() != path {
			lock.Close()
			if err == nil && try < maxReplaced {
				continue
			}
			return nil, fmt.Errorf("driving %s: %w", path, cmp.Or(err, ErrGone))
		}
		return &Driver{lock: lock}, nil
	}
}

// driverGrace is how long somebody may have the lease who only looks whether it is free.
const driverGrace = 5 * time.Millisecond

// Driven reports whether somebody, of whichever process, drives the session.
func (s *Session) Driven() (bool, error) {
	driven, err := durable.Locked(s.fs, catalog.DriverPath(s.Path()))
	if err != nil {
		return false, fmt.Errorf("looking who drives %s: %w", s.Path(), err)
	}
	return driven, nil
}

// EverDriven reports whether an agent loop has driven the log at path while it lay there. It opens no log, and costs little
// where many are listed. A log that was imported has not been driven until one goes on with it.
func (m *Manager) EverDriven(path string) bool {
	_, err := m.opts.FS.Lstat(catalog.DriverPath(path))
	return err == nil
}

// drive locks the lease file of the log at path.
func drive(fsys durable.FS, path string, now time.Time) (*durable.Lock, error) {
	lock, err := durable.OpenLock(fsys, catalog.DriverPath(path))
	if err != nil {
		return nil, fmt.Errorf("driving %s: %w", path, err)
	}
	err = lock.Lock(context.Background(), driverGrace)
	ok := !errors.Is(err, durable.ErrLockTimeout)
	if !ok {
		err = nil
	}
	if ok && err == nil {
		err = sign(lock.File(), now)
	}
	switch {
	case err != nil:
		lock.Close()
		return nil, fmt.Errorf("driving %s: %w", path, err)
	case !ok:
		defer lock.Close()
		return nil, lockedBy(path, lock.File())
	}
	return lock, nil
}

func sign(f durable.File, now time.Time) error {
	host, _ := os.Hostname()
	data, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Since: now.UTC()})
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(data)))
}

func lockedBy(path string, f durable.File) error {
	e := &LockedError{Path: path, Host: "an unknown host"}
	var h holder
	data := make([]byte, 4096)
	n, err := f.ReadAt(data, 0)
	if (err == nil || err == io.EOF) && json.Unmarshal(data[:n], &h) == nil {
		e.PID, e.Host, e.Since = h.PID, h.Host, h.Since
	}
	return e
}

// exchange takes the lease of the place that the session was moved to, and gives back
// that of the old one.
func (d *Driver) exchange(lock *durable.Lock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := lock
	if d.lock != nil {
		old, d.lock = d.lock, lock
	}
	old.Close()
}

// Close gives the lease back. A second Close does nothing.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	lock := d.lock
	d.lock = nil
	return lock.Close()
}
