package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Member is a process of a tree, as it was when it was looked at.
type Member struct {
	PID int
	Stat
}

// Descendants are the children of process root, their children and so on, the dead left out, in no order. It is what
// one look at /proc showed: who is started meanwhile may be missing, so whoever wants all of them looks until nobody
// new comes. A child whose parent ended belongs to its new parent, which is the next subreaper above
// (PR_SET_CHILD_SUBREAPER of prctl(2)).
func Descendants(root int) ([]Member, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	children := map[int][]Member{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := ReadStat(pid); err == nil {
			children[s.Parent] = append(children[s.Parent], Member{pid, s})
		}
	}
	var all []Member
	for todo := []int{root}; len(todo) > 0; {
		pid := todo[0]
		todo = todo[1:]
		for _, m := range children[pid] {
			todo = append(todo, m.PID)
			if !m.Dead() {
				all = append(all, m)
			}
		}
		delete(children, pid) // each once, whatever /proc says
	}
	return all, nil
}

// Signal sends sig to m, and to nobody else who has its pid meanwhile.
func (m Member) Signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(m.PID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if s, err := ReadStat(m.PID); err != nil || s.Start != m.Start {
		return syscall.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// PeakMemory is the most memory that process pid has had resident, in bytes: VmHWM of proc_pid_status(5). 0 when
// that is not known.
func PeakMemory(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(b, []byte("\nVmHWM:"))
	if !ok {
		return 0
	}
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" kB"))
	kb, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}

// Subreap makes this process a subreaper (prctl(2)): who is below it and loses its parent becomes its child. It lasts
// as long as the process.
func Subreap() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// NoNewPrivs reports whether process pid can get no new privileges (prctl(2)), which is for good, for it and for what
// it starts. One that can not be looked at is taken for such a one.
func NoNewPrivs(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return true
	}
	_, rest, _ := bytes.Cut(b, []byte("\nNoNewPrivs:"))
	return !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("0"))
}
