// Package process tells which process something was, and whether it still lives.
//
// Whoever writes into a file who works on it (a run, an artifact) writes an [ID].
// A reader, perhaps years later or on another machine that shares the directory,
// asks for its [Life]. The answer never takes a process for another one: a pid is
// given out again, so its start time goes with it, start times begin anew with
// each boot, so the boot goes with them, and neither means anything on another
// host, about whose processes nothing is claimed.
//
// What the system does not tell (no /proc, a /proc that hides others) stays empty
// in an ID and counts for nothing in a comparison; there is only the pid then.
//
// Everything may be called concurrently. Nothing is written.
package process

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
)

// ID names one process of one boot of one host. Its JSON is part of the formats
// that embed it. The zero ID is no process.
type ID struct {
	Host     string `json:"host"`   // as gethostname(2) has it
	BootID   string `json:"bootId"` // /proc/sys/kernel/random/boot_id, see random(4)
	PID      int    `json:"pid"`
	PIDStart uint64 `json:"pidStart"` // clock ticks from boot to its start, see [Stat]
}

// Self is this process.
func Self() ID { return self() }

var self = sync.OnceValue(func() ID {
	id := ID{PID: os.Getpid(), BootID: bootID()}
	id.Host, _ = os.Hostname()
	if s, err := ReadStat(id.PID); err == nil {
		id.PIDStart = s.Start
	}
	return id
})

// bootID names the running kernel's life: no process survives a change of it.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Life is what can be said from here about a process.
type Life int

// What can be said.
const (
	Gone    Life = iota // it has ended
	Alive               // it runs on this host
	Unknown             // it ran on another host, or is none
)

// Life tells whether the process still runs. A process that has ended and waits
// for its parent to notice is gone.
func (id ID) Life() Life {
	me := self()
	switch {
	case id.Host != me.Host || id.PID <= 0:
		return Unknown
	case id.BootID != me.BootID:
		return Gone
	}
	switch s, err := ReadStat(id.PID); {
	case err == nil && !s.Dead() && (id.PIDStart == 0 || s.Start == id.PIDStart):
		return Alive
	case err == nil:
		return Gone
	}
	// Without a readable /proc there is only the pid to go by. EPERM means that
	// somebody has it.
	if errors.Is(syscall.Kill(id.PID, 0), syscall.ESRCH) {
		return Gone
	}
	return Alive
}
