package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
)

// runHelp is the part of the help that exec and bash share.
const runHelp = `The run is recorded in a session: the one of --session, else the newest of the
working directory, else a new one. The output goes to standard output, both
streams in their order; remarks of agentrun go to standard error. The command's
standard input is empty, whatever agentrun's own is, unless --stdin is given.
Variables whose names look like those of secrets (TOKEN, SECRET, PASSWORD, KEY
and the like as words of a name) are withheld from it: neither it nor a process
above it has them, unless --env NAME passes one on.
Processes that it leaves in the background are ended; setsid(1) starts one that
stays.

SIGINT, SIGTERM, SIGHUP or SIGQUIT end the command as --timeout does, a second
one kills it at once; either way its output is shown and the run recorded.

The exit status is that of the command, 128+n when signal n ended it, 124 after
--timeout (SIGINT, 2 s later SIGTERM, 2 s later SIGKILL), 126 or 127 when it
can not be executed or is not found, 125 when agentrun itself failed, and 128+n
when agentrun got signal n and ended the command. --max-output ends it with the
signals of --timeout, and the status is what they made of it: mostly 130.

With --json cancelled is true when a signal to agentrun ended the command, and
outputLimit when --max-output did; else neither is there. peakMemory is the most
that one process had, in bytes. What had less than agentrun itself, and all in a
shell that goes on, is only looked at from time to time: it is null where a
command was too short. --streams gives each stream a pipe; between the two the
order is that in which they were read, which need not be that of writing
(without it, one pipe keeps that).

` + sandboxHelp

// commandRun is what exec, bash and ssh have in common.
type commandRun struct {
	*environment

	timeout timeout
	live    bool
	cwd     string
	env     variables
	pass    bool // --stdin

	maxOutput  config.Size
	streams    bool
	timestamps bool

	shell, program string // --shell, --shell-path
	background     bool
	argv           []string // of a job that is a program
	after          timeout  // --background-after

	pty      ptyFlags
	terminal *bash.Terminal

	confinement
	policy *sandbox.Policy
	cell   *cell // of python
}

func (r *commandRun) addFlags(f *pflag.FlagSet) {
	r.addRunFlags(f)
	r.confinement.addFlags(f)
}

// addRunFlags adds those for a command that is not a child of this process too.
func (r *commandRun) addRunFlags(f *pflag.FlagSet) {
	f.Var(&r.timeout, "timeout", "end the command after `TIME`: 90s, 5m, 30 (seconds)")
	f.BoolVar(&r.live, "live", false, "print all output as it comes; with --json to stderr")
	f.StringVar(&r.cwd, "cwd", "", "run the command in the directory `DIR`")
	f.Var(&r.env, "env", "set a variable for the command, or with a name alone pass on one that is withheld; may be repeated")
	f.BoolVar(&r.streams, "streams", false, "with --json: stdout and stderr apart too, in the order in which they were read")
	f.BoolVar(&r.timestamps, "timestamps", false, "with --json: which stream wrote what when, as pieces")
	f.Var(&r.maxOutput, "max-output", "end a command that writes more than `SIZE`, such as 100MiB")
	r.addRedact(f)
}

// addStdin adds the flag of verbs whose command may read.
func (r *commandRun) addStdin(f *pflag.FlagSet) {
	f.BoolVar(&r.pass, "stdin", false, "pass standard input on to the command")
}

// timeout is the value of --timeout: a Go duration or a number of seconds.
type timeout time.Duration

func (t *timeout) String() string {
	if *t == 0 {
		return ""
	}
	return quantity.Time(time.Duration(*t))
}

func (t *timeout) Type() string { return "TIME" }

func (t *timeout) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, nerr := strconv.ParseFloat(s, 64); nerr == nil {
			d, err = time.ParseDuration(s + "s")
		}
	}
	if err != nil || d < 0 {
		return errors.New("give a time such as 90s, 1.5m or 30 (seconds)")
	}
	*t = timeout(d)
	return nil
}

// variables is the value of --env: KEY=VALUE each, also of a KEY alone. Unlike the list flags of pflag
// it leaves commas and quotes alone.
type variables []string

func (v *variables) String() string { return strings.Join(*v, " ") }
func (v *variables) Type() string   { return "KEY=VALUE" }

func (v *variables) Set(s string) error {
	if s == "" || s[0] == '=' || strings.IndexByte(s, 0) >= 0 {
		return errors.New("give KEY=VALUE, or the name of a variable that is set")
	}
	if !strings.Contains(s, "=") {
		value, ok := withhold.Lookup(s)
		if !ok {
			return fmt.Errorf("agentrun's own environment has no variable %s: give %[1]s=VALUE", s)
		}
		s += "=" + value
	}
	*v = append(*v, s)
	return nil
}

// run runs the command and prints what came of it.
func (r *commandRun) run(ctx context.Context, o bash.Options) (err error) {
	defer func() { err = failed(err) }()
	s, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	begun := s.Exists()

	sigs := r.catchSignals(ctx, endsCommand)
	defer sigs.release()
	o.Kill = sigs.kill
	o.Dir, o.Env, o.Timeout = r.cwd, r.env, time.Duration(r.timeout)
	o.MaxOutput = int64(r.maxOutput)
	if o.Separate = r.streams || r.timestamps; o.Separate && !r.json {
		return usagef("--streams and --timestamps are for --json: give that too")
	}
	if r.terminal, err = r.pty.terminal(); err != nil {
		return err
	}
	if o.Terminal = r.terminal; o.Terminal != nil && o.Separate {
		return usagef("--pty and --streams or --timestamps exclude each other: a terminal has one stream")
	}
	if r.after > 0 && r.pass {
		return usagef("--stdin and --background-after exclude each other: what may go on in the background reads nothing")
	}
	if o.Host == "" { // a sandbox is of this machine
		if r.policy, err = r.environment.policy(s, &r.confinement, r.cwd); err != nil {
			return err
		}
	}
	o.Tree = r.after == 0 && o.Host == "" && process.Subreap() == nil // the connection to a host is a child that stays
	if r.after == 0 && r.cell == nil {
		closeShell, err := r.choose(ctx, &o, s)
		if err != nil {
			return err
		}
		defer closeShell()
	}
	if o.Shell == nil && r.cell == nil {
		o.Sandbox = r.policy
	}
	if o.Script != "" && r.cell == nil && o.Host == "" {
		var done func()
		o.Runs, done = r.pathsFor(ctx, s, o.Script, r.after > 0)
		defer done()
	}
	withhold.Forget() // what is replaced is known to s by now
	o.Log, o.Artifacts, o.Redact = s, r.artifacts(s), s.Redactor()
	switch {
	case r.pass && r.terminal != nil:
		typeIn(r.terminal, r.stdin)
	case r.pass:
		o.Stdin = r.stdin
	}
	var live *liveView
	if r.live {
		out := r.stdout
		if r.json {
			out = r.stderr
		}
		live = newLiveView(out)
		o.Live = live
	}
	var res bash.Result
	var moved *bash.Moved
	var runErr error
	if r.after > 0 {
		begun = true // said by then
		res, moved, runErr = r.runOrMove(sigs.ctx, s, o)
	} else if r.cell != nil {
		res, runErr = r.runCell(sigs.ctx, s, o)
	} else {
		res, runErr = bash.Run(sigs.ctx, o)
	}
	got := sigs.release()
	if moved != nil {
		return r.printMoved(s, moved, live)
	}
	if res.Began.IsZero() && runErr != nil { // nothing ran
		if got != 0 && errors.Is(runErr, context.Canceled) {
			return &commandError{status: statusSignal + int(got)}
		}
		return runErr
	}
	if !begun && s.Exists() {
		r.remark("started session %s", s.ID())
	}
	printErr := r.print(s, &res, live) // what is remarked of the run itself comes behind its output
	r.explain(&res, o.Argv)
	r.cell.explain(r.environment)
	switch {
	case runErr != nil:
		return runErr
	case printErr != nil:
		return printErr
	case got != 0 && res.Cancelled:
		return &commandError{status: statusSignal + int(got)}
	case res.Code != 0:
		return &commandError{status: res.Code}
	}
	return nil
}

// print prints the output.
func (r *commandRun) print(s *session.Session, res *bash.Result, live *liveView) error {
	var err error
	if live != nil {
		err = errors.Join(res.LiveErr, live.finish())
		if sum := &res.Summary; err == nil && sum.ArtifactState.Kind == outputsink.ArtifactComplete {
			r.remark("all of it, %s in %s, is kept as %s", outputsink.FormatBytes(sum.TotalBytes), count(sum.TotalLines, "line", "lines"), sum.Artifact)
		}
	}
	switch {
	case r.json: // also when standard error could not be printed to
		err = errors.Join(err, printJSON(r.stdout, r.withStreams(r.describe(s, res), res.Streams)))
	case live == nil:
		_, err = io.WriteString(r.stdout, endNotice(r.view(res), &res.Summary))
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil // who read the output has seen enough; the command went on
	}
	if err != nil {
		return fmt.Errorf("printing the output, which %s: %w", whereabouts(res), err)
	}
	return nil
}

func whereabouts(res *bash.Result) string {
	switch {
	case res.Summary.Artifact != "":
		return "is kept as " + res.Summary.Artifact
	case res.EndEntry != "":
		return "is in the session's log"
	}
	return "was not kept either"
}

// view is the output as it is shown: with the notice, unless the output alone is
// wanted.
func (r *commandRun) view(res *bash.Result) string {
	if r.quiet {
		return res.Summary.Text
	}
	return res.Summary.View
}

// endNotice ends a view that ends with a notice like every line of text. A view
// without one ends as the output did.
func endNotice(view string, sum *outputsink.Summary) string {
	if sum.Notice != "" && strings.HasSuffix(view, sum.Notice) {
		return view + "\n"
	}
	return view
}

// explain says on standard error what the output does not tell.
func (r *commandRun) explain(res *bash.Result, argv []string) {
	if res.Start != nil { // an error, not a remark
		hint := ""
		if res.Code == bash.CodeNotFound && len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n") {
			hint = "; for a script use agentrun bash " + bash.Quote(argv)
		}
		r.say("%v%s", res.Start, hint)
		return
	}
	for _, remark := range res.Remarks(time.Duration(r.timeout)) {
		r.remark("%s", strings.TrimSuffix(strings.TrimPrefix(remark, "["), "]"))
	}
	switch state := res.Summary.ArtifactState; state.Kind {
	case outputsink.ArtifactNone, outputsink.ArtifactComplete:
	default:
		r.remark("the artifact of the output %v", state)
	}
}

// runResult is what exec --json prints.
type runResult struct {
	ExitCode      *int    `json:"exitCode"` // null when it goes on
	Signal        *string `json:"signal"`
	TimedOut      bool    `json:"timedOut"`
	DurationMS    int64   `json:"durationMs"`
	UserMS        int64   `json:"userMs"`
	SystemMS      int64   `json:"systemMs"`
	PeakMemory    *int64  `json:"peakMemory"` // bytes; null when it is not known, see bash.Exit
	TotalBytes    int64   `json:"totalBytes"`
	TotalLines    int64   `json:"totalLines"`
	ShownBytes    int64   `json:"shownBytes"`
	ShownLines    int64   `json:"shownLines"`
	Truncated     bool    `json:"truncated"`
	Artifact      *string `json:"artifact"`
	ArtifactState *string `json:"artifactState"` // null when the output made none
	Session       string  `json:"session"`
	Entry         *string `json:"entry"` // null when the end could not be recorded
	Output        string  `json:"output"`
	OutputLimit   bool    `json:"outputLimit,omitempty"` // it wrote more than --max-output, and was ended
	Cancelled     bool    `json:"cancelled,omitempty"`   // a signal to agentrun ended it
	Job           *string `json:"job,omitempty"`         // of a run that goes on in the background
	// Sandbox is not there without one.
	Sandbox *sandboxResult `json:"sandbox,omitempty"`
	*cellResult
	*ptyResult
}

// describe is what is printed of a run with --json.
func (r *commandRun) describe(s *session.Session, res *bash.Result) runResult {
	d := describe(s, res, r.view(res))
	d.Sandbox = describeSandbox(r.policy, res.Limits)
	d.cellResult = r.cell.describe()
	d.ptyResult = r.pty.describe()
	return d
}

func describe(s *session.Session, res *bash.Result, view string) runResult {
	sum := &res.Summary
	r := runResult{
		ExitCode: &res.Code, Signal: orNull(res.Signal), TimedOut: res.TimedOut, DurationMS: res.Duration.Milliseconds(),
		TotalBytes: sum.TotalBytes, TotalLines: sum.TotalLines, ShownBytes: sum.ShownBytes, ShownLines: sum.ShownLines,
		Truncated: sum.Truncated, Artifact: orNull(sum.Artifact),
		Session: s.ID(), Entry: orNull(res.EndEntry), Output: view, OutputLimit: res.OutputLimit, Cancelled: res.Cancelled,
	}
	r.UserMS, r.SystemMS = res.User.Milliseconds(), res.System.Milliseconds()
	if res.PeakMemory > 0 {
		r.PeakMemory = &res.PeakMemory
	}
	if sum.ArtifactState.Kind != outputsink.ArtifactNone {
		r.ArtifactState = orNull(sum.ArtifactState.String())
	}
	return r
}
