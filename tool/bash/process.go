package bash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/sandbox"
)

// Process is one command to run as a child of this process: leader of a session and a process group of its own,
// without a controlling terminal, so that a program that asks for a password on /dev/tty fails instead of being
// stopped for ever, and so that one signal reaches everything it started.
//
// The zero value of every field but Argv is usable. A Process may be run again; runs share nothing.
type Process struct {
	// Argv is the program and its arguments. A name without a slash is looked for in the PATH that the command
	// itself will see; a relative path starts at Dir. No shell is involved.
	Argv []string

	// Dir is the working directory; "" is that of this process.
	Dir string

	// Env holds additions to the environment of this process, each KEY=VALUE; the last of several values wins.
	Env []string

	// Stdin is handed to the command as it is; nil is the null device. It is a file because only a file can be
	// given away without a goroutine that would have to outlive a blocked Read.
	Stdin *os.File

	// Stdout and Stderr receive the bytes of the two streams. When they are the same writer (compared with ==, as
	// in os/exec) the command gets one pipe for both, and the writer sees the streams in the exact order in which
	// they were written; nothing else can give that order. Two writers get a pipe each and are called from two
	// goroutines, in order of arrival here. Nil discards.
	//
	// A writer that blocks holds up the command, as a full pipe would. The first error of a writer is returned by
	// Run; from then on its stream is read and dropped, so that the command goes on.
	Stdout, Stderr io.Writer

	// Timeout is how long the command may run, by the monotonic clock; 0 is without limit.
	Timeout time.Duration

	// Kill, when it is closed, has the process group sent SIGKILL at once, whatever it was sent before. Nil never does.
	Kill <-chan struct{}

	// Terminal gives the command a terminal, which it has for its controlling one; what is written to it goes to
	// Stdout. Stdin and Stderr are not used then. Nil is none.
	Terminal *Terminal

	started  func(pid int)   // told of the leader; may be nil
	feedback <-chan struct{} // when it is closed, the command reads its own output and is ended
	limit    <-chan struct{} // when it is closed, the command has written too much and is ended
	tree     bool            // all children of this process are of the command
	box      *sandbox.Box    // where the command runs; nil is nowhere in particular
	shell    bool            // Argv[0] is bash, and sh will do where there is none
	patience *patience       // nil: defaultPatience; tests shorten it
}

// patience says how long to wait for whom.
type patience struct {
	interrupt time.Duration // from SIGINT to SIGTERM
	terminate time.Duration // from SIGTERM to SIGKILL
	kill      time.Duration // from SIGKILL until the leader is given up
	quiet     time.Duration // silence after which an output held open by somebody else is closed
	drain     time.Duration // the same, when there is no silence
	leaving   time.Duration // for what the leader left behind to end by itself
	leftover  time.Duration // from SIGTERM to SIGKILL for what the leader left behind
}

var defaultPatience = patience{
	interrupt: 2 * time.Second,
	terminate: 2 * time.Second,
	kill:      10 * time.Second,
	quiet:     250 * time.Millisecond,
	drain:     time.Second,
	leaving:   100 * time.Millisecond,
	leftover:  500 * time.Millisecond,
}

// ErrUnkillable is returned when the command is still there ten seconds after SIGKILL: it waits inside the kernel
// (a dead network disk), or it belongs to another user. It is left behind, and reaped when it does end.
var ErrUnkillable = errors.New("the command does not die")

// Run starts the command, copies its output, waits for its end and says how it ended.
//
// When ctx is done, or Timeout has passed, the process group is sent SIGINT, two seconds later SIGTERM, two seconds
// later SIGKILL; Exit says so, and the error is nil. Closing Kill goes to SIGKILL from wherever that is. A ctx that is done before the start starts nothing and its
// error is returned.
//
// The end is that of the leader. Everything written before it is delivered. When somebody else still holds the
// output open, Run goes on reading until there was nothing for 250 ms, at most for a second. What is left of the process
// group 100 ms after that is sent SIGTERM and half a second later SIGKILL: a command that means to leave something
// running gives it a session of its own (setsid).
//
// A command that can not be started is an outcome, not an error of Run: see [Exit.Start]. When Run returns, no goroutine,
// child or descriptor of it is left, except as [ErrUnkillable] says.
func (p *Process) Run(ctx context.Context) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, fmt.Errorf("running %s: not started: %w", p.name(), err)
	}
	l, err := p.locate()
	if err != nil {
		return Exit{}, err
	}
	return p.run(ctx, l)
}

// run is Run for a command that was located, and where a ctx that is done by now is an outcome: whoever calls it has
// told the world already that there is a run.
func (p *Process) run(ctx context.Context, l location) (Exit, error) {
	began := time.Now()
	exit := Exit{Began: began}
	if err := ctx.Err(); err != nil {
		exit.Cancelled = true
		return exit.notStarted(&StartError{Name: p.name(), Code: CodeFailure, why: "cancelled before it was started", err: err}), nil
	}
	if l.refused != nil {
		return exit.notStarted(l.refused), nil
	}

	out, err := p.openStreams()
	if err != nil {
		return Exit{}, fmt.Errorf("running %s: %w", p.name(), err)
	}
	defer out.close()
	guard := newGuard()
	defer guard.end()
	l.env = append(slices.Clone(l.env), guard.mark)
	script, argv, err := p.longScript(l.argv)
	if err != nil {
		return Exit{}, fmt.Errorf("running %s: %w", p.name(), err)
	}
	if l.argv = argv; script != nil {
		defer script.Close()
	}
	cmd := &exec.Cmd{
		Path:        l.path,
		Args:        l.argv,
		Dir:         l.dir,
		Env:         l.env,
		Stdout:      out.childStdout(),
		Stderr:      out.childStderr(),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	switch {
	case p.Terminal != nil:
		cmd.Stdin, cmd.SysProcAttr.Setctty = out.childStdout(), true
	case p.Stdin != nil:
		cmd.Stdin = p.Stdin
	}
	if script != nil {
		cmd.ExtraFiles = []*os.File{script}
	}
	g, err := lead(cmd, func(cmd *exec.Cmd) error { return p.start(cmd, l, guard) })
	if err != nil {
		return exit.notStarted(classifyStart(p.name(), l.path, err)), nil
	}
	guard.watch(g.pid)
	if p.started != nil {
		p.started(g.pid)
	}
	out.start()
	floor := process.PeakMemory(os.Getpid()) // which the command shared before it was one
	if p.box != nil {
		floor = max(floor, entering)
	}
	memory := process.WatchMemoryFrom(g.pid)
	seen := sync.OnceValue(memory.End)
	defer seen()

	patience := p.patience
	if patience == nil {
		patience = &defaultPatience
	}
	var expired <-chan time.Time
	if p.Timeout > 0 {
		t := time.NewTimer(p.Timeout)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-g.exited:
	case <-ctx.Done():
		exit.Cancelled = !g.ended()
	case <-p.Kill:
		exit.Cancelled = !g.ended()
	case <-expired:
		exit.TimedOut = !g.ended()
	case <-p.limit:
		exit.OutputLimit = !g.ended()
	case <-p.feedback:
		exit.Feedback = !g.ended()
		short := *patience
		short.interrupt, short.terminate = feedbackPatience, feedbackPatience
		patience = &short
	}
	if p.Terminal != nil && !g.ended() {
		p.Terminal.Ending()
	}
	if !g.ended() && !g.stop(patience, p.Kill) {
		g.abandon()
		out.finish(patience)
		exit.Code = exit.code(0)
		exit.Duration = time.Since(began)
		return exit, fmt.Errorf("running %s: process %d: %w: end it by hand", p.name(), g.pid, ErrUnkillable)
	}
	exit.Duration = time.Since(began)
	seen()

	if p.tree && (exit.TimedOut || exit.Cancelled || exit.Feedback || exit.OutputLimit) {
		guard.kill()
		killStrays(g.pid, patience)
	}
	out.finish(patience)
	status := g.end(patience, &exit)
	if p.tree {
		reapStrays()
	}
	exit.HeldOpen = !out.sweep()
	exit.SetStatus(status)
	exit.used(g.cmd.ProcessState, floor, seen())
	if p.box != nil {
		exit.Limits = p.box.Settle(status)
	}
	return exit, out.err()
}

// start starts the command, in its box if it has one.
func (p *Process) start(cmd *exec.Cmd, l location, guard *guard) error {
	if p.box == nil {
		return guard.begin(cmd)
	}
	into := sandbox.Command{Path: l.path, Argv: l.argv, Dir: l.dir, Env: l.env, Report: 3 + len(cmd.ExtraFiles)}
	for i := range cmd.ExtraFiles {
		into.Keep = append(into.Keep, 3+i)
	}
	launch, err := p.box.Launch(into)
	if err != nil {
		return err
	}
	cmd.Path, cmd.Args, cmd.Env, cmd.ExtraFiles = launch.Path, launch.Argv, launch.Env, append(cmd.ExtraFiles, launch.Report)
	launch.Attr.Apply(cmd.SysProcAttr)
	if err := guard.begin(cmd); err != nil {
		launch.Abandon()
		return fmt.Errorf("%w: %w", sandbox.ErrFailed, err)
	}
	if err := launch.Began(cmd.Process.Pid); err != nil {
		_ = cmd.Wait() // it has told why
		return err
	}
	return nil
}

// openStreams makes the pipes, or the terminal.
func (p *Process) openStreams() (*streams, error) {
	if p.Terminal == nil {
		return openStreams(p.Stdout, p.Stderr)
	}
	own, command, err := p.Terminal.OpenTerminal()
	if err != nil {
		return nil, err
	}
	w := p.Stdout
	if w == nil {
		w = io.Discard
	}
	return &streams{pipes: []*pipe{{r: own, child: command, w: w}}}, nil
}

func (p *Process) name() string {
	if len(p.Argv) == 0 {
		return "a command without a name"
	}
	return p.Argv[0]
}
