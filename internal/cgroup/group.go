package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
)

// Limits bound a group. 0 is no limit.
type Limits struct {
	Memory    int64 // bytes, swap included where the kernel counts it
	Processes int64 // and threads, at one time
}

// Place is where this process can make groups.
type Place struct {
	Version int // 2, 1, or 0 for nowhere
	// Directories of the group of this process. With version 2 they are one. "" where nothing can be made.
	Memory, PIDs, CPU string
	Why               string // why not, where something is missing
}

// Group is a control group with limits: a directory in cgroup v2 where that hands down the controllers memory and pids, else
// one in each of the v1 hierarchies memory, pids and cpuacct, below the groups of this process. What already bounds this
// process so goes on to do that. The name says who made it, so that [NewGroup] kills and removes those whose makers are
// gone.
type Group struct {
	place Place
	dirs  []string // each once
	name  string
}

// Counts are what happened in a group.
type Counts struct {
	Killed int64         // processes that were killed because the memory was used up
	Forks  int64         // processes and threads that were not started, because of the limit
	CPU    time.Duration // used by everything, user and system
}

// groupPrefix begins the name of a group: agentrun-limit-<pid>-<start of the process>-<number>.
const groupPrefix = "agentrun-limit-"

// Find tells where this process can make groups.
func Find() Place {
	mounts, err := readMounts()
	if err != nil {
		return Place{Why: "/proc/self/mountinfo can not be read"}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Place{Why: "/proc/self/cgroup can not be read"}
	}
	return find(mounts, own)
}

func find(mounts, own []byte) Place {
	dirs := ownDirs(mounts, own)
	if dir := delegated(dirs["2"], dirs["2 top"]); dir != "" {
		return Place{Version: 2, Memory: dir, PIDs: dir, CPU: dir}
	}
	p := Place{Version: 1}
	var missing []string
	for _, c := range []struct {
		name string
		dir  *string
	}{{"memory", &p.Memory}, {"pids", &p.PIDs}, {"cpuacct", &p.CPU}} {
		if dir := dirs[c.name]; dir != "" && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			*c.dir = dir
		} else {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 3 {
		p.Version = 0
	}
	if len(missing) > 0 {
		p.Why = "no writable control group with " + strings.Join(missing, ", ")
	}
	return p
}

// ownDirs are the directories of this process's groups, by v1 controller and "2".
func ownDirs(mounts, own []byte) map[string]string {
	at := map[string]string{} // path of the group by controller
	lines := bufio.NewScanner(bytes.NewReader(own))
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" {
			at["2"] = f[2]
			continue
		}
		for name := range strings.SplitSeq(f[1], ",") {
			at[name] = f[2]
		}
	}
	dirs := map[string]string{}
	lines = bufio.NewScanner(bytes.NewReader(mounts))
	for lines.Scan() {
		head, tail, ok := strings.Cut(lines.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 3 {
			continue
		}
		root, point := h[3], h[4]
		var names []string
		switch t[0] {
		case "cgroup2":
			names = []string{"2"}
		case "cgroup":
			names = strings.Split(t[2], ",")
		}
		for _, name := range names {
			group, member := at[name]
			rel, err := filepath.Rel(root, group)
			if !member || err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				continue
			}
			dirs[name] = filepath.Join(point, rel)
			if name == "2" {
				dirs["2 top"] = point
			}
		}
	}
	return dirs
}

// delegated is the lowest directory from dir upwards in which groups with memory and pids can be made. A group that has
// both processes and controllers for others below it is not allowed, so it is seldom that of this process.
func delegated(dir, top string) string {
	for ; dir != "" && strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return ""
		}
		has := strings.Fields(string(b))
		if slices.Contains(has, "memory") && slices.Contains(has, "pids") && unix.Access(dir, unix.W_OK|unix.X_OK) == nil &&
			unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil {
			return dir
		}
	}
	return ""
}

var groups atomic.Int64

// NewGroup makes a group. What l asks for and the place does not have is an error.
func NewGroup(p Place, l Limits) (_ *Group, err error) {
	if l.Memory > 0 && p.Memory == "" || l.Processes > 0 && p.PIDs == "" {
		return nil, fmt.Errorf("making a control group: %s", p.Why)
	}
	me := process.Self()
	g := &Group{place: p, name: fmt.Sprintf("%s%d-%d-%d", groupPrefix, me.PID, me.PIDStart, groups.Add(1))}
	for _, dir := range []string{p.Memory, p.PIDs, p.CPU} {
		if dir != "" && !slices.Contains(g.dirs, dir) {
			g.dirs = append(g.dirs, dir)
			sweep(dir)
		}
	}
	if len(g.dirs) == 0 {
		return nil, fmt.Errorf("making a control group: %s", p.Why)
	}
	for i, dir := range g.dirs {
		if err := os.Mkdir(filepath.Join(dir, g.name), 0o755); err != nil {
			g.dirs = g.dirs[:i]
			g.Remove()
			return nil, fmt.Errorf("making a control group: %w", err)
		}
	}
	if err := g.limit(l); err != nil {
		g.Remove()
		return nil, fmt.Errorf("limiting a control group: %w", err)
	}
	return g, nil
}

func (g *Group) limit(l Limits) error {
	write := func(dir, file string, n int64) error {
		return os.WriteFile(filepath.Join(dir, g.name, file), strconv.AppendInt(nil, n, 10), 0)
	}
	if l.Processes > 0 {
		if err := write(g.place.PIDs, "pids.max", l.Processes); err != nil {
			return err
		}
	}
	if l.Memory <= 0 {
		return nil
	}
	if g.place.Version == 2 {
		_ = write(g.place.Memory, "memory.swap.max", 0) // not there without swap
		return write(g.place.Memory, "memory.max", l.Memory)
	}
	if err := write(g.place.Memory, "memory.limit_in_bytes", l.Memory); err != nil {
		return err
	}
	_ = write(g.place.Memory, "memory.memsw.limit_in_bytes", l.Memory) // not there where swap is not counted
	return nil
}

// Entrances are the files to which a process writes "0" to go into the group.
func (g *Group) Entrances() []string {
	var all []string
	for _, dir := range g.dirs {
		all = append(all, filepath.Join(dir, g.name, "cgroup.procs"))
	}
	return all
}

// Counts tells what has happened in the group until now. What can not be read is 0.
func (g *Group) Counts() Counts {
	var c Counts
	if dir := g.place.Memory; dir != "" {
		file := "memory.oom_control"
		if g.place.Version == 2 {
			file = "memory.events"
		}
		c.Killed = value(filepath.Join(dir, g.name, file), "oom_kill")
	}
	if dir := g.place.PIDs; dir != "" {
		c.Forks = value(filepath.Join(dir, g.name, "pids.events"), "max")
	}
	if dir := g.place.CPU; dir != "" {
		if g.place.Version == 2 {
			c.CPU = time.Duration(value(filepath.Join(dir, g.name, "cpu.stat"), "usage_usec")) * time.Microsecond
		} else {
			c.CPU = time.Duration(value(filepath.Join(dir, g.name, "cpuacct.usage"), ""))
		}
	}
	return c
}

// value reads a number from a file of the system: the one behind key, or the first.
func value(file, key string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if key == "" && len(f) == 1 || len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
			return n
		}
	}
	return 0
}

// Members are the processes in the group.
func (g *Group) Members() []int {
	if len(g.dirs) == 0 {
		return nil
	}
	return members(filepath.Join(g.dirs[0], g.name))
}

func members(dir string) []int {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Kill sends SIGKILL to everything in the group, also to what is started meanwhile, and returns when nobody is left, or
// after a few seconds.
func (g *Group) Kill() {
	for _, dir := range g.dirs {
		kill(filepath.Join(dir, g.name))
	}
}

func kill(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) != nil {
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("0"), 0) // then nobody is added
	}
	end := time.Now().Add(untilEmpty)
	for pause := time.Millisecond; time.Now().Before(end); pause = min(2*pause, 20*time.Millisecond) {
		pids := members(dir)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(pause)
	}
}

// Remove kills what is left in the group and removes it. It may be called more than once.
func (g *Group) Remove() {
	for _, dir := range g.dirs {
		remove(filepath.Join(dir, g.name), kill)
	}
	g.dirs = nil
}

// remove ends what is in a group by kill, and removes it, with the groups that were made below it by what is in it. It
// waits for a few seconds at most for those who do not die.
func remove(dir string, kill func(dir string)) {
	end := time.Now().Add(untilEmpty)
	for pause := time.Millisecond / 4; ; pause = min(2*pause, 20*time.Millisecond) {
		if err := syscall.Rmdir(dir); !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return
		}
		kill(dir)
		below, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
		for _, procs := range below {
			remove(filepath.Dir(procs), kill)
		}
		time.Sleep(pause)
	}
}

// sweep removes the groups in dir whose makers are gone.
func sweep(dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
	for _, name := range names {
		var pid, n int
		var start uint64
		if _, err := fmt.Sscanf(filepath.Base(name), groupPrefix+"%d-%d-%d", &pid, &start, &n); err != nil || n == 0 {
			continue
		}
		if s, err := process.ReadStat(pid); err == nil && s.Start == start && !s.Dead() {
			continue
		}
		remove(name, kill)
	}
}
