// Package sandbox starts commands that may do less than this process: write in few places, reach no network, take no
// more memory, processors or disk than they are given.
//
// A [Policy] says what a command may do. [New] makes a [Box] of it, or refuses, and [Box.Launch] turns a command
// into one that enters the box before it begins. The way in is this program executed anew, so that [Main] has to be
// the first call of main, and of TestMain.
//
// # Promises
//
// With [ReadOnly] and [Workspace] a command, and everything that it starts,
//
//   - changes nothing but files below /tmp, /var/tmp and /dev/shm, which are its own and empty at first, and with Workspace
//     those below Policy.Roots, without Policy.Protected: no content, name, mode, owner, time or attribute;
//   - finds under /dev null, zero, full, random, urandom, tty, its terminal as console, other terminals of its own, and no disk;
//   - has the capabilities to change files, as root, and no others, and gets none from a setuid program;
//   - can not read memory, environment or descriptors of a process outside, trace it, or signal it;
//   - can not mount, and not undo any of this;
//   - reaches no socket below /run and Policy.Hidden, and no abstract socket of unix(7) of others;
//   - with Policy.NetOff has a loopback interface of its own, and no other.
//
// The [Limits] hold in every mode. A policy that this machine can not keep is refused before anything is started;
// there is no weaker form of it.
//
// # What is not promised
//
// Files may be read as this user may, but for Policy.Hidden: secrets in a home are, and with the network on may be sent away. Sockets outside
// /run that have a path are reached. The command lines of all processes are seen. The kernel is not hidden:
// a hole in it is a way out. With [Off] and limits only, a command of root can leave its control group. With [Off] and no network an
// ordinary user's command can ask other processes of that user to do something, over sockets or by files that they read; root's is refused.
//
// # How
//
// Where this user may make namespaces: a mount namespace in which everything is read-only but the above, one for
// System V IPC, one for the network where that is off, for ordinary users in a user namespace; inside of them landlock(7),
// of ABI 6 at least. Where not, the same by bubblewrap (bwrap in the PATH), with a process namespace besides. Limits
// are control groups (see [Limits]).
//
// # Crashes
//
// What a box made on disk, a directory for /tmp and control groups, is removed by [Box.Close]; what a killed process left
// of them, by the next [New].
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
)

// Mode says what a command may write.
type Mode string

// Modes.
const (
	Off       Mode = "off"       // what this user may
	ReadOnly  Mode = "read-only" // private temporary files
	Workspace Mode = "workspace" // these, and what is below Policy.Roots
)

// ParseMode reads the name of a mode.
func ParseMode(s string) (Mode, error) {
	if m := Mode(s); m == Off || m == ReadOnly || m == Workspace {
		return m, nil
	}
	return "", fmt.Errorf("there is no sandbox %q: give off, read-only or workspace", s)
}

// Policy says what a command may do. The zero value is everything.
type Policy struct {
	Mode   Mode `json:"mode,omitempty"`   // "" is Off
	NetOff bool `json:"netOff,omitempty"` // no network but a loopback of its own; of root with Off it is refused

	// Roots are the directories of a workspace. A disk limit looks at them in every mode.
	Roots []string `json:"roots,omitempty"`
	// Protected are paths that stay read-only below Roots. What of them is not there is passed over. A directory
	// between a root and one of them can be renamed together with it.
	Protected []string `json:"protected,omitempty"`
	// Hidden are directories that the command finds empty, for the sockets in them, and files that it cannot open. What of them
	// is not there when the Box is made is passed over.
	Hidden []string `json:"hidden,omitempty"`

	Limits Limits `json:"limits,omitzero"`
}

// Limits bound what a command and everything that it starts may take. 0 is no limit.
//
// Memory and Processes are held by control groups, version 2 where memory and pids are delegated to this user, else
// version 1. An ordinary user without either gets rlimits of setrlimit(2), of each process (RLIMIT_DATA, RLIMIT_CPU), and twenty times a
// second what all of them have is looked at: everything is killed that has more memory of its own, or processor time, than the limit.
// Processes counts all of the user that are added. Root is refused then: no rlimit stops a fork bomb of root.
//
// Which limits were reached is told by [Box.Settle], as far as the system tells. Without control groups that is what was seen: memory
// of all, or of a command that failed when one process had seven eighths of it; a process that was refused a large piece at once is not
// told of, and processes only when as many were seen alive. A File limit is known of the command itself, and by a file below the roots or
// the private temporary directories that has as much.
type Limits struct {
	Memory    int64         `json:"memory,omitempty"`    // bytes; who takes more is killed by the kernel
	Processes int64         `json:"processes,omitempty"` // and threads at one time; more are not started
	CPU       time.Duration `json:"cpu,omitempty"`       // time of all together; all are killed
	File      int64         `json:"file,omitempty"`      // bytes of each file that is written; who writes more gets SIGXFSZ
	Disk      int64         `json:"disk,omitempty"`      // bytes written below the roots and the private /tmp; all are killed
}

// Or returns l with the limits of o where l has none.
func (l Limits) Or(o Limits) Limits {
	or := func(n *int64, other int64) {
		if *n == 0 {
			*n = other
		}
	}
	or(&l.Memory, o.Memory)
	or(&l.Processes, o.Processes)
	or((*int64)(&l.CPU), int64(o.CPU))
	or(&l.File, o.File)
	or(&l.Disk, o.Disk)
	return l
}

// Names of the limits, as ParseLimits takes them and Reached says them.
const (
	LimitMemory    = "memory"
	LimitProcesses = "processes"
	LimitCPU       = "cpu"
	LimitFile      = "file"
	LimitDisk      = "disk"
)

// LimitsSyntax describes what ParseLimits reads.
const LimitsSyntax = "memory=1GiB,processes=100,cpu=60s,file=1GiB,disk=2GiB"

// ParseLimits reads limits such as [LimitsSyntax], any of them, into l. size reads a number of bytes.
func ParseLimits(l *Limits, text string, size func(string) (int64, error)) error {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name = strings.TrimSpace(name); name {
		case LimitMemory:
			l.Memory, err = size(value)
		case LimitFile:
			l.File, err = size(value)
		case LimitDisk:
			l.Disk, err = size(value)
		case LimitProcesses:
			if l.Processes, err = strconv.ParseInt(value, 10, 64); err != nil || l.Processes < 1 {
				err = errors.New("give a number above 0")
			}
		case LimitCPU:
			if l.CPU, err = time.ParseDuration(value); err != nil || l.CPU < time.Second {
				err = errors.New("give a time of 1s or more, such as 90s or 5m")
			}
		default:
			return fmt.Errorf("there is no limit %q: give some of %s", name, LimitsSyntax)
		}
		if err != nil {
			return fmt.Errorf("limit %s: %w", name, err)
		}
	}
	return nil
}

// IsZero reports whether the policy allows everything.
func (p *Policy) IsZero() bool {
	return p == nil || !p.confined() && !p.NetOff && p.Limits == Limits{}
}

// confined reports whether writes are bounded.
func (p *Policy) confined() bool { return p.Mode == ReadOnly || p.Mode == Workspace }

// namespaces reports whether the policy needs some.
func (p *Policy) namespaces() bool { return p.confined() || p.NetOff }

// Equal reports whether both allow the same.
func (p *Policy) Equal(q *Policy) bool {
	if p.IsZero() || q.IsZero() {
		return p.IsZero() == q.IsZero()
	}
	return p.Mode == q.Mode && p.NetOff == q.NetOff && p.Limits == q.Limits &&
		slices.Equal(p.Roots, q.Roots) && slices.Equal(p.Protected, q.Protected) && slices.Equal(p.Hidden, q.Hidden)
}

// String says in a few words what the policy allows.
func (p *Policy) String() string {
	if p.IsZero() {
		return "off"
	}
	words := []string{string(p.Mode)}
	if p.Mode == "" {
		words[0] = string(Off)
	}
	if p.NetOff {
		words = append(words, "network off")
	}
	if l := p.Limits.String(); l != "" {
		words = append(words, "limits "+l)
	}
	return strings.Join(words, ", ")
}

// String is what ParseLimits reads.
func (l Limits) String() string {
	var parts []string
	add := func(name, value string, given bool) {
		if given {
			parts = append(parts, name+"="+value)
		}
	}
	add(LimitMemory, quantity.Size(l.Memory), l.Memory > 0)
	add(LimitProcesses, strconv.FormatInt(l.Processes, 10), l.Processes > 0)
	add(LimitCPU, quantity.Time(l.CPU), l.CPU > 0)
	add(LimitFile, quantity.Size(l.File), l.File > 0)
	add(LimitDisk, quantity.Size(l.Disk), l.Disk > 0)
	return strings.Join(parts, ",")
}

// resolved returns the policy with absolute paths without symbolic links, or what is wrong with it.
func (p Policy) resolved() (Policy, error) {
	if p.Mode == "" {
		p.Mode = Off
	}
	if _, err := ParseMode(string(p.Mode)); err != nil {
		return p, err
	}
	l := p.Limits
	if min(l.Memory, l.Processes, l.File, l.Disk, int64(l.CPU)) < 0 {
		return p, errors.New("a limit of the sandbox is below 0: leave it out for no limit")
	}
	if p.Mode == Workspace && len(p.Roots) == 0 {
		return p, errors.New("the sandbox workspace has no directory: name one, or take read-only")
	}
	var err error
	if p.Roots, err = resolveAll(p.Roots, false); err != nil {
		return p, err
	}
	for _, root := range p.Roots {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return p, fmt.Errorf("the workspace %s is not a directory: name another", root)
		}
		for _, whole := range []string{"/", "/proc", "/sys", "/dev", "/run"} {
			if p.Mode == Workspace && root == whole {
				return p, fmt.Errorf("the workspace can not be %s: work in a directory of your own", root)
			}
		}
	}
	if p.Protected, err = resolveAll(p.Protected, true); err != nil {
		return p, err
	}
	p.Hidden, err = resolveAll(p.Hidden, true)
	return p, err
}

// resolveAll resolves paths, each once, the shorter ones first. Missing ones may be left out.
func resolveAll(paths []string, missing bool) ([]string, error) {
	var all []string
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if errors.Is(err, os.ErrNotExist) && missing {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("a directory of the sandbox: %w", err)
		}
		if !slices.Contains(all, real) {
			all = append(all, real)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return len(a) - len(b) })
	return all, nil
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
