package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
)

// Kernel is a named kernel of a session, under its supervisor.
type Kernel struct {
	Client *Client
	Name   string
	Path   string // of its interpreter, when it is made; "" is found
	Cwd    string // where it starts, when it is made
	// Sandbox is what it may do, see [Command].
	Sandbox *sandbox.Policy
}

var _ python.Runner = (*Kernel)(nil)

// asked is what code in a cell asks for, and the answer.
type asked struct {
	ID    int             `json:"id"`
	Op    string          `json:"op,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Directory is where the kernel is; "" is not known. It is asked by [bash.Run].
func (k *Kernel) Directory() string {
	return k.Client.directory(request{Op: "where", Kernel: exact(k.Name), Sandbox: k.Sandbox})
}

// RunCell implements [python.Runner].
func (k *Kernel) RunCell(ctx context.Context, c *python.Cell) (exit bash.Exit, outcome python.Outcome, err error) {
	exit.Code = bash.CodeFailure
	got, err := k.Client.connectOrStart(ctx)
	if err != nil {
		return exit, outcome, err
	}
	defer got.Close()
	began := time.Now()
	err = got.sendJSON(frameRequest, request{
		Version: version, Op: "cell", Kernel: exact(k.Name), Path: exact(k.Path), Cwd: exact(k.Cwd), Script: exact(c.Text), Dir: exact(c.Dir), Env: c.Env,
		Environ: bash.Unguarded(withhold.Environ()), Timeout: c.Timeout, Separate: c.Separate, Sandbox: k.Sandbox,
	})
	if err != nil {
		return exit, outcome, fmt.Errorf("asking the supervisor: %w", err)
	}
	within, cancel := context.WithCancel(ctx)
	var asks sync.WaitGroup
	exit, err = follow(ctx, got, &c.Script, "the kernel "+k.Name, func(kind byte, b []byte) bool {
		var err error
		switch kind {
		case frameDisplay:
			var d python.Display
			if err = json.Unmarshal(b, &d); err == nil {
				outcome.Displays = append(outcome.Displays, d)
			}
		case frameOutcome:
			shown := outcome.Displays
			err = json.Unmarshal(b, &outcome)
			outcome.Displays = shown
		case frameAsk:
			var a asked
			if err = json.Unmarshal(b, &a); err == nil {
				asks.Go(func() { _ = got.sendJSON(frameReply, answerAsked(within, c, a)) })
			}
		default:
			return false
		}
		return err == nil
	})
	cancel()
	asks.Wait()
	exit.Began = began
	if exit.Fresh {
		k.Client.tellFresh(ctx, &exit, "kernel", k.Name, c.Run)
	}
	return exit, outcome, err
}

// ShellName is what the log calls the kernel. It is asked by [bash.Run].
func (k *Kernel) ShellName() string { return k.Name }

// cell runs a cell in a named kernel, for a client that waits.
func (s *server) cell(c *conn, q *request) error {
	if q.Kernel == "" {
		return errors.New("the kernel has no name")
	}
	n, release, err := s.hold(q)
	if err != nil {
		return err
	}
	defer release()
	host := &remoteHost{c: c, waiting: map[int]chan asked{}}
	return s.attend(c, q, host.reply, func(ctx context.Context, script *bash.Script) (bash.Exit, error) {
		exit, outcome, err := n.kernel.RunCell(ctx, &python.Cell{Script: *script, Host: host.ask})
		exit.Fresh = s.tells(n)
		if n.note != "" {
			exit.Notes = append(exit.Notes, n.note)
		}
		for _, d := range outcome.Displays { // each by itself: together they may be more than a frame
			_ = c.sendJSON(frameDisplay, d)
		}
		outcome.Displays = nil
		_ = c.sendJSON(frameOutcome, outcome)
		return exit, err
	})
}

// remoteHost has the client answer what code asks for.
type remoteHost struct {
	c       *conn
	mu      sync.Mutex
	last    int
	waiting map[int]chan asked
}

// ask is a python.Host.
func (h *remoteHost) ask(ctx context.Context, op string, args json.RawMessage) (any, error) {
	answer := make(chan asked, 1)
	h.mu.Lock()
	h.last++
	id := h.last
	h.waiting[id] = answer
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.waiting, id)
		h.mu.Unlock()
	}()
	if err := h.c.sendJSON(frameAsk, asked{ID: id, Op: op, Args: args}); err != nil {
		return nil, fmt.Errorf("agentrun.%s: asking who runs the cell: %w", op, err)
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return a.Value, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reply takes the answer.
func (h *remoteHost) reply(kind byte, b []byte) {
	var a asked
	if kind != frameReply || json.Unmarshal(b, &a) != nil {
		return
	}
	h.mu.Lock()
	answer := h.waiting[a.ID]
	delete(h.waiting, a.ID)
	h.mu.Unlock()
	if answer != nil {
		answer <- a
	}
}

// answerAsked answers what the code of a cell asks for.
func answerAsked(ctx context.Context, c *python.Cell, a asked) asked {
	reply := asked{ID: a.ID}
	value, err := c.Ask(ctx, a.Op, a.Args)
	if err == nil {
		reply.Value, err = json.Marshal(value)
	}
	if err == nil && len(reply.Value) > maxFrame-1<<10 {
		err = fmt.Errorf("agentrun.%s: the answer has %s, more than the %d MiB that are passed on at once", a.Op, quantity.Bytes(int64(len(reply.Value))), maxFrame>>20)
	}
	if err != nil {
		reply.Value, reply.Error = nil, err.Error()
	}
	return reply
}
