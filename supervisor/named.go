package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
	"github.com/agentrun/agentrun/tool/shell"
)

// named is a shell that goes on, or a kernel.
type named struct {
	*shell.Shell
	kernel *python.Kernel // nil for a shell
	path   string         // of its program, as it was asked for; "" is what was found
	note   string         // for those who run something in it; "" for none
	fresh  bool           // nobody was told yet that it is not the one that earlier scripts of its name ran in
	users  int
	idle   *time.Timer
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
		n.fresh = twins == 0
		n.idle = time.AfterFunc(s.opts.ShellIdle, func() { s.retire(key) })
		s.shells[key] = n
	}
	if err := n.runs(q); err != nil {
		return nil, nil, err
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
	n = &named{path: string(q.Path)}
	if q.Kernel != "" {
		n.kernel, err = python.New(python.Options{Path: string(q.Path), Dir: string(q.Cwd), Environ: q.Environ, Sandbox: q.Sandbox})
	} else {
		n.Shell, err = shell.New(shell.Options{Path: string(q.Path), Dir: string(q.Cwd), Environ: q.Environ, Sandbox: q.Sandbox})
	}
	return n, err
}

// runs refuses a request for another program than the one that there is, which would run a script of another language.
func (n *named) runs(q *request) error {
	if q.Path == "" || string(q.Path) == n.path {
		return nil
	}
	kind, name := q.named()
	is := n.path
	if n.kernel == nil {
		want, err := bash.FindShell(string(q.Path), string(q.Cwd))
		if err != nil {
			return err
		}
		if is = n.Shell.Path(); is == want {
			return nil
		}
	}
	if is == "" {
		is = "what was found when it began"
	}
	return fmt.Errorf("the %s %s runs %s, not %s: leave the program out, or give another name", kind, name, is, string(q.Path))
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
		exit.Fresh = s.tells(n)
		return exit, err
	})
}

// tells reports whether a script's end is to tell that n is a new one. Once is enough; what ran in a copy of it, or as a
// job, told nobody.
func (s *server) tells(n *named) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := n.fresh
	n.fresh = false
	return fresh
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
