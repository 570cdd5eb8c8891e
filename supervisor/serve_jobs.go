package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
)

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
		return errors.New("it reads nothing: it was moved to the background, and its input is empty")
	}
	if q.Text != "" {
		_ = j.stdin.SetWriteDeadline(time.Now().Add(sendWait))
		n, err := j.stdin.WriteString(string(q.Text))
		switch {
		case errors.Is(err, os.ErrClosed):
			return errors.New("it was not sent, because its input was ended (--eof)")
		case errors.Is(err, syscall.EPIPE) && n == 0:
			return errors.New("it was not sent, because the command has closed its input")
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%d of %d bytes were sent: the command has read no more for %s", n, len(q.Text), quantity.Time(sendWait))
		case err != nil:
			return fmt.Errorf("%d of %d bytes were sent: %w", n, len(q.Text), err)
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
