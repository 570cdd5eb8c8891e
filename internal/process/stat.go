package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Stat is what /proc/<pid>/stat of proc(5) tells about a process, as far as it is
// used here.
type Stat struct {
	State  byte   // field 3: 'Z' and 'X' are dead
	Parent int    // field 4
	Group  int    // field 5: process group
	Start  uint64 // field 22: clock ticks from boot to its start
}

// ReadStat returns what the system tells about a process now. The error of a
// process that is not there matches fs.ErrNotExist, or is ESRCH when it ended
// meanwhile.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(b)
}

// ParseStat parses the content of /proc/<pid>/stat. The second field is the name
// of the program in parentheses, and the name may hold anything, also spaces and
// parentheses: the fields are counted from the last ")".
func ParseStat(b []byte) (Stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, fmt.Errorf("process status %q: no name in it", b)
	}
	f := bytes.Fields(b[i+1:])
	const state, parent, group, start = 0, 4 - 3, 5 - 3, 22 - 3 // the first of f is field 3 of proc(5), the state
	if len(f) <= start || len(f[state]) != 1 {
		return Stat{}, fmt.Errorf("process status %q: too short", b)
	}
	if c := f[state][0] | 0x20; c < 'a' || c > 'z' {
		return Stat{}, fmt.Errorf("process status %q: the state is no letter", b)
	}
	ppid, err := strconv.Atoi(string(f[parent]))
	if err != nil {
		return Stat{}, fmt.Errorf("process status: parent: %w", err)
	}
	pgrp, err := strconv.Atoi(string(f[group]))
	if err != nil {
		return Stat{}, fmt.Errorf("process status: group: %w", err)
	}
	ticks, err := strconv.ParseUint(string(f[start]), 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("process status: start time: %w", err)
	}
	return Stat{State: f[state][0], Parent: ppid, Group: pgrp, Start: ticks}, nil
}

// Stopped reports whether somebody has stopped the process, by a signal or as a debugger.
func (s Stat) Stopped() bool { return s.State == 'T' || s.State == 't' }

// Dead reports whether the process has ended and only its parent has not taken
// note.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }
