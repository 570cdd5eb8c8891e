package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/internal/pipe"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/tool"
)

// Runner calls hooks.
type Runner struct {
	Hooks   []Hook // called in their order, one after the other
	Session string // its id
	Dir     string // of the session, absolute
	// Report is told, in a sentence, of a hook that failed; nil for nobody.
	Report func(error)
}

// untilGone is how long a hook that was killed is waited for.
const untilGone = 5 * time.Second

// Agent is what an agent calls. Start and stop are those of the agent of the session alone: for subagents leave them out.
func (r *Runner) Agent() agent.Hooks {
	var h agent.Hooks
	if r.any(SessionStart) {
		h.Start = func(ctx context.Context, resumed bool) {
			r.all(ctx, Input{Point: SessionStart, Agent: agent.MainID, Resumed: resumed})
		}
	}
	if r.any(BeforeTool) {
		h.BeforeCall = r.beforeCall
	}
	if r.any(AfterTool) {
		h.AfterCall = func(ctx context.Context, c agent.Call, res tool.Result) string {
			in := inputOf(AfterTool, c)
			in.Result = &Result{res.Text, res.IsError, res.Artifact}
			return strings.Join(r.all(ctx, in), "\n")
		}
	}
	if r.any(Stop) {
		h.Stop = func(ctx context.Context, answer string) string {
			return strings.Join(r.all(ctx, Input{Point: Stop, Agent: agent.MainID, Answer: answer}), "\n")
		}
	}
	return h
}

// Compacting calls the hooks that are called before a context is made shorter.
func (r *Runner) Compacting(ctx context.Context, agentID string, tokens int64) {
	r.all(ctx, Input{Point: BeforeCompaction, Agent: agentID, Tokens: tokens})
}

// Subagent are the hooks of a subagent: those of its tools, and that of the beginning of its session.
func (r *Runner) Subagent(id string) agent.Hooks {
	h := r.Agent()
	if h.Stop = nil; h.Start != nil {
		h.Start = func(ctx context.Context, resumed bool) {
			r.all(ctx, Input{Point: SessionStart, Agent: id, Resumed: resumed})
		}
	}
	return h
}

func (r *Runner) any(p Point) bool {
	for _, h := range r.Hooks {
		if h.On == p {
			return true
		}
	}
	return false
}

func inputOf(p Point, c agent.Call) Input {
	in := Input{Point: p, Agent: c.Agent, Call: c.ID, Tool: c.Tool}
	if json.Valid(c.Arguments) {
		in.Arguments = c.Arguments
	}
	return in
}

// beforeCall returns why the first hook that denies a call does.
func (r *Runner) beforeCall(ctx context.Context, c agent.Call) error {
	for _, h := range r.Hooks {
		if !h.is(BeforeTool, c.Tool) {
			continue
		}
		said, err := r.call(ctx, h, inputOf(BeforeTool, c))
		switch {
		case err != nil && h.Required:
			return fmt.Errorf("%s is required, and failed: %w", h.name(), err)
		case said != "":
			return fmt.Errorf("denied by %s: %s", h.name(), said)
		}
	}
	return nil
}

// all calls the hooks of a point, and returns what they say.
func (r *Runner) all(ctx context.Context, in Input) (said []string) {
	for _, h := range r.Hooks {
		if !h.is(in.Point, in.Tool) {
			continue
		}
		if text, _ := r.call(ctx, h, in); text != "" {
			said = append(said, text)
		}
	}
	return said
}

// call calls a hook and reports its failure. The failure of a run that is cancelled is none of the hook's.
func (r *Runner) call(ctx context.Context, h Hook, in Input) (said string, err error) {
	in.Version, in.Session, in.CWD = 1, r.Session, r.Dir
	said, err = h.run(ctx, r.Dir, in)
	if err != nil && ctx.Err() == nil && r.Report != nil {
		r.Report(fmt.Errorf("%s failed: %w", h.name(), err))
	}
	return said, err
}

// run runs the command of a hook.
func (h Hook) run(ctx context.Context, dir string, in Input) (string, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(h.Timeout))
	defer cancel()
	status, out, errs, err := execute(ctx, h.Command, dir, data)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("it was killed after %v", time.Duration(h.Timeout))
	case err != nil:
		return "", err
	case out.over || errs.over:
		return "", fmt.Errorf("it wrote more than %d bytes", MaxOutput)
	case status.Signaled():
		return "", fmt.Errorf("%v ended it%s", status.Signal(), behind(errs))
	case status.ExitStatus() == 2:
		if text := errs.text(); text != "" {
			return text, nil
		}
		return "it gives no reason", nil
	case status.ExitStatus() != 0:
		return "", fmt.Errorf("its exit status is %d%s", status.ExitStatus(), behind(errs))
	}
	a, err := ParseAnswer(out.bytes.Bytes())
	if err != nil {
		return "", err
	}
	return a.text(in.Point), nil
}

// behind is what a hook wrote to standard error, for the end of a sentence.
func behind(errs *bounded) string {
	text, _, _ := strings.Cut(errs.text(), "\n")
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %.200q", text)
}

// bounded keeps the beginning of a stream.
type bounded struct {
	bytes bytes.Buffer
	over  bool
}

func (b *bounded) text() string {
	return strings.TrimSpace(strings.ToValidUTF8(b.bytes.String(), "\uFFFD"))
}

// read reads to the end, whatever there is of it.
func (b *bounded) read(f io.Reader) {
	_, _ = io.Copy(&b.bytes, io.LimitReader(f, MaxOutput))
	n, _ := io.Copy(io.Discard, f)
	b.over = n > 0
}

// execute runs a script with something on standard input, and ends all that it started.
func execute(ctx context.Context, script, dir string, stdin []byte) (status syscall.WaitStatus, out, errs *bounded, err error) {
	out, errs = &bounded{}, &bounded{}
	var ours, theirs [3]*os.File
	shut := func(files *[3]*os.File) {
		for i, f := range files {
			if f != nil {
				f.Close()
				files[i] = nil
			}
		}
	}
	defer shut(&ours)
	defer shut(&theirs)
	for i := range ours {
		if ours[i], theirs[i], err = pipe.Open(i > 0); err != nil {
			return status, out, errs, fmt.Errorf("starting it: %w", err)
		}
	}
	s, err := shim.Start(shim.Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Dir: dir, Env: withhold.Environ(), Files: theirs[:],
	})
	if err != nil {
		return status, out, errs, fmt.Errorf("starting it: %w", err)
	}
	shut(&theirs)
	var streams sync.WaitGroup
	in, stdout, stderr := ours[0], ours[1], ours[2]
	ours[0] = nil
	streams.Go(func() {
		_, _ = in.Write(stdin) // a hook may leave it unread
		in.Close()
	})
	streams.Go(func() { out.read(stdout) })
	streams.Go(func() { errs.read(stderr) })
	select {
	case <-s.Done():
	case <-ctx.Done():
		err = ctx.Err()
		s.Kill(untilGone)
	}
	if err != nil { // whoever holds the pipes still is deaf to SIGKILL
		in.Close()
		stdout.Close()
		stderr.Close()
	}
	streams.Wait()
	if err == nil {
		status = s.Status().Wait
	}
	return status, out, errs, err
}
