package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// taken is what processes have, as one look at /proc showed it: what limits are compared with where there is no control group.
type taken struct {
	memory int64         // bytes that are theirs alone, in memory or swapped out
	most   int64         // bytes of data that one of them has
	tasks  int64         // processes and threads
	cpu    time.Duration // also of those that they waited for
}

// tick is the unit of times in /proc/<pid>/stat: USER_HZ of proc(5) is 100 wherever Linux runs.
const tick = time.Second / 100

// measure looks at processes.
func measure(pids []int) (t taken) {
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has just ended
		}
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		const utime, cstime, threads = 14 - 3, 17 - 3, 20 - 3 // the first of f is field 3 of proc(5)
		if len(f) <= threads {
			continue
		}
		for _, field := range f[utime : cstime+1] {
			n, _ := strconv.ParseInt(string(field), 10, 64)
			t.cpu += time.Duration(n) * tick
		}
		n, _ := strconv.ParseInt(string(f[threads]), 10, 64)
		t.tasks += n
		status, _ := os.ReadFile(dir + "/status")
		t.memory += kilobytes(status, "RssAnon:") + kilobytes(status, "VmSwap:")
		t.most = max(t.most, kilobytes(status, "VmData:"))
	}
	return t
}

// kilobytes is a size in /proc/<pid>/status, in bytes; 0 where there is none.
func kilobytes(status []byte, name string) int64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" kB"))
	n, _ := strconv.ParseInt(string(number), 10, 64)
	return n << 10
}

// compare compares what is taken with the limits, and returns which one all of the box has to end for, "" for none.
func (b *Box) compare() string {
	l, now := b.policy.Limits, measure(b.members())
	if l.Processes > 0 && b.spec.Via != viaNamespaces { // what is bounded is what the user has
		now.tasks = tasksOfUser() - b.spec.Processes + l.Processes
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most = max(b.most, now.most)
	b.cpu = max(b.cpu, now.cpu) // less when one has ended for whom nobody waited
	if l.Processes > 0 && now.tasks >= l.Processes {
		b.reached[LimitProcesses] = true // more are refused, and that is all
	}
	switch {
	case l.CPU > 0 && b.cpu-b.used >= l.CPU:
		return LimitCPU
	case l.Memory > 0 && now.memory >= l.Memory:
		return LimitMemory
	}
	return ""
}
