package session

import (
	"encoding/json"
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
	lock *durable.Lock
	once sync.Once
}

// holder is what a driver writes into the lease file, for the one who finds it
// taken.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// Drive takes the driver lease of the session. It does not wait: when another
// process, or another Session of this one, has it, the error is a *LockedError.
func (s *Session) Drive() (*Driver, error) {
	if s.readOnly {
		return nil, fmt.Errorf("driving %s: it was opened for reading: %w", s.Path(), ErrReadOnly)
	}
	if err := s.manager.makeDir(filepath.Dir(s.Path())); err != nil {
		return nil, fmt.Errorf("driving %s: %w", s.Path(), err)
	}
	lock, err := durable.OpenLock(s.fs, catalog.DriverPath(s.Path()))
	if err != nil {
		return nil, fmt.Errorf("driving %s: %w", s.Path(), err)
	}
	ok, err := lock.TryLock()
	if ok && err == nil {
		err = s.sign(lock.File())
	}
	switch {
	case err != nil:
		lock.Close()
		return nil, fmt.Errorf("driving %s: %w", s.Path(), err)
	case !ok:
		defer lock.Close()
		return nil, s.lockedBy(lock.File())
	}
	return &Driver{lock: lock}, nil
}

func (s *Session) sign(f durable.File) error {
	host, _ := os.Hostname()
	data, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Since: s.now().UTC()})
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(data)))
}

func (s *Session) lockedBy(f durable.File) error {
	e := &LockedError{Path: s.Path(), Host: "an unknown host"}
	var h holder
	data := make([]byte, 4096)
	n, err := f.ReadAt(data, 0)
	if (err == nil || err == io.EOF) && json.Unmarshal(data[:n], &h) == nil {
		e.PID, e.Host, e.Since = h.PID, h.Host, h.Since
	}
	return e
}

// Close gives the lease back. A second Close does nothing.
func (d *Driver) Close() error {
	var err error
	d.once.Do(func() { err = d.lock.Close() })
	return err
}
