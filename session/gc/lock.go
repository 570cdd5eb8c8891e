package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// Locks of a collector in the home: ours, held with flock(2), and oh-my-pi 18's, a file
// that is there as long as its collector runs and that begins with its pid.
const (
	lockName    = "collector.lock"
	ompLockName = "gc.lock"
)

// LockedError means that another collector is at work on the home.
type LockedError struct {
	Home  string
	By    string // the program
	PID   int    // 0 when it is not known
	Host  string
	Since time.Time
}

func (e *LockedError) Error() string {
	who := e.By
	if e.PID != 0 {
		who += fmt.Sprintf(", process %d", e.PID)
	}
	if e.Host != "" {
		who += " on " + e.Host
	}
	if !e.Since.IsZero() {
		who += ", since " + e.Since.Local().Format("2006-01-02 15:04:05")
	}
	return fmt.Sprintf("%s is being collected by another process (%s): wait for it to end", e.Home, who)
}

// lockHolder is what a collector writes into its lock.
type lockHolder struct {
	process.ID
	Since time.Time `json:"since"`
}

// lock keeps other collectors away until unlock is called.
func (c *collector) lock(context.Context) (unlock func(), err error) {
	if _, err := c.FS.Lstat(c.home); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // there is nothing to collect, and nothing is made
	}
	lock, err := durable.OpenLock(c.FS, filepath.Join(c.home, lockName))
	if err != nil {
		return nil, err
	}
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = c.lockedBy(lock.File())
	}
	if err == nil {
		c.sign(lock.File())
	}
	release := func() {}
	if err == nil {
		release, err = c.lockOut()
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return func() { release(); lock.Close() }, nil
}

// sign says in the lock who holds it. A lock that is not signed holds as well, and a
// collection on a full disk is what frees it.
func (c *collector) sign(f durable.File) {
	data, err := json.Marshal(lockHolder{process.Self(), c.now.UTC()})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, _ = f.WriteAt(append(data, '\n'), 0)
	}
}

func (c *collector) lockedBy(f durable.File) error {
	e := &LockedError{Home: c.home, By: "agentrun"}
	var h lockHolder
	data := make([]byte, 4096)
	n, err := f.ReadAt(data, 0)
	if (err == nil || err == io.EOF) && json.Unmarshal(data[:n], &h) == nil {
		e.PID, e.Host, e.Since = h.PID, h.Host, h.Since
	}
	return e
}

// ompGrace is how long oh-my-pi believes a lock without a pid.
const ompGrace = 5 * time.Minute

// lockOut keeps oh-my-pi's collector out of a home that it uses: it moves sessions to
// its archive, and would do so while they are being looked for.
func (c *collector) lockOut() (release func(), err error) {
	nothing := func() {}
	if foreign, err := catalog.Foreign(c.FS, c.home); err != nil || !foreign {
		return nothing, err
	}
	name := filepath.Join(c.home, ompLockName)
	for range 2 {
		// It appears with its pid in it: one without counts for minutes after a kill.
		err := c.publishLock(name)
		if err == nil {
			return func() { _ = c.FS.Remove(name) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := c.breakLock(name); err != nil {
			return nil, err
		}
	}
	return nil, &LockedError{Home: c.home, By: "oh-my-pi"}
}

func (c *collector) publishLock(name string) error {
	f, err := durable.CreateTemp(c.FS, c.home, ompLockName)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d\n%s\n", process.Self().PID, c.now.UTC().Format("2006-01-02T15:04:05.000Z"))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = c.FS.RenameNoReplace(f.Name(), name)
	}
	if err != nil {
		_ = c.FS.Remove(f.Name()) // only space, and a collector's
	}
	return err
}

// breakLock removes oh-my-pi's lock when the process that made it is gone.
func (c *collector) breakLock(name string) error {
	data, err := durable.ReadFile(c.FS, name, 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	id, err := c.FS.Identify(name)
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	e := &LockedError{Home: c.home, By: "oh-my-pi", Since: time.Unix(0, id.ModTime)}
	if err == nil && pid > 0 {
		who := process.Self() // of this host and boot, as far as the file tells
		who.PID, who.PIDStart = pid, 0
		if e.PID = pid; who.Life() != process.Gone {
			return e
		}
	} else if c.now.Sub(e.Since) < ompGrace {
		return e
	}
	return c.FS.Remove(name)
}
