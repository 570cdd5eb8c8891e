package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// Client speaks with the supervisor of one session. It holds nothing.
type Client struct {
	Home, Session string
	// Argv starts a supervisor: this program, argument 0 included, with the arguments with which it calls Serve. File
	// 3 is a pipe, to which it writes "ready" or why it is not.
	Argv []string
	// Entries are those of the session, in which runs of a shell that has ended are looked for; nil looks for none.
	Entries func(ctx context.Context) iter.Seq2[entry.Entry, error]
	// Redact is what to replace in what the supervisor records; nil is nothing.
	Redact *Redaction
}

// ErrNone is returned where the session has no supervisor.
var ErrNone = errors.New("nothing of the session is running in the background")

// startWait is how long a supervisor may take to be ready. Tests shorten it.
var startWait = 20 * time.Second

// connect connects to the supervisor.
func (c *Client) connect() (*conn, error) { return placeOf(c.Home, c.Session).connect() }

// connect connects to the supervisor at a place. One that is about to end accepts nobody
// and has seen no request, so that another may be asked.
func (p place) connect() (*conn, error) {
	got, err := p.dial()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the supervisor: %w", err)
	}
	_ = got.SetReadDeadline(time.Now().Add(startWait))
	kind, _, err := got.receive()
	_ = got.SetReadDeadline(time.Time{})
	if err == nil && kind == frameReady {
		got.watch()
		return got, nil
	}
	who, peerErr := peer(got.Conn.(*net.UnixConn))
	got.Close()
	switch {
	case err == nil:
		return nil, fmt.Errorf("connecting to the supervisor: it greets with %q", kind)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, ErrNone
	case errors.Is(err, os.ErrDeadlineExceeded) && peerErr == nil:
		return nil, fmt.Errorf("connecting to the supervisor: process %d does not answer for %s: if it is stopped, kill -CONT %[1]d has it go on; kill -KILL %[1]d ends it with all that it runs", who.Pid, quantity.Time(startWait))
	}
	return nil, fmt.Errorf("connecting to the supervisor: %w", err)
}

// connectOrStart connects to the supervisor, which is started where there is none.
func (c *Client) connectOrStart(ctx context.Context) (*conn, error) {
	const tries = 20 // one that is about to end may be met
	for try := 0; ; try++ {
		got, err := c.connect()
		if !errors.Is(err, ErrNone) || try == tries {
			return got, err
		}
		if err := c.spawn(ctx); err != nil {
			return nil, err
		}
	}
}

// spawn starts a supervisor, in a session of its own, and waits until it is ready.
func (c *Client) spawn(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting a supervisor: %w", err)
	}
	defer r.Close()
	// What it runs gets the environment of who asks for it, and its own is of no use to anybody.
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: c.Argv, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")}, ExtraFiles: []*os.File{w},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("starting a supervisor: %w", err)
	}
	go func() { _ = cmd.Wait() }() // for as long as it lives, or this process does
	deadline := time.Now().Add(startWait)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = r.SetReadDeadline(deadline)
	line, err := bufio.NewReader(r).ReadString('\n')
	if line = strings.TrimSpace(line); line == "ready" {
		return nil
	}
	if line == "" {
		return fmt.Errorf("starting a supervisor: it does not say that it is ready: %w", err)
	}
	return fmt.Errorf("starting a supervisor: %s", line)
}

// ask sends a request and waits for its answer.
func (c *Client) ask(ctx context.Context, got *conn, q request) (done, error) {
	defer got.Close()
	stop := context.AfterFunc(ctx, func() { got.Close() })
	defer stop()
	q.Version = version
	if err := got.sendJSON(frameRequest, q); err != nil {
		return done{}, fmt.Errorf("asking the supervisor: %w", err)
	}
	kind, b, err := got.receive()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return done{}, lost("asking the supervisor", err)
	}
	return answer(kind, b)
}

func answer(kind byte, b []byte) (d done, err error) {
	switch kind {
	case frameDone:
		if err := json.Unmarshal(b, &d); err != nil {
			return d, fmt.Errorf("asking the supervisor: %w", err)
		}
		return d, nil
	case frameError:
		if string(b) == ErrNotRunning.Error() {
			return d, ErrNotRunning
		}
		return d, errors.New(string(b))
	}
	return d, fmt.Errorf("asking the supervisor: it answers with %q", kind)
}

// Command says what to run in the background.
type Command struct {
	Script  string
	Runs    string // takes the place of Script, which is what is recorded; "" is Script
	Shell   string // the named shell whose state it begins with; "" is none
	Path    string // of the shell's program; "" is bash
	Dir     string // absolute
	Env     []string
	Timeout time.Duration // 0 is without limit
	Aside   bool          // of a job: models are not shown what it prints
	// MaxOutput is that of [bash.Options].
	MaxOutput int64
	// Sandbox is what it may do, with absolute paths; nil is everything. A named shell has one for its life: with
	// another it is another shell of that name.
	Sandbox *sandbox.Policy

	// Terminal is its terminal; nil is none. That of a job is made by the supervisor: of this one only the size and the
	// kind count, [Client.Send] types at it, and [Client.Resize] resizes it.
	Terminal *bash.Terminal
}

// Start starts a job and returns its number, which is that of its artifact.
func (c *Client) Start(ctx context.Context, j Command) (int64, error) {
	got, err := c.connectOrStart(ctx)
	if err != nil {
		return 0, err
	}
	cwd := j.Dir
	if cwd == "" {
		if cwd, err = os.Getwd(); err != nil {
			return 0, fmt.Errorf("finding the working directory: %w", err)
		}
	}
	q := request{
		Op: "start", Script: exact(j.Script), Runs: exact(j.Runs), Shell: exact(j.Shell), Path: exact(j.Path), Dir: exact(j.Dir), Cwd: exact(cwd), Env: j.Env, Environ: bash.Unguarded(withhold.Environ()), Timeout: j.Timeout, MaxOutput: j.MaxOutput, Sandbox: j.Sandbox, Redact: c.Redact, Aside: j.Aside,
	}
	q.asks(j.Terminal)
	d, err := c.ask(ctx, got, q)
	return d.Job, err
}

// Wait returns when the job does not run, whether it ever did or not.
func (c *Client) Wait(ctx context.Context, id int64) error {
	_, err := c.simple(ctx, request{Op: "wait", Job: id}, nil)
	return err
}

// Send gives a job something to read, and an end of file behind it if eof is set. At a terminal it is typed.
func (c *Client) Send(ctx context.Context, id int64, text string, eof bool) error {
	_, err := c.simple(ctx, request{Op: "send", Job: id, Text: exact(text), EOF: eof}, ErrNotRunning)
	return err
}

// Screen is what the terminal of a job shows now, its rows as lines.
func (c *Client) Screen(ctx context.Context, id int64) (string, error) {
	d, err := c.simple(ctx, request{Op: "screen", Job: id}, ErrNotRunning)
	return d.Screen, err
}

// Resize gives the terminal of a job another size.
func (c *Client) Resize(ctx context.Context, id int64, size bash.TerminalSize) error {
	_, err := c.simple(ctx, request{Op: "resize", Job: id, Terminal: &size}, ErrNotRunning)
	return err
}

// Kill ends a job: SIGINT, SIGTERM, SIGKILL in turn, or SIGKILL now. It returns when the job's end is recorded.
func (c *Client) Kill(ctx context.Context, id int64, now bool) error {
	_, err := c.simple(ctx, request{Op: "kill", Job: id, Now: now}, ErrNotRunning)
	return err
}

// Stopped is what was ended.
type Stopped struct {
	Jobs    int `json:"jobs"`
	Shells  int `json:"shells"`
	Kernels int `json:"kernels"`
}

// Stop ends everything of the session, and its supervisor. It returns when that is so.
func (c *Client) Stop(ctx context.Context) (Stopped, error) {
	d, err := c.simple(ctx, request{Op: "stop"}, nil)
	return d.Stopped, err
}

// simple asks a supervisor that there is. none is returned where there is none.
func (c *Client) simple(ctx context.Context, q request, none error) (done, error) {
	got, err := c.connect()
	if errors.Is(err, ErrNone) {
		return done{}, none
	}
	if err != nil {
		return done{}, err
	}
	d, err := c.ask(ctx, got, q)
	if q.Op == "wait" && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)) {
		return d, nil // it was killed, and the job with it
	}
	return d, err
}

// Shell is a named shell of a session, under its supervisor.
type Shell struct {
	Client *Client
	Name   string
	Path   string // of its program, when it is made; "" is bash
	Cwd    string // where it starts, when it is made
	// Sandbox is what it may do, see [Command].
	Sandbox *sandbox.Policy
}

var _ bash.Runner = (*Shell)(nil)

// Directory is where the shell is; "" is not known. It is asked by [bash.Run].
func (s *Shell) Directory() string {
	return s.Client.directory(request{Op: "where", Shell: exact(s.Name), Sandbox: s.Sandbox})
}

func (c *Client) directory(q request) string {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	if d, err := c.simple(ctx, q, nil); err == nil {
		return string(d.Dir)
	}
	return ""
}

// RunScript implements [bash.Runner].
func (s *Shell) RunScript(ctx context.Context, c *bash.Script) (exit bash.Exit, err error) {
	if strings.IndexByte(c.Text, 0) >= 0 {
		return exit, errors.New("running a script: it contains a NUL byte, which no shell can be given")
	}
	got, err := s.Client.connectOrStart(ctx)
	if err != nil {
		return exit, err
	}
	defer got.Close()
	began := time.Now()
	q := request{
		Version: version, Op: "run", Shell: exact(s.Name), Path: exact(s.Path), Cwd: exact(s.Cwd), Script: exact(c.Text), Dir: exact(c.Dir), Env: c.Env,
		Environ: bash.Unguarded(withhold.Environ()), Timeout: c.Timeout, Separate: c.Separate, Sandbox: s.Sandbox,
	}
	q.asks(c.Terminal)
	if err := got.sendJSON(frameRequest, q); err != nil {
		return exit, fmt.Errorf("asking the supervisor: %w", err)
	}
	exit, err = follow(ctx, got, c, "the shell "+s.Name, nil)
	exit.Began = began
	if exit.Fresh {
		s.Client.tellFresh(ctx, &exit, "shell", s.Name, c.Run)
	}
	return exit, err
}

// ShellName is what the log calls the shell. It is asked by [bash.Run].
func (s *Shell) ShellName() string { return s.Name }

// tellFresh says that a shell, or a kernel, is not the one that earlier scripts of its name ran in.
func (c *Client) tellFresh(ctx context.Context, exit *bash.Exit, kind, name, run string) {
	if c.Entries == nil {
		return
	}
	for e, err := range c.Entries(ctx) {
		if err != nil {
			return
		}
		s, ok := bash.StartOf(e)
		if ok && s.Run == run {
			return // what follows began later, and found what this one left
		}
		if ok && s.Shell == name && (s.Language != "") == (kind == "kernel") {
			exit.Notes = append(exit.Notes, fmt.Sprintf("The %s %s of earlier runs has ended: this one ran in a new %[1]s, without what they left there", kind, name))
			return
		}
	}
}

// follow passes on output until the end of what runs in something, and has it ended when it has to be. Frames of other
// kinds go to more, which may be nil.
func follow(ctx context.Context, got *conn, c *bash.Script, something string, more func(kind byte, b []byte) bool) (exit bash.Exit, err error) {
	over := make(chan struct{})
	var telling sync.WaitGroup
	var feedback, limit, cancelled bool
	telling.Go(func() {
		kill, stop := c.Kill, ctx.Done()
		for {
			kind := byte(frameStop)
			select {
			case <-over:
				return
			case <-stop:
				stop, cancelled = nil, true
			case <-kill:
				kill, kind, cancelled = nil, frameKill, true
			case <-c.Feedback:
				c.Feedback, feedback = nil, true
			case <-c.Limit:
				c.Limit, limit = nil, true
			}
			_ = got.send(kind, nil)
		}
	})
	keys := newLine(got, over)
	keys.attach(c.Terminal, &telling)
	exit, err = receiveAll(got, c, something, keys, more)
	close(over)
	telling.Wait()
	if feedback || limit {
		exit.Cancelled, exit.Feedback, exit.OutputLimit = cancelled, feedback, limit
	}
	return exit, err
}

// lost says what became of a connection on which something was awaited: gone is that of a supervisor that has ended.
func lost(gone string, err error) error {
	if stopped := (*stoppedError)(nil); errors.As(err, &stopped) {
		return stopped
	}
	return fmt.Errorf("%s: %w", gone, err)
}

// receiveAll passes on output until the end.
func receiveAll(got *conn, c *bash.Script, something string, keys *line, more func(kind byte, b []byte) bool) (exit bash.Exit, err error) {
	var failed error
	for {
		kind, b, err := got.receive()
		if err != nil {
			exit.Code = bash.CodeFailure
			return exit, errors.Join(failed, lost(fmt.Sprintf("the supervisor is gone, and with it %s and what ran in it", something), err))
		}
		if keys.frame(c.Terminal, kind, b) {
			continue
		}
		switch kind {
		case frameStarted:
			var pid int
			if json.Unmarshal(b, &pid) == nil && c.Started != nil {
				c.Started(pid)
			}
		case frameStdout:
			if c.Stdout != nil && failed == nil {
				_, failed = c.Stdout.Write(b)
			}
		case frameStderr:
			if c.Stderr != nil && failed == nil {
				_, failed = c.Stderr.Write(b)
			}
		case frameExit:
			err := json.Unmarshal(b, &exit)
			return exit, errors.Join(failed, err)
		default:
			if more != nil && more(kind, b) {
				continue
			}
			exit.Code = bash.CodeFailure
			_, err := answer(kind, b)
			return exit, errors.Join(failed, err)
		}
	}
}

// StopAll ends every supervisor of a home, and everything that they own.
func StopAll(ctx context.Context, home string) (Stopped, error) {
	dir := filepath.Join(home, "run")
	names, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	if err != nil {
		return Stopped{}, err
	}
	var all Stopped
	var errs []error
	for _, name := range names {
		got, err := place{dir, strings.TrimSuffix(filepath.Base(name), ".sock")}.connect()
		if err != nil {
			continue // its supervisor is gone, or going
		}
		d, err := (&Client{}).ask(ctx, got, request{Op: "stop"})
		all.Jobs += d.Stopped.Jobs
		all.Shells += d.Stopped.Shells
		all.Kernels += d.Stopped.Kernels
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}
