// Package task runs subagents: agents that another agent gives a piece of its work to.
//
// A [Tree] is the subagents of one run, at any depth. It hands out the task tool ([Tree.Tool]), decides who works when,
// and keeps what comes of it.
//
// # Promises
//
//   - An id is <index>-<name>, below its parent's with a dot between; the index counts over the whole tree and is never
//     used again. A call's ids are taken in the order of its items before any of them starts, and the call's entry in the
//     parent's log ([SpawnType]) says so before that too.
//   - Each subagent has a session of its own, <id>.jsonl among the artifacts of the root, and the root's artifacts:
//     artifact://3 means the same to all of the tree.
//   - A result is written once, whole, as <id>.md and, if it has a schema, <id>.json, before the parent is told. The
//     parent gets the beginning of it, its exact size, and agent://<id>. A status is what happened: see [Status].
//   - After kill -9 the call that started subagents, made again, goes on with the same ones: those that have a result give
//     that, others resume their own sessions. No id is taken twice, and no result is written twice.
//   - At most [Options].Concurrency subagents work at once; others wait in the order in which they came. Who waits for its
//     own subagents lends its slot, so that depth cannot lock the tree.
//   - What a subagent spends counts for each agent above it. Its permissions are those of its parent at most.
//   - A disk that is full or fails, of whichever agent below, ends no subagent and makes no result: it ends the run as failed,
//     and every agent goes on where it was when that is resumed.
//   - A subagent with isolation works in files of its own (see package isolation). What it changed there is an artifact before
//     its parent is told of its end, however that came; the files are removed behind that. [Merge] and the tool merge bring it
//     into the files of its parent. After kill -9 it goes on in the same files; spoken to after its end, it gets new ones, with
//     what it had changed.
//   - When the call is cancelled, so is everything below it.
//   - A call with background: true returns the ids at once. What these subagents report is a message ([ReportType]) to the
//     agent that started them, once each, also behind kill -9: the end is an entry, and so is the message, which names it. A
//     run waits for them behind its last answer; one that is stopped leaves them interrupted, and they go on when it does.
//   - What is said to a subagent after its end makes the run of its parent, before its next request or when it is resumed, run it again: its
//     output gets a new version, and its parent a message. One that a crash cut off in that goes on likewise.
//
// A Tree is safe for concurrent use.
package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
)

// Bounds of a tree.
const (
	DefaultConcurrency = 4
	DefaultDepth       = 2
	MaxItems           = 64 // of one call
	// DefaultAgents is how many subagents a run may start before it counts as running away.
	DefaultAgents = 1000
)

// Options say what a tree works with.
type Options struct {
	Manager   *session.Manager
	Root      *session.Session // the session of the run; its Redactor is that of the whole tree
	Artifacts *artifacts.Dir   // of Root

	// Dir is where the agent of Root works; "" is the directory of its session.
	Dir string
	// Spaces is the directory in which subagents get files of their own; it is made. "" refuses isolation.
	Spaces string
	// FS is the file system of these files; nil means the real one. Tests inject faults here.
	FS durable.FS
	// Sync has these files survive a power cut.
	Sync bool
	// Recorder is told of files that a merge changes; nil is nobody.
	Recorder Recorder

	Types []Type

	// Model opens the model of a type, "provider:id".
	Model func(name string) (model.Model, error)
	// Default is the model of those who name none.
	Default model.Model

	// Tools makes the tools of a subagent, without task and yield, which are added. They are closed by release.
	Tools func(ctx context.Context, of Subagent) (tools []tool.Tool, release func(), err error)

	// Command runs the program of a type with the runner command for a subagent, where it works, with stdin on its standard
	// input. It is recorded in the session of the subagent, and its output among Artifacts, as package bash does; with the
	// end of ctx everything that it started ends. nil refuses such types.
	Command func(ctx context.Context, of Subagent, argv []string, stdin string) (bash.Result, error)

	Concurrency int // subagents at work at once; 0 is DefaultConcurrency
	Depth       int // levels below the root; 0 is DefaultDepth, less than 0 none

	Limits agent.Limits // of each subagent, unless its call has narrower ones

	Rules   []*permission.Rules
	Ask     func(ctx context.Context, q agent.Question) (bool, error)
	Retries agent.Retries

	// Prepare may add to what a subagent is run with, such as hooks; nil adds nothing.
	Prepare func(o *agent.Options)

	// Observe is told what happens to subagents, from their goroutines, one at a time for each.
	Observe func(id string, e agent.Event)
}

// Subagent is one agent of a tree, as those who make its tools know it.
type Subagent struct {
	ID      artifacts.AgentID
	Type    Type
	Session *session.Session
	// Dir is where it works, and all that it may change if it is Isolated.
	Dir      string
	Isolated bool // or one above it is
	// Repository is that of git which the files belong to and which is not among them, to be read alone; "" without one.
	Repository string
}

// Tree is the subagents of one run.
type Tree struct {
	o     Options
	slots *slots
}

// New returns a tree without subagents.
func New(o Options) (*Tree, error) {
	if o.Manager == nil || o.Root == nil || o.Artifacts == nil || o.Default == nil || o.Tools == nil {
		return nil, errors.New("making a tree of agents: it needs a manager, a root, artifacts, a model and tools")
	}
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Depth == 0 {
		o.Depth = DefaultDepth
	}
	if o.Dir == "" {
		o.Dir = o.Root.CWD()
	}
	return &Tree{o: o, slots: &slots{free: o.Concurrency}}, nil
}

// Parent is an agent that starts subagents.
type Parent struct {
	ID      artifacts.AgentID // zero for the root
	Session *session.Session
	Budget  *agent.Budget // of the parent; nil is none
	Model   model.Model   // what subagents have that name none
	Spawns  []string      // the types that it may start; nil is all

	line     []Type // its own, and those of the agents above it
	dir      string // where it works
	isolated bool
	repo     string // of the files, where it is elsewhere
	depth    int
	slot     *slot
	kin      *kin
}

// Root is the parent that the run's own agent is.
func (t *Tree) Root(budget *agent.Budget) Parent {
	p := Parent{Session: t.o.Root, Budget: budget, Model: t.o.Default, slot: &slot{}, dir: t.o.Dir}
	return t.withKin(p)
}

// RootAs is Root for an agent of a type: its list of tools, readOnly and spawns bind it, and those below it, as they bind a subagent.
// Its model is Options.Default. [Parent.Offer] are its tools.
func (t *Tree) RootAs(typ Type, budget *agent.Budget) Parent {
	p := Parent{Session: t.o.Root, Budget: budget, Model: t.o.Default, Spawns: typ.Spawns, line: []Type{typ}, slot: &slot{}, dir: t.o.Dir}
	return t.withKin(p)
}

// withKin gives a parent the record of its subagents.
func (t *Tree) withKin(p Parent) Parent {
	p.kin = newKin(t)
	p.kin.parent = p
	return p
}

// Attach lets an agent take up what its subagents report that no call of it waits for: background ones, and those that
// somebody said something to after their end. Behind the run of the agent comes [Parent.Stop].
func (p Parent) Attach(o *agent.Options) {
	o.Inbox, o.Pending, o.Await, o.Below = p.kin.inbox, p.kin.pending, p.kin.await, p.kin.spentSince
}

// Stop stops what is still at work in the background, and waits for its end. It goes on when the run is resumed.
func (p Parent) Stop() { p.kin.stop() }

// find returns a type that a parent may start.
func (t *Tree) find(p *Parent, name string) (Type, error) {
	if name == "" {
		name = "task"
	}
	var names []string
	for _, typ := range t.o.Types {
		if p.Spawns != nil && !slices.Contains(p.Spawns, typ.Name) {
			continue
		}
		if typ.Name == name {
			return typ, nil
		}
		names = append(names, typ.Name)
	}
	return Type{}, fmt.Errorf("there is no agent %.60q here; there are %s", name, strings.Join(names, ", "))
}

// toolsOf are the tools of a subagent.
func (t *Tree) toolsOf(ctx context.Context, p Parent, of Subagent) (tools []tool.Tool, release func(), err error) {
	all, release, err := t.o.Tools(ctx, of)
	if err != nil {
		return nil, nil, fmt.Errorf("making the tools of %s: %w", of.ID, err)
	}
	return p.Offer(all), release, nil
}

// Offer returns those of some tools that the agent may have, and the ones for subagents that it may have besides: task and merge.
func (p Parent) Offer(all []tool.Tool) (tools []tool.Tool) {
	for _, tl := range all {
		if p.may(tl.Name()) {
			tools = append(tools, tl)
		}
	}
	var own Type
	if n := len(p.line); n > 0 {
		own = p.line[n-1]
	}
	t := p.kin.tree
	mayTask := (own.Tools == nil || slices.Contains(own.Tools, "task")) && !slices.Contains(own.Without, "task")
	if mayTask && (own.Spawns == nil || len(own.Spawns) > 0) && p.depth < t.o.Depth {
		tools = append(tools, t.Tool(p))
		if t.o.Spaces != "" && !slices.Contains(own.Without, "merge") && !slices.ContainsFunc(p.line, func(typ Type) bool { return typ.ReadOnly }) {
			tools = append(tools, t.MergeTool(p))
		}
	}
	return tools
}

// may reports whether an agent may have a tool: its type and those of all agents above it let it.
func (p *Parent) may(name string) bool {
	for _, typ := range p.line {
		if typ.Tools != nil && !slices.Contains(typ.Tools, name) || slices.Contains(typ.Without, name) || typ.ReadOnly && !readOnly[name] {
			return false
		}
	}
	return true
}

// readOnly are the tools that change nothing.
var readOnly = map[string]bool{"read": true, "grep": true, "find": true, "skill": true}

// prompt is what a subagent is told first.
func prompt(shared, task string) entry.Content {
	if shared != "" {
		task = "<context>\n" + shared + "\n</context>\n\n" + task
	}
	return entry.PlainText(task)
}
