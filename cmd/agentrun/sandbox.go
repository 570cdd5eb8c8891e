package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/seal"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/ssh"
)

// sandboxHelp is the part of the help that tells of the flags of confinement.
const sandboxHelp = `With --sandbox read-only the command changes nothing but temporary files of its
own, with workspace also what is below the working directory and --root; with
--net off it has no network (for root only with one of these). --limits bounds
memory, processes, processor time, the size of a file and what is written to
disk, of the command and all that it starts: some of memory=1GiB,processes=100,
cpu=60s,file=1GiB,disk=2GiB. One that is reached is told; without control groups
(not root) memory that is refused at once and processes are not always, and
file= only of the command and of files in the workspace.
What this machine can not do is refused (agentrun doctor --sandbox); the
settings of config.json hold where a flag is not given. All that may be read
without a sandbox may be read in it, but for settings.key of the home.`

// confinement is what a command may do, by flags.
type confinement struct {
	mode   sandboxMode
	net    netSwitch
	limits limitList
	roots  roots
	tools  bool // --root is for tools too
}

// addConfinement adds the flags. A verb with --root has it already.
func (c *confinement) addFlags(f *pflag.FlagSet) {
	f.Var(&c.mode, "sandbox", "what may be written: `MODE`, off, read-only or workspace")
	f.Var(&c.net, "net", "whether there is a network: `HOW`, on or off")
	f.Var(&c.limits, "limits", "bound what is taken: `LIST`, as memory=1GiB,cpu=60s")
	if c.tools = f.Lookup("root") != nil; !c.tools {
		f.StringArrayVar((*[]string)(&c.roots), "root", nil, "with --sandbox workspace: `DIR` may be written too; may be repeated")
	}
}

// sandboxMode is the value of --sandbox; "" when it is not given.
type sandboxMode sandbox.Mode

func (m *sandboxMode) String() string { return string(*m) }
func (m *sandboxMode) Type() string   { return "MODE" }

func (m *sandboxMode) Set(s string) error {
	mode, err := sandbox.ParseMode(s)
	*m = sandboxMode(mode)
	return err
}

// netSwitch is the value of --net.
type netSwitch string

func (n *netSwitch) String() string { return string(*n) }
func (n *netSwitch) Type() string   { return "HOW" }

func (n *netSwitch) Set(s string) error {
	if s != "on" && s != "off" {
		return errors.New("give on or off")
	}
	*n = netSwitch(s)
	return nil
}

// limitList is the value of --limits, of all that were given.
type limitList struct{ sandbox.Limits }

func (l *limitList) Type() string { return "LIST" }

func (l *limitList) Set(s string) error {
	return sandbox.ParseLimits(&l.Limits, s, func(text string) (int64, error) {
		var size config.Size
		err := size.Set(text)
		return int64(size), err
	})
}

// policy is what a command of a session may do that works in dir: by the flags, else by the settings of the home. It is
// nil for everything.
func (e *environment) policy(s *session.Session, c *confinement, dir string) (*sandbox.Policy, error) {
	set, _, err := config.Load(nil, s.Home()) // a setting that is none was told of
	if err != nil {
		return nil, fmt.Errorf("the command was not started: %w", err)
	}
	p := &sandbox.Policy{Mode: sandbox.Mode(c.mode), NetOff: c.net == "off", Limits: c.limits.Limits}
	if p.Mode == "" {
		p.Mode = sandbox.Mode(set.Sandbox.Mode)
	}
	if c.net == "" {
		p.NetOff = set.Sandbox.Net == "off"
	}
	p.Limits = p.Limits.Or(sandbox.Limits{
		Memory: int64(set.Sandbox.Limits.Memory), Processes: int64(set.Sandbox.Limits.Processes), CPU: set.Sandbox.Limits.CPU.Duration(),
		File: int64(set.Sandbox.Limits.File), Disk: int64(set.Sandbox.Limits.Disk),
	})
	if p.IsZero() {
		if len(c.roots) > 0 && !c.tools {
			return nil, usagef("--root is for --sandbox workspace: give that too")
		}
		return nil, nil
	}
	for _, root := range append([]string{dir}, c.roots...) {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("finding the workspace: %w", err)
		}
		p.Roots = append(p.Roots, abs)
	}
	if p.Mode == sandbox.ReadOnly || p.Mode == sandbox.Workspace {
		// A key that is made while the command goes on would not be hidden from it. A home that cannot be written gets none.
		_, _ = seal.Make(nil, s.Home())
	}
	p.Protected, p.Hidden = ownFiles(s)
	return p, nil
}

// ownFiles are what a command in a sandbox must not change of a session: its home, and a log elsewhere; and where the
// sockets are over which it could ask for a command outside, and the key of what a log may permit.
func ownFiles(s *session.Session) (protected, hidden []string) {
	home := s.Home()
	protected = []string{home}
	for _, path := range []string{s.Path(), s.ArtifactsDir()} {
		if path != "" && !strings.HasPrefix(path, home+string(filepath.Separator)) && !slices.Contains(protected, path) {
			protected = append(protected, path)
		}
	}
	return protected, append([]string{filepath.Join(home, "run"), filepath.Join(home, seal.Name)}, ssh.Sockets()...)
}

// sandboxResult is what of a run in a sandbox is printed with --json.
type sandboxResult struct {
	Mode    sandbox.Mode      `json:"mode"`
	Net     string            `json:"net"`
	Limits  limitsResult      `json:"limits"`
	Reached []sandbox.Reached `json:"reached"`
}

// limitsResult are limits with their units in the names; 0 is none, and left out.
type limitsResult struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	Processes   int64 `json:"processes,omitempty"`
	CPUMS       int64 `json:"cpuMs,omitempty"`
	FileBytes   int64 `json:"fileBytes,omitempty"`
	DiskBytes   int64 `json:"diskBytes,omitempty"`
}

// describeSandbox is nil for a run without one.
func describeSandbox(p *sandbox.Policy, reached []sandbox.Reached) *sandboxResult {
	if p.IsZero() {
		return nil
	}
	l := p.Limits
	r := &sandboxResult{Mode: p.Mode, Net: "on", Reached: append([]sandbox.Reached{}, reached...)}
	r.Limits = limitsResult{l.Memory, l.Processes, l.CPU.Milliseconds(), l.File, l.Disk}
	if r.Mode == "" {
		r.Mode = sandbox.Off
	}
	if p.NetOff {
		r.Net = "off"
	}
	return r
}
