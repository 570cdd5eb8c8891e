package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/cgroup"
	"github.com/agentrun/agentrun/internal/process"
)

// Ability is one thing that a machine can do or not.
type Ability struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	What string `json:"what"` // what it is, or why not
}

// Probe is what this machine can do for this user.
type Probe struct {
	UID       int       `json:"uid"`
	Kernel    string    `json:"kernel"`
	Modes     []Ability `json:"modes"`  // off, read-only, workspace, net off
	Limits    []Ability `json:"limits"` // memory and its neighbours
	Means     []Ability `json:"means"`  // landlock, namespaces, bubblewrap, cgroups
	Landlock  int       `json:"landlockAbi"`
	CgroupVer int       `json:"cgroupVersion"`
}

// trials are the ways that were tried, once in a process: a trial starts a process.
var trials sync.Map

// try goes one way into a box for such a policy, with nothing in it, and says what is in the way.
func try(via, bwrap string, p *Policy) error {
	key := fmt.Sprint(via, p.confined(), p.NetOff)
	result, _ := trials.LoadOrStore(key, sync.OnceValue(func() error { return trial(via, bwrap, p) }))
	return result.(func() error)()
}

func trial(via, bwrap string, p *Policy) error {
	s := spec{Policy: Policy{Mode: p.Mode, NetOff: p.NetOff}, Via: via, Bwrap: bwrap, Trial: true, Report: 3}
	if p.Mode == Workspace {
		s.Policy.Mode = ReadOnly // there is no directory to look at
	}
	b := &Box{policy: s.Policy, spec: s}
	if p.confined() {
		dir, err := makeTemporary()
		if err != nil {
			return err
		}
		defer removeTemporary(dir)
		b.spec.Tmp = dir
	}
	l, err := b.Launch(Command{Path: "/", Argv: []string{"/"}, Dir: "/", Env: []string{}, Report: 3})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.Path)
	var said strings.Builder
	cmd.Args, cmd.Env, cmd.Dir, cmd.ExtraFiles, cmd.SysProcAttr, cmd.Stderr = l.Argv, l.Env, "/", []*os.File{l.Report}, &syscall.SysProcAttr{Setsid: true}, &said
	l.Attr.Apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		l.Abandon()
		return err
	}
	err = l.Began(cmd.Process.Pid)
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = fmt.Errorf("%w: %s", werr, strings.TrimSpace(said.String()))
	}
	return err
}

// only is the way that is taken, when a test says so.
var only = viaNothing

// choose is way without a trial where that would tell nothing new: root who may make namespaces, on a kernel with all that
// is needed. Where they are refused all the same, the command is not started, and that is said then.
func choose(p *Policy) (via, bwrap string, err error) {
	if err := p.refused(); err != nil {
		return "", "", err
	}
	if only == viaNothing && os.Geteuid() == 0 && capable(unix.CAP_SYS_ADMIN) && landlockVersion() >= landlockABI {
		return viaNamespaces, "", nil
	}
	return way(p)
}

// refused says what of a policy no machine can keep: root that may write everywhere has the kernel, or a service, start something
// outside, where there is a network.
func (p *Policy) refused() error {
	if p.NetOff && !p.confined() && os.Geteuid() == 0 {
		return fmt.Errorf("%w: for root the network is off only in the sandbox read-only or workspace: what may be written without one, such as /proc/sys, leads to it", ErrImpossible)
	}
	return nil
}

// capable reports whether this process has a capability.
func capable(c int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[c/32].Effective&(1<<(c%32)) != 0
}

// way chooses how to make what the policy needs, and says why that is not possible.
func way(p *Policy) (via, bwrap string, err error) {
	if err := p.refused(); err != nil {
		return "", "", err
	}
	abi := landlockVersion()
	var why []string
	if only == viaBubblewrap {
		why = append(why, "namespaces: not to be used")
	} else if p.confined() && abi < landlockABI {
		why = append(why, fmt.Sprintf("landlock: %s", describeLandlock(abi)))
	} else if err := try(viaNamespaces, "", p); err == nil {
		return viaNamespaces, "", nil
	} else {
		why = append(why, fmt.Sprintf("namespaces: %v", err))
	}
	// Bubblewrap separates processes, but not abstract sockets where the network is on.
	switch bwrap, err := exec.LookPath("bwrap"); {
	case err != nil:
		why = append(why, "bubblewrap: it is not installed")
	case p.confined() && !p.NetOff && abi < landlockABI:
		why = append(why, "bubblewrap: it needs the network off here")
	default:
		if err = try(viaBubblewrap, bwrap, p); err == nil {
			return viaBubblewrap, bwrap, nil
		}
		why = append(why, fmt.Sprintf("bubblewrap: %v", err))
	}
	return "", "", fmt.Errorf("%w: %s is not possible: %s", ErrImpossible, p, strings.Join(why, "; "))
}

func describeLandlock(abi int) string {
	switch {
	case abi == 0:
		return "the kernel has none, or it is not switched on"
	case abi < landlockABI:
		return fmt.Sprintf("the kernel has ABI %d, and %d is needed (Linux 6.12)", abi, landlockABI)
	}
	return fmt.Sprintf("ABI %d", abi)
}

// NewProbe looks at what this machine can do. It starts a few processes.
func NewProbe() Probe {
	var name unix.Utsname
	_ = unix.Uname(&name)
	p := Probe{UID: os.Geteuid(), Kernel: unix.ByteSliceToString(name.Release[:]), Landlock: landlockVersion()}
	if !hasMain {
		p.Means = append(p.Means, Ability{"sandbox", false, ErrNoMain.Error()})
		return p
	}
	yes := func(list *[]Ability, name string, err error, what string) {
		if err != nil {
			what = err.Error()
		}
		*list = append(*list, Ability{name, err == nil, what})
	}
	var old error
	if p.Landlock < landlockABI {
		old = fmt.Errorf("%s", describeLandlock(p.Landlock))
	}
	yes(&p.Means, "landlock", old, describeLandlock(p.Landlock))
	full := Policy{Mode: ReadOnly, NetOff: true}
	yes(&p.Means, "namespaces", try(viaNamespaces, "", &full), "mount, IPC and network namespaces")
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		err = fmt.Errorf("bwrap is not installed")
	} else {
		err = try(viaBubblewrap, bwrap, &full)
	}
	yes(&p.Means, "bubblewrap", err, bwrap)
	place := cgroup.Find()
	p.CgroupVer = place.Version
	missing := func(dir string) error {
		if dir == "" {
			return fmt.Errorf("%s", place.Why)
		}
		return nil
	}
	for _, c := range []struct{ name, dir string }{{"cgroup memory", place.Memory}, {"cgroup pids", place.PIDs}, {"cgroup cpu", place.CPU}} {
		yes(&p.Means, c.name, missing(c.dir), fmt.Sprintf("version %d, %s", place.Version, c.dir))
	}
	for _, m := range []Policy{{Mode: ReadOnly}, {Mode: Workspace}, {Mode: ReadOnly, NetOff: true}, {Mode: Workspace, NetOff: true}, {Mode: Off, NetOff: true}} {
		if m.refused() != nil {
			continue // of nobody's machine
		}
		via, _, err := way(&m)
		yes(&p.Modes, m.String(), err, "by "+via)
	}
	for _, l := range []struct {
		name, dir, otherwise string
	}{{LimitMemory, place.Memory, "RLIMIT_DATA, and a look at all"}, {LimitProcesses, place.PIDs, "RLIMIT_NPROC, of the user"}, {LimitCPU, place.CPU, "RLIMIT_CPU, and a look at all"}} {
		err, what := missing(l.dir), "control group"
		if err != nil && p.UID != 0 {
			err, what = nil, l.otherwise
		}
		yes(&p.Limits, l.name, err, what)
	}
	yes(&p.Limits, LimitFile, nil, "RLIMIT_FSIZE")
	yes(&p.Limits, LimitDisk, nil, "watched")
	return p
}

// tasksOfUser counts the processes and threads of this user.
func tasksOfUser() int64 {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	n := int64(0)
	for _, e := range entries {
		var st unix.Stat_t
		if strings.Trim(e.Name(), "0123456789") != "" || unix.Stat("/proc/"+e.Name(), &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		tasks, _ := os.ReadDir("/proc/" + e.Name() + "/task")
		n += int64(len(tasks))
	}
	return n
}

// Confined reports whether process pid is in a sandbox, or otherwise denied new privileges while this process is not.
func Confined(pid int) bool { return process.NoNewPrivs(pid) && !process.NoNewPrivs(os.Getpid()) }
