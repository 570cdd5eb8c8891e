package bash

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// Owner says which process ran a command, well enough to tell later whether it still does.
type Owner struct {
	Host     string `json:"host"`
	BootID   string `json:"bootId"`
	PID      int    `json:"pid"`
	PIDStart uint64 `json:"pidStart"` // field 22 of /proc/<pid>/stat: a pid alone may be somebody else by now
}

// self is this process. What the system does not tell stays empty.
var self = sync.OnceValue(func() Owner {
	o := Owner{PID: os.Getpid(), BootID: bootID()}
	o.Host, _ = os.Hostname()
	if s, err := readStat(o.PID); err == nil {
		o.PIDStart = s.start
	}
	return o
})

// Life is what can be said from here about a process.
type Life int

const (
	Gone    Life = iota // it has ended
	Alive               // it runs on this host
	Unknown             // it ran on another host
)

// String returns the word that is shown for a run of such a process.
func (l Life) String() string {
	switch l {
	case Gone:
		return "interrupted"
	case Alive:
		return "running"
	}
	return "unknown"
}

// Life tells whether the process still runs.
func (o Owner) Life() Life {
	me := self()
	switch {
	case o.Host != me.Host || o.PID <= 0:
		return Unknown
	case o.BootID != me.BootID:
		return Gone
	}
	switch s, err := readStat(o.PID); {
	case err == nil && !s.dead() && (o.PIDStart == 0 || s.start == o.PIDStart):
		return Alive
	case err == nil:
		return Gone
	}
	// Without a readable /proc there is only the pid to go by. EPERM means that somebody has it.
	if errors.Is(syscall.Kill(o.PID, 0), syscall.ESRCH) {
		return Gone
	}
	return Alive
}
