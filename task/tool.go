package task

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

// Tool is the tool by which an agent starts subagents.
func (t *Tree) Tool(p Parent) tool.Tool { return taskTool{t, &p} }

type taskTool struct {
	tree   *Tree
	parent *Parent
}

// Name implements [tool.Tool], here and below.
func (taskTool) Name() string { return "task" }

func (t taskTool) Description() string {
	var b strings.Builder
	b.WriteString("Gives pieces of work to subagents, which work side by side, and returns what each reports. " +
		"A subagent knows nothing of this conversation: say in its task, or in context for all, what it needs. " +
		"The whole report of each is agent://<id>, a part of one with a schema agent://<id>/path/to/it. Agents:")
	for _, typ := range t.tree.o.Types {
		if t.parent.Spawns == nil || slices.Contains(t.parent.Spawns, typ.Name) {
			fmt.Fprintf(&b, "\n- %s: %s", typ.Name, typ.Description)
		}
	}
	return b.String()
}

func (taskTool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "context": {"type": "string", "description": "What all of them need to know."},
    "background": {"type": "boolean", "description": "Return at once; what each reports is handed to you when it is there."},
    "tasks": {
      "type": "array", "minItems": 1, "maxItems": 64,
      "items": {
        "type": "object",
        "properties": {
          "name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "A short name, such as Review: letters, digits, _ and -."},
          "agent": {"type": "string", "description": "The kind of agent; task if none is given."},
          "task": {"type": "string", "minLength": 1, "description": "What to do, and what to report."},
          "isolation": {"type": "string", "enum": ["none", "worktree", "copy"], "description": "Files of its own to change: a work tree of git at what you have now, or a copy. Its change comes as a patch, which merge brings into your files."},
          "effort": {"type": "string", "enum": ["off", "minimal", "low", "medium", "high", "xhigh"], "description": "How much it thinks."},
          "schema": {"type": "object", "description": "JSON Schema of the report, if it is to be JSON."},
          "limits": {
            "type": "object",
            "properties": {
              "requests": {"type": "integer", "minimum": 1}, "tokens": {"type": "integer", "minimum": 1},
              "cost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars"}, "seconds": {"type": "number", "exclusiveMinimum": 0}
            },
            "additionalProperties": false
          }
        },
        "required": ["task"],
        "additionalProperties": false
      }
    }
  },
  "required": ["tasks"],
  "additionalProperties": false
}`)
}

// Idempotent is true: a call that is made again goes on with the subagents that it has.
func (taskTool) Idempotent() bool { return true }

// KnowsCalls says that such a call needs no arguments but those that say how many there are.
func (taskTool) KnowsCalls() {}

// ParallelSafe is true: subagents of several calls work side by side as those of one do.
func (taskTool) ParallelSafe() bool { return true }

type input struct {
	Context    string `json:"context"`
	Background bool   `json:"background"`
	Tasks      []item `json:"tasks"`
}

type item struct {
	Name      string          `json:"name"`
	Agent     string          `json:"agent"`
	Task      string          `json:"task"`
	Effort    string          `json:"effort"`
	Isolation string          `json:"isolation"`
	Schema    json.RawMessage `json:"schema"`
	Limits    struct {
		Requests int     `json:"requests"`
		Tokens   int64   `json:"tokens"`
		Cost     float64 `json:"cost"`
		Seconds  float64 `json:"seconds"`
	} `json:"limits"`
}

// job is a checked item.
type job struct {
	item
	id     artifacts.AgentID
	typ    Type
	model  model.Model
	schema *jsonschema.Resolved
	end    *End // of one that came to its end before a crash
	late   bool // no call waits for it
}

// Call starts subagents, or goes on with those of the call, and waits for their ends.
func (t taskTool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in input
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	jobs, err := t.check(ctx, in)
	if err != nil {
		return tool.Refuse(err), nil
	}
	if err := t.reserve(ctx, jobs, raw, in.Background); err != nil {
		if no := (*refusal)(nil); errors.As(err, &no) {
			return tool.Refuse(fmt.Errorf("none was started: %w", no.error)), nil
		}
		return tool.Result{}, &unfinishedError{err}
	}
	if in.Background {
		t.tree.announce(jobs)
		return t.startInBackground(ctx, jobs, in.Context)
	}
	t.tree.announce(jobs)
	t.parent.slot.lend()
	defer t.parent.slot.reclaim()
	reports := make([]report, len(jobs))
	errs := make([]error, len(jobs))
	var group sync.WaitGroup
	for i, j := range jobs {
		var at *place
		if j.end == nil {
			at = t.tree.slots.queue()
		}
		group.Go(func() { reports[i], errs[i] = t.tree.finish(ctx, t.parent, j, at, in.Context) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return tool.Result{}, &unfinishedError{err}
	}
	return answer(reports), nil
}

// refusal is why a call is answered with a sentence.
type refusal struct{ error }

// unfinishedError is that of a call whose subagents go on when it is made again. It matches tool.ErrUnfinished.
type unfinishedError struct{ err error }

func (e *unfinishedError) Error() string        { return e.err.Error() }
func (e *unfinishedError) Unwrap() error        { return e.err }
func (e *unfinishedError) Is(target error) bool { return target == tool.ErrUnfinished }

// check refuses a call as a whole: nothing starts unless all can.
func (t taskTool) check(ctx context.Context, in input) ([]*job, error) {
	if t.parent.depth >= t.tree.o.Depth {
		return nil, fmt.Errorf("no subagent can be started here: there are %d levels of agents at most", t.tree.o.Depth)
	}
	if len(in.Tasks) == 0 || len(in.Tasks) > MaxItems {
		return nil, fmt.Errorf("give 1 to %d tasks, not %d", MaxItems, len(in.Tasks))
	}
	var jobs []*job
	for i, it := range in.Tasks {
		j := &job{item: it}
		err := t.checkItem(j)
		if err == nil {
			err = t.tree.checkIsolation(ctx, t.parent, j)
		}
		if err != nil {
			return nil, fmt.Errorf("task %d (%.60s) cannot be started, and so none was: %w", i+1, j.Name, err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (t taskTool) checkItem(j *job) (err error) {
	if j.typ, err = t.tree.find(t.parent, j.Agent); err != nil {
		return err
	}
	if j.Name == "" {
		j.Name = strings.ToUpper(j.typ.Name[:1]) + j.typ.Name[1:]
	}
	if _, err := artifacts.ParseAgentID(j.Name); err != nil || strings.Contains(j.Name, ".") {
		return errors.New("its name cannot be part of an id: give letters, digits, _ and -, and no v with a number, which is a version")
	}
	if by := t.tree.o.Root.Redactor(); by != nil {
		if _, n := by.Text([]byte(j.Name)); n > 0 {
			return errors.New("its name has a secret in it, and would be that of files")
		}
	}
	if strings.TrimSpace(j.Task) == "" {
		return errors.New("it says nothing to do")
	}
	if j.model = t.parent.Model; j.typ.Model != "" && j.typ.Runner == "" {
		if t.tree.o.Model == nil {
			return fmt.Errorf("its agent wants the model %s, and there is no other here than %s", j.typ.Model, t.parent.Model.Info().Name())
		}
		if j.model, err = t.tree.o.Model(j.typ.Model); err != nil {
			return err
		}
	}
	if err := t.tree.checkRunner(j.typ); err != nil {
		return err
	}
	if j.typ.Runner != "" && !t.parent.may("bash") {
		return errors.New("its agent is a program, and the one that starts it may run none")
	}
	if j.Schema != nil {
		if j.schema, err = toolset.Compile(j.Schema); err != nil {
			return fmt.Errorf("its schema: %w", err)
		}
	}
	return nil
}

// limits of a subagent: the narrower of what the tree and the call say.
func (j *job) limits(all agent.Limits) agent.Limits {
	least := func(a, b float64) float64 {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	l := j.item.Limits
	return agent.Limits{
		Requests: int(least(float64(all.Requests), float64(l.Requests))),
		Tokens:   int64(least(float64(all.Tokens), float64(l.Tokens))),
		Cost:     least(all.Cost, l.Cost),
		Time:     time.Duration(least(float64(all.Time), l.Seconds*float64(time.Second))),
	}
}

// reserve gives each job its id, in their order: those of a call that a crash cut off are found again.
func (t taskTool) reserve(ctx context.Context, jobs []*job, raw json.RawMessage, background bool) error {
	call := tool.CallOf(ctx)
	spawn, ends, err := spawned(ctx, t.parent.Session, call)
	if err != nil {
		return fmt.Errorf("looking for the subagents of a call: %w", err)
	}
	if spawn != nil && len(spawn.Agents) == len(jobs) {
		for i, s := range spawn.Agents {
			if jobs[i].id, err = artifacts.ParseAgentID(s.ID); err != nil {
				return fmt.Errorf("going on with a subagent: %w", err)
			}
			if end, ok := ends[s.ID]; ok {
				jobs[i].end = &end
			}
		}
		return nil
	}
	if err := t.parent.Budget.Start(len(jobs)); err != nil {
		return &refusal{err}
	}
	spawn = &Spawn{Call: call, Input: raw, Background: background}
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Name
	}
	// A call that no log has cannot be made again.
	ids, err := t.tree.o.Artifacts.ReserveAll(ctx, t.parent.ID, names, artifacts.Provenance{Run: cmp.Or(call, uuid.NewString())})
	if err != nil {
		return err
	}
	for i, j := range jobs {
		j.id = ids[i]
		spawn.Agents = append(spawn.Agents, Spawned{j.id.String(), j.typ.Name, j.Task, time.Now().UTC()})
	}
	if err := record(ctx, t.parent.Session, SpawnType, spawn); err != nil {
		return err
	}
	return t.parent.kin.started(ctx, *spawn)
}

// startInBackground starts subagents that nobody waits for, but those that have ended or are at work already.
func (t taskTool) startInBackground(ctx context.Context, jobs []*job, shared string) (tool.Result, error) {
	var b strings.Builder
	b.WriteString("Started in the background. What each reports is handed to you when it is there, and stays at its URL:")
	for _, j := range jobs {
		fmt.Fprintf(&b, "\n- %s (%s): agent://%[1]s", j.id, j.typ.Name)
		if j.end == nil {
			t.parent.kin.launch(ctx, j, shared)
		}
	}
	return tool.Result{Text: b.String()}, nil
}
