package artifacts

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// process says which process writes an artifact, well enough to tell later
// whether it still lives.
type process struct {
	PID int `json:"pid,omitempty"`
	// Start is when the process started, in clock ticks since boot (field 22 of
	// /proc/<pid>/stat): a pid alone may by now be another process.
	Start  uint64 `json:"pidStart,omitempty"`
	Host   string `json:"host,omitempty"`
	BootID string `json:"bootId,omitempty"`
}

// self describes this process. What the system does not tell stays empty.
var self = sync.OnceValue(func() process {
	p := process{PID: os.Getpid()}
	p.Start = startOf(p.PID)
	p.Host, _ = os.Hostname()
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.BootID = strings.TrimSpace(string(id))
	}
	return p
})

// gone reports whether the process is known to have ended. A process of another
// host cannot be seen from here and does not count as gone.
func (p process) gone() bool {
	me := self()
	if p.Host != me.Host {
		return false
	}
	if p.BootID != me.BootID {
		return true
	}
	if err := unix.Kill(p.PID, 0); errors.Is(err, unix.ESRCH) {
		return true
	}
	start := startOf(p.PID)
	return p.Start != 0 && start != 0 && start != p.Start
}

func startOf(pid int) uint64 {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything; 20 fields follow it before the
	// one that is looked for.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return n
}
