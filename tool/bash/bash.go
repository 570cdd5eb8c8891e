// Package bash runs commands for an agent: whole output kept, whole run recorded, nothing left running.
//
// [Run] runs one command in a session of the log. [Process] is the runner alone, [FindUnfinished] finds the runs that
// a crash cut off, and [Tool] offers a shell to a model.
//
// # Promises
//
//   - A run is in the log before its process exists, and a run that can not be recorded is not started. Its end is
//     recorded however it ended; when that fails the Result is returned beside the error.
//   - The output arrives in the order in which it was written, both streams through one pipe, and is bounded in
//     memory by the sink's options. What the view leaves out is in the artifact, whose provenance carries the run's id: also a run
//     that was cut off finds what it had printed.
//   - A timeout or a cancelled context ends the command: SIGINT, 2 s later SIGTERM, 2 s later SIGKILL, each to the
//     whole process group. Who has no patience closes Options.Kill.
//   - A command that reads the artifact which its own output goes to, while that grows, is ended within about a
//     second, and told so: it would go on until the disk is full.
//   - With Options.Terminal the command leads the session of a terminal of its own, and the view is what a person would
//     have seen there. Everything else is as without: the record, timeouts, the artifact with every byte.
//   - The result does not wait for what the command left behind. Who holds the output open is listened to until
//     250 ms passed in silence, a second at most; what is left in the process group 100 ms later is ended (SIGTERM, half
//     a second later SIGKILL). A command that means to leave something running starts it with setsid(1).
//
// # Refused
//
// A working directory that is not one, an environment variable without a name, NUL bytes: an error, and neither an
// entry nor a process. A program that does not exist or can not be executed is an outcome (127, 126) and recorded.
//
// # Concurrency
//
// Everything here may be called from any number of goroutines; runs of one session, in one process or several, each
// record their own start and end.
//
// # Crashes
//
// When this process is killed, so are the command, its process group and what else it started, from 10 ms after its start on;
// where no control group can be made (cgroup v2), who left the group and has cleared its environment too, of the variable
// AGENTRUN_GUARD, gets away. The log then has a start without an end.
//
// The package needs Linux: the end of a child is awaited without reaping it, and /proc tells who lives.
package bash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// artifactTool is the tool in the names of artifact files, 0.bash.log, for runs with and without a shell but those of a
// Language.
const artifactTool = "bash"

// remoteTool is the same for runs on another host, and what the log calls their command.
const remoteTool = "ssh"

// Options say what to run and where to keep what comes of it. One of Argv and Script is given.
type Options struct {
	// Argv is a program and its arguments; no shell is involved.
	Argv []string
	// Script is run by bash -c, by sh -c where there is no bash.
	Script string

	// Runs takes the place of Script, which is what is recorded: the same with paths for URLs. "" is Script.
	Runs string

	Dir     string        // working directory; "" is that of this process
	Env     []string      // additions to this process's environment, KEY=VALUE
	Stdin   *os.File      // nil is the null device
	Timeout time.Duration // 0 is without limit

	// Kill, when it is closed, ends the command with SIGKILL at once, also one that is being asked to end because of
	// its timeout or the context. Nil never does. The run is recorded as cancelled.
	Kill <-chan struct{}

	// Shell runs Script in place of a bash of its own; nil is that. Dir and Env are then what the script begins
	// with, and stay; Stdin is not used. One that has a method Directory() string is asked for where it is,
	// one that has ShellName() string for its name in the log.
	Shell Runner

	// Tree says that this process is a subreaper (see process.Subreap) and has no other children than the command: one
	// that is ended by a timeout, a limit or the context then takes along what left its process group and session.
	Tree bool

	// Language is that of Script where it is not a shell's; Shell is needed then, and runs it. Nil is a shell's.
	Language *Language

	// Host is where Shell runs Script, when that is not here. The log names it, and calls the command that of ssh.
	Host string

	// StdinPath is a file that Shell's script reads; "" is empty.
	StdinPath string

	// Job marks a run that goes on by itself: its artifact is made first, holds all that it prints from the first byte
	// on, and stands in its Start. Artifacts is needed. Begun is told of it when all that is recorded.
	Job   bool
	Begun func(Start)

	// Move, when it is closed, makes a job of a run that is on its way: its artifact is made, with all that it printed
	// until then, and recorded. Moved is told, once, before Run returns; a run that has ended by then is not moved, and
	// nobody is told. Log and Artifacts are needed. Nil never does.
	Move  <-chan struct{}
	Moved func(Moved)

	// Aside keeps what a run printed out of the context of models: the log has it, marked so.
	Aside bool

	// Unrecorded keeps a run out of the log unless it is moved: its caller records what comes of it.
	Unrecorded bool

	// Session is the id of the session that a job belongs to.
	Session string

	// Sandbox is what the command may do; nil is everything. A program that sets it calls sandbox.Main first in its main.
	// With Shell, which has its own, it is an error.
	Sandbox *sandbox.Policy

	// Separate gives the two streams a pipe each, and the Result tells them apart. What goes to both is then in the
	// order in which it arrived here, and no longer certainly in that in which it was written.
	Separate bool

	// Terminal gives the command a terminal in place of pipes; nil is none. Stdin, StdinPath and Separate are not to be
	// had with one.
	Terminal *Terminal

	// MaxOutput ends a command that writes more, as Timeout does; in bytes, 0 is without limit.
	MaxOutput int64

	// Log is where the run is recorded; nil records nothing.
	Log Log
	// Artifacts is where output goes that is more than a view; nil keeps the view alone, which then says so.
	Artifacts *artifacts.Dir
	// Sink bounds the view; nil means outputsink.DefaultOptions(). Its Open is not used.
	Sink *outputsink.Options
	// Redact replaces secrets in the output before anything else sees it; nil does not. What goes to Live, the view, the
	// artifact and all counts are then of what is left. The Log replaces those of the command, see session.Session.SetRedactor.
	Redact *redact.Redactor
	// Live is written the bytes as they come, as the command wrote them; whoever shows them on a terminal puts an
	// outputsink.Sanitizer before it. A Live that blocks holds up the command; one that fails is not written to
	// again, and the run goes on, see Result.LiveErr.
	Live io.Writer
}

// Result is what came of a run.
type Result struct {
	Exit
	// Output is the bounded, sanitised output with all remarks: what the log, and a model, is told.
	Output string
	// Summary is the sink's: the view, the counts and the artifact.
	Summary outputsink.Summary

	Streams *Separated // with Options.Separate

	// Finish is what the log has of the end, or would have.
	Finish Finish

	Run        string // UUIDv7
	StartEntry string // id of the entry the run began with; "" without a Log
	EndEntry   string // id of the entry with its end; "" when that could not be recorded
	LiveErr    error  // why Live was given up
}

// Run runs one command. How the command ended, also that it was cancelled or never started, is in the Result; the
// error is about everything else: a mistake of the caller, a log that can not be written, a command that does not die.
// Beside an error the Result holds what is known, the output above all. An artifact that could not be written is no
// error: Result.Summary.ArtifactState tells, and so does the view.
func Run(ctx context.Context, o Options) (Result, error) {
	p, command, err := o.process()
	if err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("running %s: not started: %w", p.name(), err)
	}
	where, err := p.locate()
	if err != nil {
		return Result{}, err
	}
	if at, ok := o.Shell.(interface{ Directory() string }); ok && o.Dir == "" {
		if dir := at.Directory(); dir != "" {
			where.dir = dir
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Result{}, fmt.Errorf("running %s: making an id: %w", p.name(), err)
	}
	if !o.Sandbox.IsZero() {
		if o.Shell != nil {
			return Result{}, fmt.Errorf("running %s: a shell has a sandbox of its own for its life", p.name())
		}
		if p.box, err = sandbox.New(*o.Sandbox); err != nil {
			return Result{}, fmt.Errorf("running %s: not started: %w", p.name(), err)
		}
		defer p.box.Close()
	}
	r := &run{Options: o, command: command, id: id.String(), began: time.Now().UTC().Truncate(time.Millisecond), feedback: newFeedback()}
	return r.run(ctx, p, where)
}

// process makes the child to be of o.
func (o *Options) process() (*Process, string, error) {
	p := &Process{Argv: o.Argv, Dir: o.Dir, Env: o.Env, Stdin: o.Stdin, Timeout: o.Timeout, Kill: o.Kill, tree: o.Tree}
	if o.Terminal != nil {
		if err := o.checkTerminal(); err != nil {
			return nil, "", err
		}
		p.Terminal = o.Terminal
	}
	switch {
	case len(o.Argv) > 0 && o.Script != "":
		return nil, "", errors.New("running a command: give a program or a script, not both")
	case len(o.Argv) > 0 && o.Shell != nil:
		return nil, "", errors.New("running a command: a shell runs scripts: quote the program and its arguments")
	case len(o.Argv) > 0:
		return p, Quote(o.Argv), nil
	case (o.Job || o.Move != nil) && (o.Artifacts == nil || o.Log == nil):
		return nil, "", errors.New("running a job: it needs a session with artifacts")
	case o.Language != nil && o.Shell == nil:
		return nil, "", errors.New("running a command: nothing is given that runs its language")
	case strings.TrimSpace(o.Script) == "":
		return nil, "", errors.New("running a command: there is none: give a program or a script")
	}
	if err := CheckScript(o.Script); err != nil {
		return nil, "", fmt.Errorf("running a command: %w", err)
	}
	p.shell = true
	if o.Runs == "" {
		o.Runs = o.Script
	}
	p.Argv = []string{"bash", "-c", "--", o.Runs} // a script may begin with - or +
	if o.Language != nil {
		p.Argv[0] = o.Language.Name // for errors: Shell runs it
	}
	if o.Host != "" {
		return p, Quote([]string{remoteTool, o.Host, o.Script}), nil
	}
	return p, o.Script, nil
}

// run is one run on its way.
type run struct {
	Options
	command string
	id      string
	began   time.Time

	feedback *feedback
	stayed   bool            // it was to be moved, and could not
	artifact *artifacts.File // once the sink has asked for it; owned by the sink's lock until the sink is closed
}

func (r *run) run(ctx context.Context, p *Process, where location) (res Result, err error) {
	res.Run = r.id
	var seen func(func([]byte)) outputsink.Screen
	if r.Terminal != nil {
		if seen, err = r.Terminal.see(); err != nil {
			return res, fmt.Errorf("%s was not started: %w", p.name(), err)
		}
		defer r.Terminal.end()
	}
	if r.Job {
		if _, err := r.open(ctx); err != nil {
			return res, fmt.Errorf("%s was not started: %w", p.name(), err)
		}
	}
	if r.Log != nil && !r.Unrecorded {
		if err := r.begin(ctx, p, where, &res); err != nil {
			if r.Job {
				_ = r.artifact.Discard()
			}
			return res, err
		}
	}
	options := outputsink.DefaultOptions()
	if r.Sink != nil {
		options = *r.Sink
	}
	options.Screen, options.Open = seen, nil
	if options.Spill = r.Job; r.Job {
		options.Open = func() (outputsink.File, error) { return r.artifact, nil }
	} else if r.Artifacts != nil {
		options.Open = func() (outputsink.File, error) { return r.open(ctx) }
	}
	sink := outputsink.New(options)
	defer sink.Close() // on every path; the second Close returns what the first did

	out := &tee{sink: sink.Stdout(), live: r.Live, left: r.MaxOutput, limit: make(chan struct{})}
	var stdoutW, stderrW io.Writer = out, out // one writer, hence one pipe and the true order
	if r.Separate {
		apart := newSeparator(out, options)
		stdoutW, stderrW = side{apart, stdout}, side{apart, stderr}
		defer func() { res.Streams = apart.end() }()
	}
	settle := r.moves(ctx, p, where, sink, &res)
	stdoutW, stderrW, redacted := r.redacting(stdoutW, stderrW)
	started := func(pid int) { r.feedback.started <- pid }
	if r.Shell != nil {
		dir := ""
		if r.Dir != "" {
			dir = where.dir
		}
		res.Exit, err = r.Shell.RunScript(ctx, &Script{
			Text: r.Runs, Run: r.id, Dir: dir, Stdin: r.StdinPath, Env: r.Env, Stdout: stdoutW, Stderr: stderrW, Separate: r.Separate, Terminal: r.Terminal, Timeout: r.Timeout,
			Kill: r.Kill, Feedback: r.feedback.found, Limit: out.limit, Started: started,
		})
	} else {
		p.Stdout, p.Stderr = stdoutW, stderrW
		p.started, p.feedback, p.limit = started, r.feedback.found, out.limit
		res.Exit, err = p.run(ctx, where)
	}
	settle()
	r.feedback.end()
	replaced := redacted()
	res.Summary, _ = sink.Close() // its error is what ArtifactState tells
	res.most, res.wrote = r.MaxOutput, res.Summary.TotalBytes
	res.tellRedacted(replaced)
	res.LiveErr = out.err
	r.conclude(&res)
	if r.Log != nil && (!r.Unrecorded || res.StartEntry != "") {
		var endErr error
		res.EndEntry, endErr = end(ctx, r.Log, res.StartEntry, r.message(&res), res.Finish)
		err = errors.Join(err, endErr)
	}
	return res, err
}

// start is what the log is told of the run.
func (r *run) start(p *Process, where location) Start {
	s := Start{Run: r.id, Command: r.command, Remote: r.Host, Cwd: where.dir, Began: r.began, Aside: r.Aside, Owner: process.Self()}
	if !r.Sandbox.IsZero() {
		s.Sandbox = r.Sandbox.String()
	}
	if !p.shell {
		s.Argv = p.Argv
	}
	if r.Language != nil {
		s.Language = r.Language.Name
	}
	if named, ok := r.Shell.(interface{ ShellName() string }); ok {
		s.Shell = named.ShellName()
	}
	if r.Terminal != nil {
		size := r.Terminal.Size.WithDefaults()
		s.Terminal = &size
	}
	return s
}

func (r *run) begin(ctx context.Context, p *Process, where location, res *Result) error {
	s := r.start(p, where)
	if r.Job {
		number := r.artifact.ID()
		s.Job, s.Artifact, s.Session = true, &number, r.Session
	}
	id, err := begin(ctx, r.Log, s)
	if err == nil {
		res.StartEntry = id
		if r.Begun != nil {
			r.Begun(s)
		}
		return nil
	}
	err = fmt.Errorf("%s was not started: %w", p.name(), err)
	var pending *session.PendingError
	if errors.As(err, &pending) {
		// The log will have this start some day, so it gets the end that belongs to it, which may wait beside it.
		res.Exit = Exit{Code: CodeFailure, Start: &StartError{Name: p.name(), Code: CodeFailure, why: "not started, because its start could not be recorded", err: err}}
		r.conclude(res)
		_, _ = end(ctx, r.Log, "", r.message(res), res.Finish) // the first error is the one to report
	}
	return err
}

// open makes the artifact when the sink finds that the view will not be everything.
func (r *run) open(ctx context.Context) (outputsink.File, error) {
	// A cancelled command still has output to keep.
	name := artifactTool
	if r.Host != "" {
		name = remoteTool
	}
	if r.Language != nil {
		name = r.Language.Name
	}
	f, err := r.Artifacts.Create(context.WithoutCancel(ctx), name, artifacts.Provenance{Run: r.id, Call: tool.OriginOf(ctx)})
	if err != nil {
		return nil, err
	}
	r.artifact = f
	r.feedback.watch(f.Path)
	return f, nil
}

func (r *run) message(res *Result) ending {
	code := res.Code
	return r.Language.ending(entry.BashExecutionMessage{
		Command: r.command, Output: res.Output, ExitCode: &code, Cancelled: res.Cancelled || res.Feedback || res.OutputLimit,
		Truncated: res.Summary.Truncated, Timestamp: time.Now().UnixMilli(), ExcludeFromContext: r.Aside,
	})
}

// conclude fills in what follows from how the command ended and what the sink says.
func (r *run) conclude(res *Result) {
	sum := &res.Summary
	res.Output = WithRemarks(sum.View, res.Remarks(r.Timeout))
	res.Finish = Finish{
		Run: r.id, TimedOut: res.TimedOut, DurationMS: res.Duration.Milliseconds(),
		TotalBytes: sum.TotalBytes, TotalLines: sum.TotalLines, Delivered: r.stayed, Limits: res.limits(),
	}
	if res.Signal != "" {
		res.Finish.Signal = &res.Signal
	}
	if r.artifact != nil && sum.Artifact != "" {
		a := &FinishArtifact{ID: r.artifact.ID(), Bytes: sum.ArtifactBytes, Lines: sum.Index.Lines, CRC32C: fmt.Sprintf("%08x", sum.Index.CRC32C)}
		if sum.ArtifactState.Kind != outputsink.ArtifactComplete {
			a.State = sum.ArtifactState.String()
		}
		res.Finish.Artifact = a
	}
}

// WithRemarks puts remarks on lines of their own below a view.
func WithRemarks(view string, remarks []string) string {
	if len(remarks) == 0 {
		return view
	}
	var b strings.Builder
	b.WriteString(view)
	if view != "" && !strings.HasSuffix(view, "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(strings.Join(remarks, "\n"))
	return b.String()
}

// tee writes to the sink, and to whoever watches for as long as that works.
type tee struct {
	sink, live io.Writer
	err        error // why live was given up

	left  int64 // bytes until the limit; it is none when it began with 0
	limit chan struct{}
}

func (t *tee) Write(b []byte) (int, error) {
	if t.left > 0 {
		if t.left -= int64(len(b)); t.left <= 0 {
			t.left = 0
			close(t.limit)
		}
	}
	n, err := t.sink.Write(b)
	if t.live != nil && t.err == nil {
		if _, err := t.live.Write(b); err != nil {
			t.err = fmt.Errorf("showing the output: %w", err)
		}
	}
	return n, err
}
