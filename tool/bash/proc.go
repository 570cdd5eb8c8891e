package bash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// stat is what /proc/<pid>/stat of proc(5) tells about a process, as far as it is used here.
type stat struct {
	state byte   // 'Z' and 'X' are dead
	group int    // process group
	start uint64 // when it was started, in clock ticks since boot: pid and start together never come again in one boot
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads one line of /proc/<pid>/stat. The second field is the name of the program in parentheses, and the
// name may hold anything, also spaces and parentheses: the fields are counted from the last ")".
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("process status %q: no name in it", b)
	}
	f := bytes.Fields(b[i+1:])
	const state, group, start = 3 - 3, 5 - 3, 22 - 3 // proc(5) counts from 1; the first of f is field 3
	if len(f) <= start || len(f[state]) != 1 {
		return stat{}, fmt.Errorf("process status %q: too short", b)
	}
	pgrp, err := strconv.Atoi(string(f[group]))
	if err != nil {
		return stat{}, fmt.Errorf("process status: group: %w", err)
	}
	ticks, err := strconv.ParseUint(string(f[start]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("process status: start time: %w", err)
	}
	return stat{state: f[state][0], group: pgrp, start: ticks}, nil
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// bootID names the running kernel's life: no process survives a change of it. "" where the system does not say.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// alive reports whether anybody of a process group lives. The dead whom their new parent does not reap (a
// container without an init) are members for the kernel, so when it says yes, it is asked who.
func alive(group int) bool {
	if err := syscall.Kill(-group, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return true
	}
	seen := false
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if err != nil {
			continue // it has just ended
		}
		if pid == os.Getpid() {
			seen = true
		}
		if s.group == group && !s.dead() {
			return true
		}
	}
	return !seen // a /proc that does not even show us (hidepid, another namespace) proves nothing
}
