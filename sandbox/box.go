package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/cgroup"
	"github.com/agentrun/agentrun/internal/process"
)

// Box is a policy at work: the commands that are started in it share its private files and its limits. Its methods may
// be called concurrently, but for Close, which comes last.
type Box struct {
	policy Policy
	spec   spec // what every launch has in common
	group  *cgroup.Group
	tmp    string // "" for none

	mu      sync.Mutex
	started []process.Member
	spaces  []*os.File       // mount namespaces of what was started; open, so that no other one gets their number
	shims   []process.Member // that own something of it, and nothing else
	reached map[string]bool
	counts  cgroup.Counts  // when Settle was called last
	settled time.Time      // then, or when the box was made
	filled  map[file]int64 // files that were told to have as much as they may, with the time of their last change
	disk    *diskWatch
	most    int64         // without control groups, bytes of data that one process had since Settle was called last
	cpu     time.Duration // the same, of processor time of all; used is what it was then
	used    time.Duration
	stop    chan struct{}
	watch   sync.WaitGroup
}

// ErrImpossible is matched by the error of New for what this machine can not do.
var ErrImpossible = errors.New("the sandbox is not possible here")

// ErrFailed is matched by errors of commands that did not begin because of their box.
var ErrFailed = errors.New("starting a command in a sandbox")

// New makes a box, or says why that is not possible.
func New(p Policy) (_ *Box, err error) {
	if !hasMain {
		return nil, ErrNoMain
	}
	if p, err = p.resolved(); err != nil {
		return nil, err
	}
	b := &Box{policy: p, reached: map[string]bool{}, filled: map[file]int64{}, settled: time.Now(), stop: make(chan struct{})}
	b.spec.Policy = p
	if p.namespaces() {
		if b.spec.Via, b.spec.Bwrap, err = choose(&p); err != nil {
			return nil, err
		}
	}
	if err := b.limit(); err != nil {
		return nil, err
	}
	if p.namespaces() {
		if b.tmp, err = makeTemporary(); err != nil {
			b.Close()
			return nil, err
		}
		b.spec.Tmp = b.tmp
	}
	if p.Limits.Disk > 0 {
		b.disk = newDiskWatch(append(slices.Clone(p.Roots), b.tmp), p.Limits.Disk)
	}
	if p.Limits.CPU > 0 && b.group != nil || p.Limits.Disk > 0 || b.compared() {
		b.watch.Go(b.observe)
	}
	return b, nil
}

// limit prepares what bounds memory, processes and processor time.
func (b *Box) limit() error {
	l := b.policy.Limits
	if l.Memory == 0 && l.Processes == 0 && l.CPU == 0 {
		return nil
	}
	place := cgroup.Find()
	if (l.Memory == 0 || place.Memory != "") && (l.Processes == 0 || place.PIDs != "") && (l.CPU == 0 || place.CPU != "") {
		group, err := cgroup.NewGroup(place, cgroup.Limits{Memory: l.Memory, Processes: l.Processes})
		if err == nil {
			b.group, b.spec.Groups = group, group.Entrances()
			return nil
		}
		place.Why = err.Error()
	}
	if os.Geteuid() == 0 {
		return fmt.Errorf("%w: limits of memory, processes and processor time need control groups: %s", ErrImpossible, place.Why)
	}
	b.spec.Data, b.spec.Seconds = l.Memory, int64((l.CPU+time.Second-1)/time.Second)
	if b.spec.Seconds > 0 {
		b.spec.Seconds++ // who looks comes first, and says what it was
	}
	if l.Processes > 0 {
		b.spec.Processes = l.Processes
		if b.spec.Via != viaNamespaces { // a user namespace counts its own alone
			b.spec.Processes += tasksOfUser()
		}
	}
	return nil
}

// compared reports whether limits are held without a control group.
func (b *Box) compared() bool {
	l := b.policy.Limits
	return b.group == nil && (l.Memory > 0 || l.Processes > 0 || l.CPU > 0)
}

// Policy is that of the box, with resolved paths.
func (b *Box) Policy() Policy { return b.policy }

// Tmp is a directory that is the box's own, and what commands in the box call it. It is "" for a box of limits alone,
// in which commands see what this process sees.
func (b *Box) Tmp() (outside, inside string) {
	if b.tmp == "" {
		return "", ""
	}
	outside = filepath.Join(b.tmp, temporary["/tmp"])
	if b.policy.confined() {
		return outside, "/tmp"
	}
	return outside, outside
}

// Command is what to start in a box.
type Command struct {
	Path   string   // absolute
	Argv   []string // with argument 0
	Dir    string   // absolute
	Env    []string
	Report int   // the number of a file of the process that is free, above 2
	Keep   []int // numbers above 2 of files that the command inherits
}

// Launch is a command that enters a box before it begins. Path, Argv, Env and Attr take the place of the command's.
type Launch struct {
	Path string
	Argv []string
	Env  []string
	Attr Attr
	// Report is given to the process under the number of Command.Report.
	Report *os.File

	box *Box
	r   *os.File
}

// Launch prepares the start of a command. Began or Abandon has to be called.
func (b *Box) Launch(c Command) (*Launch, error) {
	s := b.spec
	s.Dir, s.Report, s.Keep = c.Dir, c.Report, c.Keep
	real, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	s.Visible = append(s.Visible, real, c.Path)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	l := &Launch{Path: "/proc/self/exe", Env: c.Env, box: b}
	l.Argv = append([]string{"agentrun", name, string(text), c.Path}, c.Argv...)
	if b.policy.confined() {
		l.Env = append(slices.Clone(c.Env), "TMPDIR=/tmp")
	}
	l.Attr = s.attr()
	if l.r, l.Report, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return l, nil
}

// Began is called when the process was started. It returns when the command has begun. A syscall.Errno is that of the
// command's execve(2), another error is about the box; either way the process has ended.
func (l *Launch) Began(pid int) error {
	l.box.mu.Lock()
	if s, err := process.ReadStat(pid); err == nil {
		l.box.started = append(slices.DeleteFunc(l.box.started, gone), process.Member{PID: pid, Stat: s})
		if above, err := process.ReadStat(s.Parent); err == nil && s.Parent != os.Getpid() {
			l.box.shims = append(slices.DeleteFunc(l.box.shims, gone), process.Member{PID: s.Parent, Stat: above})
		}
	}
	if l.Attr.Flags&unix.CLONE_NEWNS != 0 && l.box.group == nil {
		if space, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err == nil {
			l.box.spaces = append(l.box.spaces, space)
		}
	}
	l.box.mu.Unlock()
	l.Report.Close()
	defer l.r.Close()
	text, err := io.ReadAll(io.LimitReader(l.r, 64<<10))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if len(text) == 0 {
		return nil
	}
	var f failure
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if f.Errno != 0 {
		return f.Errno
	}
	return fmt.Errorf("%w: %s", ErrFailed, f.Text)
}

// Abandon is called when the process could not be started. It may be called for nil.
func (l *Launch) Abandon() {
	if l == nil {
		return
	}
	l.Report.Close()
	l.r.Close()
}

// Attr are the attributes of a process that goes into a box. It is JSON for processes that start others on behalf.
type Attr struct {
	Flags uintptr `json:"flags,omitempty"` // of clone(2)
	User  bool    `json:"user,omitempty"`  // a user namespace with this user alone
	UID   int     `json:"uid,omitempty"`
	GID   int     `json:"gid,omitempty"`
}

// String is what ParseAttr reads.
func (a Attr) String() string {
	text, _ := json.Marshal(a) // of numbers
	return string(text)
}

// ParseAttr reads what String returns; "" is the zero Attr.
func ParseAttr(text string) (a Attr, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &a)
	}
	return a, err
}

// attr is what the first step needs of clone(2): a process of many threads can not make a user namespace later.
func (s *spec) attr() Attr {
	var a Attr
	if s.Via != viaNamespaces {
		return a
	}
	if s.Policy.confined() {
		a.Flags = unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	}
	if s.Policy.NetOff {
		a.Flags |= unix.CLONE_NEWNET
	}
	if os.Geteuid() != 0 {
		a.Flags |= unix.CLONE_NEWUSER
		a.User, a.UID, a.GID = true, os.Geteuid(), os.Getegid()
	}
	return a
}

// Apply adds a to the attributes of a process.
func (a Attr) Apply(sys *syscall.SysProcAttr) {
	sys.Cloneflags |= a.Flags
	if a.User {
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: a.UID, HostID: a.UID, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: a.GID, HostID: a.GID, Size: 1}}
		// Of the namespace; execve(2) would take them from a user who is not root.
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}
	}
}

// Close kills what is left in the box and removes what it made. It may be called more than once.
func (b *Box) Close() {
	select {
	case <-b.stop:
		return
	default:
		close(b.stop)
	}
	b.watch.Wait()
	if b.group != nil {
		b.group.Remove()
	} else {
		b.end("")
	}
	for _, space := range b.spaces {
		space.Close()
	}
	if b.tmp != "" {
		removeTemporary(b.tmp)
	}
}
