package task

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task/isolation"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
	"github.com/agentrun/agentrun/usage"
)

// report is what a parent is told of one subagent.
type report struct {
	id     artifacts.AgentID
	typ    string
	end    End
	text   string
	result []byte // JSON, nil when it has no schema
	took   time.Duration

	keepSpace bool // its files are all that there is of what it changed
}

// finish brings a subagent to its end, and keeps what came of it. The error is agentrun's own.
func (t *Tree) finish(ctx context.Context, p *Parent, j *job, at *place, shared string) (report, error) {
	began := time.Now()
	if j.end != nil {
		if err := t.clearLeft(ctx, p, *j.end); err != nil {
			return report{}, err
		}
		t.told(j.id, *j.end)
		return t.kept(ctx, j)
	}
	s, err := at.wait(ctx)
	if err != nil {
		return t.keep(ctx, p, j, report{id: j.id, typ: j.typ.Name, end: End{Status: Cancelled, Reason: "it was cancelled before it started"}})
	}
	defer s.free()
	r, err := t.work(ctx, p, j, s, shared)
	if err != nil {
		return r, fmt.Errorf("running %s: %w", j.id, err)
	}
	r.took = time.Since(began)
	stays := r.keepSpace || r.goesOn(ctx, j)
	if r, err = t.keep(ctx, p, j, r); err == nil && !stays {
		err = t.vacate(context.WithoutCancel(ctx), j.id.String())
	}
	return r, err
}

// goesOn reports whether a subagent was stopped that goes on when the run of its parent does.
func (r *report) goesOn(ctx context.Context, j *job) bool {
	return j.late && ctx.Err() != nil && r.end.Status == Cancelled
}

// announce tells whoever observes the tree of subagents that have their ids, in their order.
func (t *Tree) announce(jobs []*job) {
	if t.o.Observe == nil {
		return
	}
	for _, j := range jobs {
		t.o.Observe(j.id.String(), agent.Spawned{Type: j.typ.Name})
	}
}

// told tells whoever observes the tree of an end that is in the log.
func (t *Tree) told(id artifacts.AgentID, end End) {
	if t.o.Observe == nil {
		return
	}
	url := ""
	if end.Version > 0 {
		url = "agent://" + id.String()
	}
	t.o.Observe(id.String(), agent.Reported{Status: string(end.Status), Reason: end.Reason, URL: url, Spent: end.Spent})
}

// errStopped is told of a subagent in the background whose parent was stopped. It goes on with that.
var errStopped = errors.New("its run was stopped")

// work runs a subagent in its own session. The error is that of one that came to no end, and goes on when it is run again.
func (t *Tree) work(ctx context.Context, p *Parent, j *job, s *slot, shared string) (report, error) {
	r := report{id: j.id, typ: j.typ.Name}
	log, begun, err := t.open(ctx, p, j)
	if err != nil {
		return r.crashed(ctx, err)
	}
	defer log.Close()
	space, said, err := t.isolate(ctx, p, j, begun)
	if err != nil {
		return r.crashed(ctx, err)
	}
	r.end.Isolation = j.kindOf()
	if r.end.Isolation == isolation.None {
		r.end.Isolation = ""
	}
	of := Subagent{ID: j.id, Type: j.typ, Session: log, Dir: p.dir, Isolated: p.isolated, Repository: p.repo}
	if space != nil {
		of.Dir, of.Isolated = space.Dir(), true
		if of.Repository, err = space.Repository(ctx); err != nil {
			return r.crashed(ctx, err)
		}
	}
	if r, err = t.run(ctx, p, j, s, shared, r, of, said, begun); err == nil && space != nil && !r.goesOn(ctx, j) {
		err = t.handIn(context.WithoutCancel(ctx), space, &r)
	}
	return r, err
}

// crashed is the report of one that could not begin or go on. The error is that of work. That its parent was stopped is no fault
// of its session.
func (r report) crashed(ctx context.Context, err error) (report, error) {
	if passes(err) {
		return r, err
	}
	r.end.Status, r.end.Reason = Crashed, err.Error()
	if ctx.Err() != nil {
		r.end.Status, r.end.Reason = Cancelled, "it was cancelled before it began or went on"
	}
	return r, nil
}

// run runs a subagent. The error is that of work.
func (t *Tree) run(ctx context.Context, p *Parent, j *job, s *slot, shared string, r report, of Subagent, said string, begun bool) (report, error) {
	log := of.Session
	limits := j.limits(t.o.Limits)
	budget := agent.NewBudget(p.Budget, limits)
	self := t.withKin(Parent{ID: j.id, Session: log, Budget: budget, Model: j.model, Spawns: j.typ.Spawns, depth: p.depth + 1, line: append(slices.Clip(p.line), j.typ), slot: s, dir: of.Dir, isolated: of.Isolated, repo: of.Repository})
	defer self.Stop()
	tools, release, err := t.toolsOf(ctx, self, of)
	if err != nil {
		return r.crashed(ctx, err)
	}
	defer release()
	y := &yield{schema: j.schema, raw: j.Schema}
	o := agent.Options{
		Session: log, Model: j.model, ID: j.id.String(), System: entry.Prompt{j.typ.System}, Thinking: j.Effort,
		Limits: agent.Limits{Time: limits.Time}, Budget: budget, Rules: t.o.Rules, Dir: of.Dir, Ask: t.o.Ask, Artifacts: t.o.Artifacts, Retries: t.o.Retries,
	}
	if said != "" {
		o.System = append(o.System, said)
	}
	if o.Thinking == "" {
		o.Thinking = j.typ.Thinking
	}
	self.Attach(&o)
	var other *program
	if j.typ.Runner == RunnerCommand {
		other, tools = &program{tree: t, of: of}, nil
		o.Model, o.Retries.Tries, o.Retries.Silence = other, 1, forever
	} else if j.schema != nil {
		tools = append(tools, y)
		o.Done, o.Next = y.done, y.remind
	}
	if t.o.Observe != nil {
		o.Observe = func(e agent.Event) { t.o.Observe(j.id.String(), e) }
	}
	if o.Tools, err = toolset.New(tools...); err != nil {
		return r.crashed(ctx, err)
	}
	if t.o.Prepare != nil {
		t.o.Prepare(&o)
	}
	if other != nil {
		o.Compact = nil // its context is its own
	}
	a, err := agent.New(o)
	if err != nil {
		return r.crashed(ctx, err)
	}
	var out agent.Outcome
	if begun {
		out, err = a.Resume(ctx)
	} else {
		task := j.Task
		if other != nil && j.typ.System != "" { // a model has it beside the prompt
			task = j.typ.System + "\n\n" + task
		}
		out, err = a.Run(ctx, prompt(shared, task))
	}
	if err != nil {
		return r.crashed(ctx, err)
	}
	if out.Status == agent.Completed {
		self.kin.wait(ctx) // it may have handed in its report before those in the background have
	}
	r.end.Status, r.end.Reason, r.end.Spent, r.end.Run, r.text = statusOf(out.Status), out.Reason, out.Spent, out.Run, out.Text
	if other != nil {
		if r.text == printedNothing {
			r.text = "" // which is told with its transcript
		}
		if r.text = cmp.Or(r.text, other.said); other.cut && r.end.Status == Failed {
			r.end.Status = Crashed
		}
		if j.schema != nil {
			j.judgeProgram(&r, other.structured)
		}
	} else if j.schema != nil {
		if err := y.judge(ctx, log, &r); err != nil {
			return r.crashed(ctx, err)
		}
	}
	return r, nil
}

// forever is longer than any program is waited for; its limits say how long.
const forever = 1 << 62

// passes reports whether an error is none of the session that met it, and may be gone when its run is resumed: a disk that is
// full or fails, a quota, a machine without descriptors or memory, a session that somebody else drives or has taken away.
func passes(err error) bool {
	var pending *session.PendingError
	if errors.As(err, &pending) || errors.Is(err, session.ErrLocked) || errors.Is(err, session.ErrGone) || errors.Is(err, usage.ErrQuota) || errors.Is(err, tool.ErrUnfinished) {
		return true
	}
	var no syscall.Errno
	return errors.As(err, &no) && slices.Contains(passing, no)
}

var passing = []syscall.Errno{
	syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR,
}

// open opens the session of a subagent, or makes it. begun says that it has a run to go on with.
func (t *Tree) open(ctx context.Context, p *Parent, j *job) (s *session.Session, begun bool, err error) {
	dir := p.Session.ArtifactsDir()
	path := filepath.Join(dir, j.id.String()+".jsonl")
	defer func() {
		if err == nil {
			s.SetRedactor(t.o.Root.Redactor())
		}
	}()
	s, err = t.o.Manager.Open(ctx, path)
	switch {
	case err == nil:
		leaf, err := s.Leaf(ctx)
		if err != nil {
			s.Close()
			return nil, false, err
		}
		return s, leaf != "", nil
	case !errors.Is(err, session.ErrNotFound) && !errors.Is(err, fs.ErrNotExist):
		return nil, false, err
	}
	s, err = t.o.Manager.CreateNested(ctx, t.o.Root, j.id, t.o.Root.CWD())
	return s, false, err
}

// keep writes the output of a subagent, once, and then its end.
func (t *Tree) keep(ctx context.Context, p *Parent, j *job, r report) (report, error) {
	if r.goesOn(ctx, j) {
		return r, errStopped
	}
	ctx = context.WithoutCancel(ctx)
	t.clear(&r)
	r.end.ID, r.end.Ended, r.end.Late = r.id.String(), time.Now().UTC(), j.late
	before, err := p.kin.lastEnd(ctx, r.id)
	if err != nil {
		return r, err
	}
	// A crash may have come between the output and its end.
	written, err := t.o.Artifacts.HasAgent(ctx, r.id, before.Version+1)
	if err != nil {
		return r, fmt.Errorf("looking for the output of %s: %w", r.id, err)
	}
	switch {
	case written:
		r.end.Version = before.Version + 1
	case r.end.Status == Cancelled && r.text == "" && r.result == nil:
		r.end.Version = before.Version // there is nothing to keep, and it may yet go on
	default:
		text := r.text
		if r.result != nil {
			text = string(r.result)
		}
		if text == "" {
			text = r.empty()
		}
		written, err := t.o.Artifacts.WriteAgent(ctx, r.id, artifacts.Output{Text: []byte(text), JSON: r.result})
		if err != nil {
			return r, fmt.Errorf("keeping the output of %s: %w", r.id, err)
		}
		r.end.Version = written.Version
	}
	if err := record(ctx, p.Session, EndType, r.end); err != nil {
		return r, err
	}
	p.kin.ended(r.end)
	t.told(r.id, r.end)
	return r, nil
}

// clear replaces the secrets of a report, if the tree does: texts of the log have none, errors and signed answers may.
func (t *Tree) clear(r *report) {
	by := t.o.Root.Redactor()
	if by == nil {
		return
	}
	for _, text := range []*string{&r.text, &r.end.Reason} {
		if left, n := by.Text([]byte(*text)); n > 0 {
			*text = string(left)
		}
	}
	r.result, _ = by.JSON(r.result)
}

// kept is the report of a subagent that came to its end before.
func (t *Tree) kept(ctx context.Context, j *job) (report, error) {
	r := report{id: j.id, typ: j.typ.Name, end: *j.end}
	if r.end.Version == 0 {
		return r, nil
	}
	f, _, err := t.o.Artifacts.OpenAgent(ctx, j.id, r.end.Version)
	if err != nil {
		return r, fmt.Errorf("reading the output of %s: %w", j.id, err)
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return r, fmt.Errorf("reading the output of %s: %w", j.id, err)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, n))
	if err != nil {
		return r, fmt.Errorf("reading the output of %s: %w", j.id, err)
	}
	if r.text = string(text); j.schema != nil && json.Valid(text) {
		r.result = text
	}
	return r, nil
}
