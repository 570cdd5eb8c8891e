package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/internal/quantity"
)

// Reached is a limit that a command ran into.
type Reached struct {
	Limit string `json:"limit"` // LimitMemory and its neighbours
	Text  string `json:"text"`  // a sentence without a full stop
}

// Names are those of the limits, with commas between them.
func Names(all []Reached) string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Limit
	}
	return strings.Join(names, ",")
}

// look is how often limits are looked at that the kernel does not hold.
const look = 50 * time.Millisecond

// observe ends everything when processor time or disk are used up.
func (b *Box) observe() {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-t.C:
		}
		l := b.policy.Limits
		b.mu.Lock()
		base, disk := b.counts.CPU, b.disk
		b.mu.Unlock()
		switch {
		case l.CPU > 0 && b.group != nil && b.group.Counts().CPU-base >= l.CPU:
			b.end(LimitCPU)
		case disk != nil && disk.full(b.members):
			b.end(LimitDisk)
		}
		if b.compared() {
			if limit := b.compare(); limit != "" {
				b.end(limit)
			}
		}
	}
}

// end notes a limit and kills everything in the box.
func (b *Box) end(limit string) {
	b.mu.Lock()
	b.reached[limit] = true
	b.mu.Unlock()
	if b.group != nil {
		b.group.Kill()
		return
	}
	end := time.Now().Add(5 * time.Second)
	for time.Now().Before(end) {
		pids := b.members()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// members are the processes in the box: those of its control group, else of its mount namespace and those below what
// was started, or below the shim that started it.
func (b *Box) members() []int {
	if b.group != nil {
		return b.group.Members()
	}
	b.mu.Lock()
	roots, shims := slices.Clone(b.started), slices.Clone(b.shims)
	b.mu.Unlock()
	seen := map[int]bool{}
	var all []int
	add := func(pid int) {
		if !seen[pid] && pid != os.Getpid() {
			seen[pid] = true
			all = append(all, pid)
		}
	}
	spaces := map[file]bool{}
	b.mu.Lock()
	for _, f := range b.spaces {
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil {
			spaces[file{uint64(st.Dev), st.Ino}] = true
		}
	}
	b.mu.Unlock()
	for _, root := range roots {
		if gone(root) {
			continue
		}
		add(root.PID)
		below, _ := process.Descendants(root.PID)
		for _, m := range below {
			add(m.PID)
		}
	}
	for _, shim := range shims { // also who has left its parents
		if gone(shim) {
			continue
		}
		below, _ := process.Descendants(shim.PID)
		for _, m := range below {
			add(m.PID)
		}
	}
	if len(spaces) > 0 {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/mnt")
		for _, link := range links {
			var st unix.Stat_t
			if unix.Stat(link, &st) == nil && spaces[file{uint64(st.Dev), st.Ino}] {
				pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
				add(pid)
			}
		}
	}
	return all
}

// gone reports whether a process has ended; another one may have its pid.
func gone(m process.Member) bool {
	s, err := process.ReadStat(m.PID)
	return err != nil || s.Dead() || s.Start != m.Start
}

// Settle tells which limits were reached since it was called last. status is how the command ended.
func (b *Box) Settle(status syscall.WaitStatus) []Reached {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.policy.Limits
	var all []Reached
	add := func(limit, format string, args ...any) {
		all = append(all, Reached{limit, fmt.Sprintf(format, args...)})
	}
	if b.group != nil {
		now := b.group.Counts()
		if n := now.Killed - b.counts.Killed; n > 0 {
			add(LimitMemory, "Limit reached: memory, %s; the kernel killed %s", quantity.Size(l.Memory), counted(n, "process", "processes"))
		}
		if n := now.Forks - b.counts.Forks; n > 0 {
			add(LimitProcesses, "Limit reached: processes, %d at one time; %s not started", l.Processes, counted(n, "more was", "more were"))
		}
		b.counts = now
	}
	if b.group == nil && b.reached[LimitMemory] {
		add(LimitMemory, "Limit reached: memory, %s; everything was killed", quantity.Size(l.Memory))
	} else if b.spec.Data > 0 && b.most >= l.Memory-l.Memory/8 && (!status.Exited() || status.ExitStatus() != 0) {
		add(LimitMemory, "Limit reached: memory, %s; one process had %s of it and was given no more than the rest", quantity.Size(l.Memory), quantity.Bytes(b.most))
	}
	if b.group == nil && b.reached[LimitProcesses] {
		add(LimitProcesses, "Limit reached: processes, %d at one time; no more were started then", l.Processes)
	}
	b.most, b.used = 0, b.cpu
	if b.reached[LimitCPU] || b.spec.Seconds > 0 && died(status, syscall.SIGXCPU) {
		add(LimitCPU, "Limit reached: processor time, %s; everything was killed", quantity.Time(l.CPU))
	}
	if l.File > 0 {
		if name := b.newlyFilled(l.File); name != "" {
			add(LimitFile, "Limit reached: size of a file, %s: %s has as much", quantity.Size(l.File), name)
		} else if died(status, syscall.SIGXFSZ) {
			add(LimitFile, "Limit reached: size of a file, %s", quantity.Size(l.File))
		}
	}
	b.settled = time.Now()
	if b.reached[LimitDisk] {
		add(LimitDisk, "Limit reached: disk, %s written; everything was killed", quantity.Size(l.Disk))
	} else if b.disk != nil && b.disk.over() {
		add(LimitDisk, "Limit reached: disk, %s; the command had written more when it ended", quantity.Size(l.Disk))
	}
	clear(b.reached)
	if b.disk != nil {
		b.disk = newDiskWatch(b.disk.dirs, b.disk.limit)
	}
	return all
}

// newlyFilled is a file that was written since the box was settled last and has as much as a file may: what a limit leaves of one,
// whoever wrote it and whatever became of that. "" is none.
func (b *Box) newlyFilled(most int64) (name string) {
	since := b.settled.Add(-coarse).UnixNano()
	look := func(dir, shown string) {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil && d.Type().IsRegular() && unix.Lstat(path, &st) == nil && st.Size == most && st.Ctim.Nano() >= since {
				id := file{uint64(st.Dev), st.Ino}
				if b.filled[id] == st.Ctim.Nano() {
					return nil
				}
				b.filled[id] = st.Ctim.Nano()
				name = shown + strings.TrimPrefix(path, dir)
				return fs.SkipAll
			}
			return nil
		})
	}
	for _, root := range b.policy.Roots {
		if name == "" {
			look(root, root)
		}
	}
	for inside, dir := range temporary {
		if name == "" && b.tmp != "" {
			look(filepath.Join(b.tmp, dir), inside)
		}
	}
	return name
}

// coarse is how far the clock of a file system may be behind.
const coarse = 20 * time.Millisecond

func counted(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + more
}

// died reports whether the command, or the last one of a shell, ended by sig.
func died(status syscall.WaitStatus, sig syscall.Signal) bool {
	return status.Signaled() && status.Signal() == sig || status.Exited() && status.ExitStatus() == 128+int(sig)
}

// diskWatch looks at how much was written below directories. What their file systems lose is cheap to see, but others
// write there too; so when that is the limit, the files are looked at that were changed since the beginning, and those
// that the box has open without a name.
type diskWatch struct {
	dirs  []string
	limit int64
	since time.Time
	free  map[string]int64 // at the beginning
	next  time.Time
}

func newDiskWatch(dirs []string, limit int64) *diskWatch {
	w := &diskWatch{limit: limit, since: time.Now(), free: map[string]int64{}}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		w.dirs = append(w.dirs, dir)
		if n, ok := free(dir); ok {
			w.free[dir] = n
		}
	}
	return w
}

// free is the free space of dir's file system.
func free(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bfree) * st.Bsize, true
}

// full reports whether the limit is reached.
func (w *diskWatch) full(members func() []int) bool {
	if time.Now().Before(w.next) {
		return false
	}
	if !w.near() {
		return false
	}
	began := time.Now()
	written := w.written(members)
	w.next = time.Now().Add(min(10*time.Since(began), 2*time.Second))
	return written >= w.limit
}

// near reports whether the file systems have lost so much that the limit may be reached.
func (w *diskWatch) near() bool {
	lost := int64(0)
	for dir, before := range w.free {
		if now, ok := free(dir); ok {
			lost = max(lost, before-now)
		}
	}
	return lost >= w.limit/2 // of several file systems each may have lost some
}

// over reports whether a command that was quicker than the watch has written more. What it had open without a name is gone.
func (w *diskWatch) over() bool {
	return w.near() && w.written(func() []int { return nil }) >= w.limit
}

type file struct{ dev, ino uint64 }

// written is how much the files have that were changed since the beginning.
func (w *diskWatch) written(members func() []int) int64 {
	seen := map[file]bool{}
	devices := map[uint64]bool{}
	total := int64(0)
	add := func(st *unix.Stat_t) {
		if k := (file{uint64(st.Dev), st.Ino}); !seen[k] {
			seen[k] = true
			total += st.Blocks * 512
		}
	}
	since := w.since.Add(-coarse).UnixNano()
	for _, dir := range w.dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil {
				devices[uint64(st.Dev)] = true
				if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Ctim.Nano() >= since {
					add(&st)
				}
			}
			return nil
		})
	}
	for _, pid := range members() {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		fds, _ := os.ReadDir(dir)
		for _, fd := range fds {
			var st unix.Stat_t
			if unix.Stat(dir+fd.Name(), &st) == nil && st.Nlink == 0 && st.Mode&unix.S_IFMT == unix.S_IFREG && devices[uint64(st.Dev)] {
				add(&st)
			}
		}
	}
	return total
}
