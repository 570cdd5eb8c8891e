package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/redact/vault"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/usage"
)

// Environment variables that stand in for flags. Package session reads that of the home
// too.
const (
	homeEnv       = "AGENTRUN_HOME"
	sessionEnv    = "AGENTRUN_SESSION"
	durabilityEnv = "AGENTRUN_DURABILITY"
	redactEnv     = "AGENTRUN_REDACT"
)

// environment is what all commands share: the streams, the global flags, and the
// way to a home and a session. Nothing is opened before it is needed.
type environment struct {
	stdin          *os.File
	stdout, stderr io.Writer
	args           []string // the command line

	home       string
	session    string
	fresh      bool // --new
	json       bool
	quiet      bool
	durability durability

	redact redact.Mode    // --redact; "" when it is not given
	vaults []*vault.Vault // of the sessions that were opened
	// replacing is what is replaced in the session that was opened last; nil is nothing.
	replacing *supervisor.Redaction

	guard *usage.Guard // of the home that was opened; nil without quotas
}

func (e *environment) addFlags(f *pflag.FlagSet) {
	f.StringVar(&e.home, "home", "", "keep everything in `DIR` (default $AGENTRUN_HOME, else $XDG_DATA_HOME/agentrun, else ~/.local/share/agentrun)")
	f.StringVar(&e.session, "session", "", "an `ID`, its beginning, or the path of a log (default $AGENTRUN_SESSION, else the newest of this directory)")
	f.BoolVar(&e.fresh, "new", false, "work in a new session: commands that run something")
	f.BoolVar(&e.json, "json", false, "print JSON")
	f.BoolVar(&e.quiet, "quiet", false, "print the output alone: no notice and no remarks")
	f.Var(&e.durability, "durability", "sync: what is kept survives power loss; flush: the end of agentrun (default $AGENTRUN_DURABILITY, else sync)")
}

// makesSessions marks the commands that may start a session; all others refuse
// --new.
const makesSessions = "makes-sessions"

// check is the part of reading the flags that takes more than one of them.
func (e *environment) check(cmd *cobra.Command) error {
	switch {
	case e.fresh && e.session != "":
		return usagef("--new and --session exclude each other: give one of them")
	case e.fresh && cmd.Annotations[makesSessions] == "":
		return usagef("%s never starts a session: leave --new out", cmd.CommandPath())
	}
	if how := os.Getenv(durabilityEnv); how != "" && !e.durability.given && cmd.Annotations[needsNoHome] == "" {
		if err := e.durability.Set(how); err != nil {
			return usagef("%s: %w", durabilityEnv, err)
		}
	}
	if how := os.Getenv(redactEnv); how != "" && e.redact == "" && cmd.Annotations[needsNoHome] == "" {
		if err := e.redact.Set(how); err != nil {
			return usagef("%s: %q: %w", redactEnv, how, err)
		}
	}
	return nil
}

// durability is the value of --durability.
type durability struct {
	value session.Durability
	given bool
}

func (d *durability) String() string {
	if d.value == session.Flush {
		return "flush"
	}
	return "" // the default, which the usage names
}

func (d *durability) Type() string { return "HOW" }

func (d *durability) Set(s string) error {
	switch s {
	case "sync":
		d.value = session.Sync
	case "flush":
		d.value = session.Flush
	default:
		return fmt.Errorf("%q is neither sync nor flush", s)
	}
	d.given = true
	return nil
}

// manager opens the home.
func (e *environment) manager() (*session.Manager, error) {
	home, err := session.ResolveHome(e.home)
	if err != nil {
		return nil, err
	}
	o := session.Options{
		Durability: e.durability.value, Homes: session.HomesFile(),
		Report: func(ev session.Event) { e.remark("%v", ev) },
	}
	if e.guard = usage.Open(home, usage.Options{Warn: e.warnOfQuota, Mistake: e.mistake}); e.guard != nil {
		o.Quota = e.guard
	}
	return session.OpenManager(home, o)
}

// warnOfQuota tells that a quota is nearly used up.
func (e *environment) warnOfQuota(l usage.Limit) {
	e.remark("%d %% of %v; agentrun sessions du shows where it is", 100*l.Used/l.Limit, l)
}

// mistake tells of a setting that is none, with --quiet too: a limit may be meant.
func (e *environment) mistake(u config.Unknown) { e.say("%v", u) }

// settings reads the settings of a home, and tells what in them is none.
func (e *environment) settings(home string) (config.Config, error) {
	c, unknown, err := config.Load(nil, home)
	for _, u := range unknown {
		e.mistake(u)
	}
	return c, err
}

// absent names homes that are listed and not there.
func (e *environment) absent(homes []string) {
	const most = 5
	for _, home := range homes[:min(len(homes), most)] {
		e.remark("the home %s is not there and is passed over; agentrun gc --apply --forget %s takes it off the list", home, strconv.Quote(home))
	}
	if n := len(homes) - most; n > 0 {
		e.remark("%s not there either: %s lists them", count(int64(n), "other home is", "other homes are"), session.HomesFile())
	}
}

// chosen is the session that arg, else a flag or variable, names; "" is none.
func (e *environment) chosen(arg string) string {
	switch {
	case arg != "":
		return arg
	case e.session != "":
		return e.session
	}
	return os.Getenv(sessionEnv)
}

// errNoSession is returned to commands that read when there is nothing to read.
var errNoSession = errors.New("this directory has no session yet: run something with agentrun exec, or name a session with --session")

// find returns a session that exists: the chosen one, else the newest of the
// working directory.
func (e *environment) find(ctx context.Context, m *session.Manager, arg string) (session.Info, error) {
	if arg := e.chosen(arg); arg != "" {
		return m.Find(ctx, arg)
	}
	cwd, err := workingDirectory()
	if err != nil {
		return session.Info{}, err
	}
	info, ok, err := m.Newest(ctx, cwd)
	if err == nil && !ok {
		err = errNoSession
	}
	return info, err
}

// view opens a session that exists for reading.
func (e *environment) view(ctx context.Context, arg string) (*session.Manager, *session.Session, error) {
	m, err := e.manager()
	if err != nil {
		return nil, nil, err
	}
	info, err := e.find(ctx, m, arg)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.View(ctx, info.Path)
	return m, s, err
}

// open opens the session to append to, a new one if there is none. A new one has no
// file before its first entry.
func (e *environment) open(ctx context.Context) (*session.Session, error) {
	m, err := e.manager()
	if err != nil {
		return nil, err
	}
	return e.openIn(ctx, m)
}

func (e *environment) openIn(ctx context.Context, m *session.Manager) (*session.Session, error) {
	s, err := e.openAny(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := e.redactIn(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (e *environment) openAny(ctx context.Context, m *session.Manager) (*session.Session, error) {
	switch {
	case e.fresh:
		return e.create(ctx, m, session.CreateOptions{})
	case e.chosen("") != "":
		info, err := e.find(ctx, m, "")
		if err != nil {
			return nil, err
		}
		return m.Open(ctx, info.Path)
	}
	cwd, err := workingDirectory()
	if err != nil {
		return nil, err
	}
	s, _, err := m.Continue(ctx, cwd, session.CreateOptions{})
	return s, err
}

func (e *environment) create(ctx context.Context, m *session.Manager, o session.CreateOptions) (*session.Session, error) {
	cwd, err := workingDirectory()
	if err != nil {
		return nil, err
	}
	return m.Create(ctx, cwd, o)
}

// closeSession closes s. An error that came first is the one to report, and Close
// would repeat it; only the status of a command is none.
func closeSession(s *session.Session, err error) error {
	cerr := s.Close()
	var command *commandError
	if cerr == nil || err != nil && !errors.As(err, &command) {
		return err
	}
	return cerr
}

// artifacts is the artifact directory of s, nil for a log that can have none.
func (e *environment) artifacts(s *session.Session) *artifacts.Dir {
	return e.artifactsWith(s, s.MaxArtifactID)
}

func (e *environment) artifactsWith(s *session.Session, loggedMax func(context.Context) (int64, error)) *artifacts.Dir {
	dir := s.ArtifactsDir()
	if dir == "" {
		return nil
	}
	o := artifacts.Options{Sync: e.durability.value == session.Sync, LoggedMax: loggedMax, Where: s}
	if e.guard != nil {
		o.Quota = e.guard.Artifacts
	}
	return artifacts.Open(dir, o)
}

func workingDirectory() (string, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("the working directory is gone; change to one that exists: %w", err)
	}
	return cwd, nil
}

// readInput reads a file, the standard input for "-", up to limit bytes.
func (e *environment) readInput(name string, limit int64) ([]byte, error) {
	var in io.Reader = e.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, errors.Unwrap(err))
		}
		defer f.Close()
		in = f
	} else {
		name = "the standard input"
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", name, err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("reading %s: it has more than %s, which is the limit", name, quantity.Size(limit))
	}
	return data, nil
}
