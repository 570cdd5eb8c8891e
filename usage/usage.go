// Package usage says where the bytes of a home are, and keeps them within quotas.
//
// [Measure] reads what is there and is exact. A [Guard] is asked before bytes are
// kept and must cost next to nothing, so it works on estimates:
//
//   - The size of a session's log is known to whoever appends to it. What a session
//     keeps as artifacts is counted by a walk over its own directory when its first
//     output is kept, and again whenever as much again has been kept as an output
//     may overshoot (see below).
//   - The totals of a home are in <home>/usage.json, which every process adds to from
//     time to time and when it ends. They are counted anew, by a walk over the
//     directories, once a day, when the file is missing or unreadable, and before
//     anything is refused or warned of because of them. The file can be removed.
//
// So processes that write at the same time may overshoot a limit, each by a 256th of
// it, at least by 4 KiB and at most by 16 MiB; the nearer a limit is, the sooner each
// adds what it keeps. A process that is killed leaves uncounted what it wrote since it last added to
// the file, until the next count. Log entries that end something which began, as the
// end of a run does, are counted and never refused; neither is what repair writes.
//
// A file that is a hard link to another one, as a fork makes them, counts once for the
// home and for each session that has it. A reflink counts as a copy everywhere: no
// size of a file tells of it.
//
// With no limit configured nothing is counted, read or written.
//
// What is refused was not accepted; what was accepted is never touched. The error
// matches [ErrQuota] and says how much of what is used up, and what to do.
//
// A Guard is safe for concurrent use by goroutines, and any number of processes may
// guard one home.
package usage

import (
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/outputsink"
)

// Class is what bytes are kept for.
type Class string

const (
	Log       Class = "log"       // session logs, with the damaged bytes kept beside them
	Artifacts Class = "artifacts" // directories beside sessions: outputs, what agents handed back, their sessions
	Blobs     Class = "blobs"     // images and long strings
	Indexes   Class = "indexes"   // what can be rebuilt: indexes, caches, the search database
	Trash     Class = "trash"     // removed sessions
	Other     Class = "other"     // locks, temporaries and what agentrun does not know
)

// Scope says whose quota it is.
type Scope string

const (
	OfSession Scope = "session"
	OfHome    Scope = "home"
)

// ErrQuota is matched by every refusal of a [Guard].
var ErrQuota = errors.New("no room left in a quota")

// Limit is a limit, and how far it is used up.
type Limit struct {
	Scope Scope `json:"scope"`
	Class Class `json:"class"`
	Used  int64 `json:"used"`  // bytes
	Limit int64 `json:"limit"` // bytes
}

func (l Limit) String() string {
	return fmt.Sprintf("the quota for the %s of this %s: %s of %s are used",
		l.Class, l.Scope, outputsink.FormatBytes(l.Used), outputsink.FormatBytes(l.Limit))
}

// QuotaError is a refusal. It matches [ErrQuota].
type QuotaError struct {
	Limit
	Need int64  // bytes that were asked for, all or none; 0 when a part was granted
	Path string // of the settings
}

func (e *QuotaError) Error() string {
	room := "no room left in"
	if e.Need > 0 {
		room = "no room for " + outputsink.FormatBytes(e.Need) + " more in"
	}
	return fmt.Sprintf("%s %v; free space (agentrun sessions du shows where it is) or raise quota.%s.%s in %s",
		room, e.Limit, e.Scope, e.Class, e.Path)
}

func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// of returns the limit of a class, 0 for none.
func of(l config.Limits, c Class) int64 {
	switch c {
	case Log:
		return int64(l.Log)
	case Artifacts:
		return int64(l.Artifacts)
	case Blobs:
		return int64(l.Blobs)
	}
	return 0
}
