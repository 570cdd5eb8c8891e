package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
)

// front is a script that a client waits for.
type front struct {
	*server
	c    *conn
	job  *job
	move chan struct{} // closed when it is to be a job
	keys typist

	mu       sync.Mutex
	asked    bool // to move: a place among the jobs is reserved
	number   int64
	detached bool // it is a job: the client may go
}

// foreground runs a script for a client that waits, and that may ask for it to become a job.
func (s *server) foreground(c *conn, q *request) error {
	var sh bash.Runner
	if q.Shell != "" {
		n, release, err := s.hold(q)
		if err != nil {
			return err
		}
		defer release()
		sh = n
	} else {
		own, err := shell.New(shell.Options{Path: string(q.Path), Dir: string(q.Cwd), Environ: q.Environ, Once: true, Sandbox: q.Sandbox})
		if err != nil {
			return err
		}
		defer own.Close()
		sh = own
	}
	log, dir, err := s.opts.Open(s.ctx)
	if err != nil {
		return err
	}
	s.redact(log, q)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	f := &front{server: s, c: c, job: newJob(cancel), move: make(chan struct{}), number: -1}
	f.job.terminal = q.terminalOf(nil)
	f.keys = typist{c: c, t: f.job.terminal}
	var listening sync.WaitGroup
	listening.Go(f.listen)
	o := bash.Options{
		Script: string(q.Script), Runs: string(q.Runs), Dir: string(q.Dir), Env: q.Env, Timeout: q.Timeout, MaxOutput: q.MaxOutput, Separate: q.Separate,
		Shell: sh, Log: log, Artifacts: dir, Kill: f.job.kill, Unrecorded: q.Unrecorded, Session: s.opts.Session, Redact: log.Redactor(),
		Move: f.move, Moved: f.moved, Terminal: f.job.terminal,
	}
	if q.Live {
		o.Live = liveFrames{c}
	}
	res, err := bash.Run(ctx, o)
	if f.isJob() {
		err = s.record(log, f.job, err)
	}
	if err = errors.Join(err, log.Close()); err != nil && res.Run == "" {
		err = f.end(err)
	} else {
		e := resultFrame{sentResult: sendable(&res)}
		if err != nil {
			e.Err = err.Error()
		}
		err = f.end(nil)
		_ = c.sendJSON(frameResult, e) // a client that is gone finds it in the log, or ended it
	}
	if err != nil {
		_ = c.send(frameError, []byte(err.Error()))
	}
	c.Close()
	listening.Wait()
	f.keys.running.Wait()
	return nil
}

// liveFrames is output for a client that may be gone.
type liveFrames struct{ c *conn }

func (f liveFrames) Write(b []byte) (int, error) {
	if err := f.c.send(frameStdout, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// listen does what the client says. One that goes takes the script along, unless that is a job.
func (f *front) listen() {
	for {
		kind, b, err := f.c.receive()
		switch {
		case err == nil && f.keys.frame(kind, b):
		case err != nil:
			f.mu.Lock()
			if !f.detached {
				f.job.stop()
			}
			f.mu.Unlock()
			return
		case kind == frameStop:
			f.job.stop()
		case kind == frameKill:
			f.job.once.Do(func() { close(f.job.kill) })
		case kind == frameMove:
			f.ask()
		}
	}
}

// ask asks for the script to become a job.
func (f *front) ask() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked {
		return
	}
	if err := f.reserve(); err != nil {
		_ = f.c.sendJSON(frameMoved, movedFrame{Err: err.Error()})
		return
	}
	f.asked = true
	close(f.move)
}

// moved notes that it is one, or is not.
func (f *front) moved(m bash.Moved) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Err != nil {
		_ = f.c.sendJSON(frameMoved, movedFrame{Err: m.Err.Error()})
		return
	}
	f.number, f.detached = *m.Artifact, true
	f.server.mu.Lock()
	f.jobs[f.number] = f.job
	f.starts--
	f.server.mu.Unlock()
	_ = f.c.sendJSON(frameMoved, movedFrame{m.Start, m.Entry, sendableSummary(&m.Summary), ""})
}

func (f *front) isJob() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.detached
}

// end gives back what the script had of the supervisor.
func (f *front) end(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server.mu.Lock()
	if f.detached {
		delete(f.jobs, f.number)
	} else if f.asked {
		f.starts--
	}
	f.idle.Reset(f.opts.Linger)
	f.server.mu.Unlock()
	f.asked = true
	close(f.job.done)
	return err
}

// Foreground is a script that somebody waits for, and that may go on as a job.
type Foreground struct {
	Command
	// After is how long to wait before it becomes a job; 0 is for ever.
	After time.Duration
	// Move, when it is closed, makes it a job at once; nil never does.
	Move <-chan struct{}

	// Unrecorded, Kill, Separate and Live are those of [bash.Options].
	Unrecorded bool
	Kill       <-chan struct{}
	Separate   bool
	Live       io.Writer

	// Refused is told once why it does not become a job, and is waited for instead; may be nil.
	Refused func(error)
}

// Run runs a script under the supervisor and waits for its end, as [bash.Run] does. If it is asked to become a job
// before, Run returns what is known of it by then, and it goes on: its result is for [Take]. The supervisor records it, in
// either case. When ctx ends, or this process does, before it is a job, it is ended.
func (c *Client) Run(ctx context.Context, f Foreground) (bash.Result, *bash.Moved, error) {
	cwd := f.Dir
	if cwd == "" {
		var err error
		if cwd, err = os.Getwd(); err != nil {
			return bash.Result{}, nil, fmt.Errorf("finding the working directory: %w", err)
		}
	}
	got, err := c.connectOrStart(ctx)
	if err != nil {
		return bash.Result{}, nil, err
	}
	defer got.Close()
	q := request{
		Version: version, Op: "foreground", Script: exact(f.Script), Runs: exact(f.Runs), Shell: exact(f.Shell), Path: exact(f.Path), Dir: exact(f.Dir), Cwd: exact(cwd),
		Env: f.Env, Environ: bash.Unguarded(withhold.Environ()), Timeout: f.Timeout, Separate: f.Separate, MaxOutput: f.MaxOutput,
		Unrecorded: f.Unrecorded, Live: f.Live != nil, Sandbox: f.Sandbox, Redact: c.Redact,
	}
	q.asks(f.Terminal)
	if err := got.sendJSON(frameRequest, q); err != nil {
		return bash.Result{}, nil, fmt.Errorf("asking the supervisor: %w", err)
	}
	over := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { f.tell(ctx, got, over) })
	keys := newLine(got, over)
	keys.attach(f.Terminal, &telling)
	res, moved, err := f.follow(got, keys)
	close(over)
	telling.Wait()
	return res, moved, err
}

// Background is where scripts run that may become jobs: [bash.Background].
type Background struct {
	Client *Client
	Shell  string // the named shell in which they run; "" is one of their own for each
	Path   string // of the shell's program; "" is bash
}

var _ bash.Background = (*Background)(nil)

// RunOrMove implements [bash.Background].
func (b *Background) RunOrMove(ctx context.Context, o bash.Options, after time.Duration) (bash.Result, *bash.Moved, error) {
	return b.Client.Run(ctx, Foreground{
		Command: Command{Script: o.Script, Runs: o.Runs, Shell: b.Shell, Path: b.Path, Dir: o.Dir, Env: o.Env, Timeout: o.Timeout, MaxOutput: o.MaxOutput, Sandbox: o.Sandbox, Terminal: o.Terminal},
		After:   after, Move: o.Move, Unrecorded: o.Unrecorded, Kill: o.Kill, Separate: o.Separate, Live: o.Live,
	})
}

// tell passes on what the script is to do.
func (f *Foreground) tell(ctx context.Context, got *conn, over <-chan struct{}) {
	var after <-chan time.Time
	if f.After > 0 {
		t := time.NewTimer(f.After)
		defer t.Stop()
		after = t.C
	}
	stop, kill, move := ctx.Done(), f.Kill, f.Move
	for {
		var kind byte
		select {
		case <-over:
			return
		case <-stop:
			stop, kind = nil, frameStop
		case <-kill:
			kill, kind = nil, frameKill
		case <-after:
			after, kind = nil, frameMove
		case <-move:
			move, kind = nil, frameMove
		}
		_ = got.send(kind, nil) // a supervisor that is gone is seen by who reads
	}
}

// follow passes on output until the end, or until the script is a job.
func (f *Foreground) follow(got *conn, keys *line) (bash.Result, *bash.Moved, error) {
	var liveErr error
	for {
		kind, b, err := got.receive()
		if err != nil {
			return bash.Result{}, nil, lost("the supervisor is gone, and with it what ran under it: what it printed is in the session", err)
		}
		if keys.frame(nil, kind, b) {
			continue
		}
		switch kind {
		case frameStdout:
			if liveErr == nil {
				_, liveErr = f.Live.Write(b)
			}
		case frameMoved:
			var m movedFrame
			if err := json.Unmarshal(b, &m); err != nil {
				return bash.Result{}, nil, fmt.Errorf("asking the supervisor: %w", err)
			}
			if m.Err == "" {
				return bash.Result{LiveErr: liveErr}, &bash.Moved{Start: m.Start, Entry: m.Entry, Summary: m.Summary.received()}, nil
			}
			if f.Refused != nil {
				f.Refused(errors.New(m.Err))
			}
		case frameResult:
			var e resultFrame
			if err := json.Unmarshal(b, &e); err != nil {
				return bash.Result{}, nil, fmt.Errorf("asking the supervisor: %w", err)
			}
			if e.Err != "" {
				err = errors.New(e.Err)
			}
			res := e.received()
			res.LiveErr = liveErr
			return res, nil, err
		default:
			_, err := answer(kind, b)
			return bash.Result{}, nil, err
		}
	}
}
