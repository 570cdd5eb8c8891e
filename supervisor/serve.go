package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
	"github.com/agentrun/agentrun/tool/shell"
)

// Options say whose supervisor to be.
type Options struct {
	Session string // its id
	// Open opens the session, to record a job.
	Open func(ctx context.Context) (*session.Session, *artifacts.Dir, error)
	// Redact makes what replaces secrets in a session; nil replaces nothing, whatever a client wants.
	Redact func(s *session.Session, r Redaction) *redact.Redactor
	Home   string
	// Ready is called once, when clients can connect; nil tells nobody.
	Ready func()
	// ShellIdle and Linger take the place of 30 minutes and one; 0 is those.
	ShellIdle, Linger time.Duration
}

// server is one supervisor at work.
type server struct {
	opts   Options
	ctx    context.Context // of all that runs
	cancel context.CancelFunc

	mu      sync.Mutex
	shells  map[string]*named
	jobs    map[int64]*job
	starts  int // jobs that are being started
	conns   int
	closing bool
	idle    *time.Timer
	running sync.WaitGroup
}

// named is a shell that goes on, or a kernel.
type named struct {
	*shell.Shell
	kernel *python.Kernel // nil for a shell
	note   string         // for those who run something in it; "" for none
	users  int
	idle   *time.Timer
}

// job is one that runs.
type job struct {
	kill  chan struct{}
	once  sync.Once
	stop  context.CancelFunc
	stdin *os.File // nil for one that was moved: it reads nothing

	terminal *bash.Terminal // nil for none
	done     chan struct{}
	stuck    stuck
}

// Serve is the supervisor of a session, until it has nothing to do or ctx is done. It returns nil at once where the
// session has one. This process may have no other children than those of Serve.
func Serve(ctx context.Context, o Options) error {
	if o.ShellIdle == 0 {
		o.ShellIdle = ShellIdle
	}
	if o.Linger == 0 {
		o.Linger = linger
	}
	p := placeOf(o.Home, o.Session)
	l, lock, err := p.listen()
	if errors.Is(err, errTaken) {
		if o.Ready != nil {
			o.Ready()
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	defer func() { _ = durable.OS.Remove(filepath.Join(p.dir, p.name+".sock")) }()
	if err := shim.Adopt(); err != nil {
		l.Close()
		return fmt.Errorf("becoming the owner of orphans: %w", err)
	}
	s := &server{opts: o, shells: map[string]*named{}, jobs: map[int64]*job{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	context.AfterFunc(s.ctx, func() { l.Close() })
	s.idle = time.AfterFunc(o.Linger, s.leaveIfIdle)
	if o.Ready != nil {
		o.Ready()
	}
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		if freePeer(c.(*net.UnixConn)) != nil || !s.enter() {
			c.Close()
			continue
		}
		s.running.Go(func() {
			defer s.leave()
			defer c.Close()
			s.serve(newConn(c))
		})
	}
	s.close()
	return nil
}

// enter counts a connection, unless the supervisor is about to go.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.conns++
	return true
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	s.idle.Reset(s.opts.Linger)
}

// leaveIfIdle ends the supervisor when there is nothing to supervise.
func (s *server) leaveIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == 0 && len(s.jobs) == 0 && len(s.shells) == 0 {
		s.closing = true
		s.cancel()
	}
}

// close ends everything.
func (s *server) close() {
	s.cancel()
	s.mu.Lock()
	s.closing = true
	s.idle.Stop()
	s.mu.Unlock()
	s.running.Wait()
	for name, n := range s.shells {
		n.idle.Stop()
		n.Close()
		delete(s.shells, name)
	}
}

// serve does what one client asks for.
func (s *server) serve(c *conn) {
	if c.send(frameReady, nil) != nil {
		return
	}
	kind, b, err := c.receive()
	if err != nil || kind != frameRequest {
		return
	}
	var q request
	if err := json.Unmarshal(b, &q); err != nil || q.Version != version {
		_ = c.send(frameError, []byte("the supervisor of this session is of another version of agentrun: wait until its shells and jobs have ended"))
		return
	}
	switch q.Op {
	case "run":
		err = s.run(c, &q)
	case "where":
		err = c.sendJSON(frameDone, done{Dir: exact(s.where(&q))})
	case "foreground":
		err = s.foreground(c, &q)
	case "cell":
		err = s.cell(c, &q)
	case "start":
		err = s.start(c, &q)
	case "wait":
		err = s.wait(c, &q)
	case "send":
		err = s.send(c, &q)
	case "screen":
		err = s.screen(c, &q)
	case "resize":
		err = s.resize(c, &q)
	case "kill":
		err = s.kill(c, &q)
	case "stop":
		err = s.stop(c)
	default:
		err = fmt.Errorf("there is no request %q", q.Op)
	}
	if err != nil {
		_ = c.send(frameError, []byte(err.Error()))
	}
}

// stop ends everything and answers when that is done.
func (s *server) stop(c *conn) error {
	s.mu.Lock()
	s.closing = true
	jobs := slices.Collect(maps.Values(s.jobs))
	shells := slices.Collect(maps.Values(s.shells))
	s.mu.Unlock()
	s.cancel()
	for _, j := range jobs {
		<-j.done
	}
	for _, n := range shells {
		n.Close()
	}
	ended := Stopped{Jobs: len(jobs)}
	for _, n := range shells {
		if n.kernel != nil {
			ended.Kernels++
		} else {
			ended.Shells++
		}
	}
	return c.sendJSON(frameDone, done{Stopped: ended})
}

// where is the directory of a named shell, or of a kernel.
func (s *server) where(q *request) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.shells[q.key()]; n != nil {
		return n.Directory()
	}
	return ""
}

// hold returns the named shell and keeps it until release is called.
func (s *server) hold(q *request) (n *named, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := q.key()
	n = s.shells[key]
	if n == nil {
		kind, name := q.named()
		there, twins := 0, 0
		for other := range s.shells {
			if strings.HasPrefix(other, kind+"\x00") {
				there++
			}
			if strings.HasPrefix(other+"\x00", kind+"\x00"+name+"\x00") {
				twins++
			}
		}
		if there >= MaxShells {
			return nil, nil, fmt.Errorf("the session has %d %ss, which is as many as it may have: wait until one has been idle for %s", MaxShells, kind, quantity.Time(s.opts.ShellIdle))
		}
		if n, err = q.make(); err != nil {
			return nil, nil, err
		}
		if twins > 0 {
			n.note = fmt.Sprintf("There is a %s %s with another sandbox; this one is of its own, and goes on beside it", kind, name)
		}
		q.fresh = twins == 0
		n.idle = time.AfterFunc(s.opts.ShellIdle, func() { s.retire(key) })
		s.shells[key] = n
	}
	n.users++
	n.idle.Stop()
	return n, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		n.users--
		n.idle.Reset(s.opts.ShellIdle)
	}, nil
}

// named is what the request is for, and its name.
func (q *request) named() (kind, name string) {
	if q.Kernel != "" {
		return "kernel", string(q.Kernel)
	}
	return "shell", string(q.Shell)
}

// key tells shells, and kernels, apart: by name, and by what they may do, which is for life. A state is never carried
// from one sandbox to another: what one left could do harm in a wider one.
func (q *request) key() string {
	kind, name := q.named()
	if q.Sandbox.IsZero() {
		return kind + "\x00" + name
	}
	policy, _ := json.Marshal(q.Sandbox) // came as JSON
	return kind + "\x00" + name + "\x00" + string(policy)
}

// make makes the shell or the kernel.
func (q *request) make() (n *named, err error) {
	n = &named{}
	if q.Kernel != "" {
		n.kernel, err = python.New(python.Options{Path: string(q.Path), Dir: string(q.Cwd), Environ: q.Environ, Sandbox: q.Sandbox})
	} else {
		n.Shell, err = shell.New(shell.Options{Path: string(q.Path), Dir: string(q.Cwd), Environ: q.Environ, Sandbox: q.Sandbox})
	}
	return n, err
}

// Directory is where it is.
func (n *named) Directory() string {
	if n.kernel != nil {
		return n.kernel.Directory()
	}
	return n.Shell.Directory()
}

// Close ends it.
func (n *named) Close() error {
	if n.kernel != nil {
		return n.kernel.Close()
	}
	return n.Shell.Close()
}

// RunScript implements [bash.Runner].
func (n *named) RunScript(ctx context.Context, c *bash.Script) (bash.Exit, error) {
	exit, err := n.Shell.RunScript(ctx, c)
	if n.note != "" {
		exit.Notes = append(exit.Notes, n.note)
	}
	return exit, err
}

// retire ends a shell that nobody has used for long.
func (s *server) retire(name string) {
	s.mu.Lock()
	n := s.shells[name]
	if n == nil || n.users > 0 || s.closing {
		s.mu.Unlock()
		return
	}
	delete(s.shells, name)
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	n.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.Reset(s.opts.Linger)
}

// run runs a script in a named shell, for a client that waits.
func (s *server) run(c *conn, q *request) error {
	n, release, err := s.hold(q)
	if err != nil {
		return err
	}
	defer release()
	return s.attend(c, q, nil, func(ctx context.Context, script *bash.Script) (bash.Exit, error) {
		exit, err := n.RunScript(ctx, script)
		exit.Fresh = q.fresh
		return exit, err
	})
}

// attend runs what a client waits for, listens to it meanwhile, and tells it the end. Frames of other kinds go to more, which may be nil.
func (s *server) attend(c *conn, q *request, more func(kind byte, b []byte), run func(context.Context, *bash.Script) (bash.Exit, error)) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	kill := make(chan struct{})
	term := q.terminalOf(c)
	keys := typist{c: c, t: term}
	var listening sync.WaitGroup
	listening.Go(func() {
		once := sync.OnceFunc(func() { close(kill) })
		for {
			kind, b, err := c.receive()
			switch {
			case err == nil && keys.frame(kind, b):
			case err != nil, kind == frameStop:
				cancel() // also when the client is gone
			case kind == frameKill:
				once()
			case more != nil:
				more(kind, b)
			}
			if err != nil {
				return
			}
		}
	})
	exit, err := run(ctx, &bash.Script{
		Text: string(q.Script), Dir: string(q.Dir), Env: q.Env, Separate: q.Separate, Terminal: term, Timeout: q.Timeout, Kill: kill,
		Stdout: frames{c, frameStdout}, Stderr: frames{c, frameStderr},
		Started: func(pid int) { _ = c.sendJSON(frameStarted, pid) },
	})
	if err == nil {
		_ = c.sendJSON(frameExit, exit) // a client that is gone has no use for it
	} else {
		_ = c.send(frameError, []byte(err.Error()))
	}
	c.Close()
	listening.Wait()
	keys.running.Wait()
	return nil
}

// frames sends output to a client. One that is gone is told by its connection, and the script is ended.
type frames struct {
	c    *conn
	kind byte
}

func (f frames) Write(b []byte) (int, error) {
	_ = f.c.send(f.kind, b)
	return len(b), nil
}

// start starts a job.
func (s *server) start(c *conn, q *request) error {
	if err := s.reserve(); err != nil {
		return err
	}
	sh, err := s.shellOfJob(q)
	if err != nil {
		s.unstart()
		return err
	}
	stdinR, stdinW, err := os.Pipe()
	if err != nil {
		sh.Close()
		s.unstart()
		return fmt.Errorf("making a pipe: %w", err)
	}
	log, dir, err := s.opts.Open(s.ctx)
	if err != nil {
		sh.Close()
		stdinR.Close()
		stdinW.Close()
		s.unstart()
		return err
	}
	s.redact(log, q)
	ctx, stop := context.WithCancel(s.ctx)
	j := newJob(stop)
	j.stdin = stdinW
	stdinPath := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), stdinR.Fd())
	if j.terminal = q.terminalOf(nil); j.terminal != nil {
		stdinPath = ""
	}
	begun := make(chan int64, 1)
	failed := make(chan error, 1)
	s.running.Go(func() {
		id := int64(-1)
		_, err := bash.Run(ctx, bash.Options{
			Script: string(q.Script), Runs: string(q.Runs), Dir: string(q.Dir), Env: q.Env, Timeout: q.Timeout, MaxOutput: q.MaxOutput,
			Shell: sh, Log: log, Artifacts: dir, Kill: j.kill, Job: true, Aside: q.Aside, Session: s.opts.Session, Redact: log.Redactor(),
			StdinPath: stdinPath, Terminal: j.terminal,
			Begun: func(b bash.Start) {
				id = *b.Artifact
				s.mu.Lock()
				s.jobs[id] = j
				s.starts--
				s.mu.Unlock()
				begun <- id
			},
		})
		stop()
		sh.Close()
		stdinR.Close()
		stdinW.Close()
		if id >= 0 {
			err = s.record(log, j, err)
		}
		err = errors.Join(err, log.Close())
		if id < 0 {
			s.unstart()
			failed <- err
		}
		s.mu.Lock()
		delete(s.jobs, id)
		s.idle.Reset(s.opts.Linger)
		s.mu.Unlock()
		close(j.done)
	})
	select {
	case id := <-begun:
		return c.sendJSON(frameDone, done{Job: id, Artifact: id})
	case err := <-failed:
		return err
	}
}

// reserve takes the place of a job, until that is in jobs or unstart is called.
func (s *server) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs)+s.starts >= MaxJobs {
		return fmt.Errorf("the session has %d jobs running, which is as many as it may have: wait for one, or kill one", MaxJobs)
	}
	s.starts++
	return nil
}

func (s *server) unstart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts--
}

// shellOfJob is a shell of the job's own; with a name it begins as that one is.
func (s *server) shellOfJob(q *request) (*shell.Shell, error) {
	if q.Shell == "" {
		return shell.New(shell.Options{Path: string(q.Path), Dir: string(q.Cwd), Environ: q.Environ, Once: true, Sandbox: q.Sandbox})
	}
	n, release, err := s.hold(q)
	if err != nil {
		return nil, err
	}
	defer release()
	return n.Copy(true)
}

// job finds a job that runs.
func (s *server) job(id int64) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil {
		return j, nil
	}
	return nil, ErrNotRunning
}

// ErrNotRunning is returned for a job that has ended, or is none.
var ErrNotRunning = errors.New("no such job is running")

// wait answers when the job has ended.
func (s *server) wait(c *conn, q *request) error {
	j, err := s.job(q.Job)
	if err != nil {
		return c.sendJSON(frameDone, done{Job: q.Job}) // the log says how
	}
	gone := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		_, _ = io.Copy(io.Discard, c.r)
		close(gone)
	})
	if err = j.ended(gone); err == nil {
		err = c.sendJSON(frameDone, done{Job: q.Job})
	} else {
		_ = c.send(frameError, []byte(err.Error()))
		err = nil
	}
	c.Close()
	listening.Wait()
	return err
}

// send gives a job something to read.
func (s *server) send(c *conn, q *request) error {
	j, err := s.job(q.Job)
	if err != nil {
		return err
	}
	if j.terminal != nil {
		if err := j.typeAt(q.Job, string(q.Text), q.EOF); err != nil {
			return err
		}
		return c.sendJSON(frameDone, done{Job: q.Job})
	}
	if j.stdin == nil {
		return fmt.Errorf("job %d reads nothing: it was moved to the background, and its input is empty", q.Job)
	}
	if q.Text != "" {
		_ = j.stdin.SetWriteDeadline(time.Now().Add(sendWait))
		if n, err := j.stdin.WriteString(string(q.Text)); err != nil {
			return fmt.Errorf("sending to job %d: it took %d of %d bytes, and has read no more for %s: %w", q.Job, n, len(q.Text), quantity.Time(sendWait), err)
		}
	}
	if q.EOF {
		_ = j.stdin.Close()
	}
	return c.sendJSON(frameDone, done{Job: q.Job})
}

// sendWait is how long a job may take to read what it is sent.
const sendWait = 10 * time.Second

// kill ends a job and answers when it has ended.
func (s *server) kill(c *conn, q *request) error {
	j, err := s.job(q.Job)
	if err != nil {
		return err
	}
	if q.Now {
		j.once.Do(func() { close(j.kill) })
	}
	j.stop()
	if err := j.ended(nil); err != nil {
		return err
	}
	return c.sendJSON(frameDone, done{Job: q.Job})
}
