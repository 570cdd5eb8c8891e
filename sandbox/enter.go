package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// name is argument 1 of a process on its way into a box.
const name = "agentrun-sandbox"

var hasMain bool

// ErrNoMain is returned by New in a program whose main does not call Main.
var ErrNoMain = errors.New("this program can not start commands in a sandbox: its main has to call sandbox.Main or shell.Main first")

// Main must be called before anything else in main. In a process that is on its way into a box it does not return.
func Main() {
	if len(os.Args) > 2 && os.Args[1] == name {
		enter(os.Args[2], os.Args[3:])
	}
	hasMain = true
}

// failure is what a process on its way writes when it does not get there.
type failure struct {
	Text  string        `json:"text,omitempty"`  // of the box
	Errno syscall.Errno `json:"errno,omitempty"` // of the command's execve
}

// enter goes into the box and becomes the command: args are its path and its arguments.
func enter(text string, args []string) {
	runtime.LockOSThread() // landlock and capabilities are those of a thread, and this one becomes the command
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil || len(args) < 2 && !s.Trial {
		fmt.Fprintln(os.Stderr, "agentrun: this is how agentrun starts commands in a sandbox; it is not for people")
		os.Exit(2)
	}
	fail := func(f failure) {
		b, _ := json.Marshal(f)
		_, _ = unix.Write(s.Report, b)
		os.Exit(125)
	}
	if err := s.enter(); err != nil {
		fail(failure{Text: err.Error()})
	}
	if s.Via == viaBubblewrap && !s.Inside {
		fail(failure{Text: "starting bubblewrap: " + s.bubblewrap(args).Error()})
	}
	if s.Trial {
		os.Exit(0)
	}
	err := syscall.Exec(args[0], args[1:], os.Environ())
	var errno syscall.Errno
	errors.As(err, &errno)
	fail(failure{Errno: errno})
}

// enter does all but the last step.
func (s *spec) enter() error {
	if !s.Inside {
		if err := s.inherit(); err != nil {
			return err
		}
		for _, file := range s.Groups {
			if err := os.WriteFile(file, []byte("0"), 0); err != nil {
				return fmt.Errorf("entering a control group: %w", err)
			}
		}
	}
	switch {
	case s.Via == viaBubblewrap && !s.Inside:
		return nil
	case s.Via == viaNamespaces:
		if err := s.mounts(); err != nil {
			return err
		}
		if s.Policy.NetOff {
			if err := loopback(); err != nil {
				return fmt.Errorf("starting the loopback interface: %w", err)
			}
		}
	}
	if s.Inside { // for bubblewrap it was open
		unix.CloseOnExec(s.Report)
		unix.CloseOnExec(s.Exe)
	}
	if s.Dir != "" && !s.Trial {
		if err := os.Chdir(s.Dir); err != nil { // again: it was opened outside
			return fmt.Errorf("going to the working directory: %w", err)
		}
	}
	if err := s.rlimits(); err != nil {
		return err
	}
	if !s.Policy.namespaces() {
		return nil
	}
	if err := dropCapabilities(s.Policy.confined()); err != nil {
		return err
	}
	if s.Policy.confined() && landlockVersion() >= landlockABI {
		return s.restrict()
	}
	return nil
}

// inherit marks every file that the command is not given to be closed by its beginning.
func (s *spec) inherit() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing what the command does not inherit: %w", err)
	}
	keep := s.Keep
	if s.Via == viaBubblewrap {
		keep = append(slices.Clone(keep), s.Report)
	}
	for _, fd := range keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("handing on file %d: %w", fd, err)
		}
	}
	return nil
}

func (s *spec) rlimits() error {
	set := func(what string, resource int, n int64) error {
		if n <= 0 {
			return nil
		}
		most := unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		if resource == unix.RLIMIT_CPU {
			most.Max++ // SIGXCPU comes first, and says what it was; then SIGKILL
		}
		if err := unix.Setrlimit(resource, &most); err != nil {
			return fmt.Errorf("limiting %s: %w", what, err)
		}
		return nil
	}
	return errors.Join(
		set("the size of files", unix.RLIMIT_FSIZE, s.Policy.Limits.File),
		set("memory", unix.RLIMIT_DATA, s.Data),
		set("processor time", unix.RLIMIT_CPU, s.Seconds),
		set("the number of processes", unix.RLIMIT_NPROC, s.Processes),
	)
}

// kept are the capabilities that root keeps, to change the files that it may change.
var kept = []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID}

// dropCapabilities gives up capabilities and the ways to get them.
func dropCapabilities(confined bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	keep := map[int]bool{}
	if os.Geteuid() == 0 {
		for _, c := range kept {
			keep[c] = true
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	bound := data[0].Effective&(1<<unix.CAP_SETPCAP) != 0
	for c := 0; c < 64; c++ {
		if !keep[c] {
			data[c/32].Permitted &^= 1 << (c % 32)
		}
		if keep[c] || !bound {
			continue // without CAP_SETPCAP there is nothing to get: no_new_privs is set
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) {
				break // behind the last one
			}
			return fmt.Errorf("giving up capabilities: %w", err)
		}
	}
	for i := range data {
		data[i].Effective, data[i].Inheritable = data[i].Permitted, 0
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}

// loopback starts the one interface of a new network namespace.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// bubblewrap becomes bwrap, which makes the namespaces and starts this program in them once more.
func (s *spec) bubblewrap(args []string) error {
	exe, err := unix.Open("/proc/self/exe", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	inside := *s
	inside.Inside, inside.Exe, inside.Groups = true, exe, nil
	text, err := json.Marshal(inside)
	if err != nil {
		return err
	}
	argv := append([]string{"bwrap"}, s.bwrapArgs()...)
	argv = append(argv, "--", "/proc/self/fd/"+strconv.Itoa(exe), name, string(text))
	return syscall.Exec(s.Bwrap, append(argv, args...), os.Environ())
}

// bwrapArgs are the policy in the words of bwrap(1).
func (s *spec) bwrapArgs() []string {
	argv := []string{"--die-with-parent", "--unshare-pid", "--unshare-ipc"}
	if os.Geteuid() == 0 {
		argv = append(argv, "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN", "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER", "--cap-add", "CAP_FSETID")
	}
	if s.Policy.NetOff {
		argv = append(argv, "--unshare-net")
	}
	if !s.Policy.confined() {
		return append(argv, "--dev-bind", "/", "/", "--proc", "/proc")
	}
	argv = append(argv, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run")
	for _, at := range []string{"/tmp", "/var/tmp"} {
		argv = append(argv, "--bind", s.Tmp+"/"+temporary[at], at)
	}
	for _, a := range s.attachments() {
		how := "--ro-bind"
		if a.writable {
			how = "--bind"
		}
		argv = append(argv, how, a.path, a.path)
	}
	for _, path := range s.Policy.Hidden {
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			argv = append(argv, "--ro-bind", "/dev/null", path) // which is a device where there are none: it cannot be opened
			continue
		}
		argv = append(argv, "--tmpfs", path)
	}
	return argv
}
