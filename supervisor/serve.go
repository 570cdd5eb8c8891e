package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/cgroup"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
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

// Serve is the supervisor of a session, until it has nothing to do or ctx is done. It returns nil at once where the
// session has one. This process may have no other children than those of Serve.
func Serve(ctx context.Context, o Options) error {
	_ = cgroup.LeaveRun() // where that is refused, who started it may take it along when it is killed, and lets it go else
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
