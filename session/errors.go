package session

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors that callers decide by. Test with errors.Is.
var (
	// ErrReadOnly is returned by writing methods of a session that was opened
	// with View, or whose version is newer than this program's.
	ErrReadOnly = errors.New("session is read-only")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("session is closed")
	// ErrNoEntry is returned for an id that no entry of the session has.
	ErrNoEntry = errors.New("no such entry")
	// ErrNoImage is returned for an image that an entry does not have.
	ErrNoImage = errors.New("no such image")
	// ErrGone is returned when the session's file was deleted, or replaced by
	// something that is not this session.
	ErrGone = errors.New("session file is gone")
	// ErrLocked is matched by a *LockedError.
	ErrLocked = errors.New("session is driven by another process")
	// ErrNotSession is returned for a file whose first record is no session
	// header.
	ErrNotSession = errors.New("no session header")
	// ErrForeign is returned by Check and Repair for a transcript of Claude Code or
	// Codex: a file without a session header in which records of theirs stand and
	// none of a session. It is never changed.
	ErrForeign = errors.New("it is a transcript of Claude Code or Codex, which is only read and never changed; agentrun doctor FILE says what is wrong with it")
)

// PendingError says that entries were accepted and could not be written. They
// keep their ids and go to disk, in order, before the next entry that is
// appended, or with Session.Flush. Appending them again would write them twice.
type PendingError struct {
	IDs []string // every entry that waits, oldest first
	Err error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("%v; %s kept and will be written with the next append (%s)",
		e.Err, plural(len(e.IDs), "entry is", "entries are"), strings.Join(e.IDs, ", "))
}

func (e *PendingError) Unwrap() error { return e.Err }

// LockedError names who drives a session. It matches ErrLocked.
type LockedError struct {
	Path  string
	PID   int
	Host  string
	Since time.Time
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("session %s is driven by process %d on %s since %s; stop that process or work in a fork",
		e.Path, e.PID, e.Host, e.Since.Format(time.RFC3339))
}

func (e *LockedError) Is(target error) bool { return target == ErrLocked }

func plural(n int, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}
