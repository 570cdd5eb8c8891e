package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/compact"
	"github.com/agentrun/agentrun/agent/hook"
	"github.com/agentrun/agentrun/agent/instructions"
	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/task/isolation"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/toolset"
	"github.com/spf13/cobra"
)

// Exit statuses of run and resume; statusError is a run that failed.
const (
	statusBudget      = 3
	statusInterrupted = 4
)

// agentCommand is the verbs run and resume with their flags.
type agentCommand struct {
	*environment
	model    string
	typ      string     // --agent
	as       *task.Type // that it names
	last     string     // the model of the last run, for a type without one
	mode     string
	board    *plan.Board
	thinking thinkingLevel
	cost     maxCost
	time     timeout
	retries  retries
	confine  confinement
	apart    bool // --detach
	record   string
	allow    allowedTools
	chat     *chatBackend // nil but for chat
	at       string       // the log of the session that a chat was in; "" where it has none
}

// run runs or, without a prompt, resumes.
func (c *agentCommand) run(ctx context.Context, prompt *string, id string) (err error) {
	if prompt != nil && *prompt == "-" {
		text, err := promptFrom(c.stdin)
		if err != nil {
			return err
		}
		prompt = &text
	}
	if prompt != nil && strings.TrimSpace(*prompt) == "" {
		return usagef("the prompt is empty: say what to do")
	}
	if _, err := c.askedMode(); err != nil {
		return err
	}
	if id != "" {
		c.session = id
	}
	if prompt == nil {
		m, s, err := c.view(ctx, id)
		if err != nil {
			return err
		}
		settled, err := task.Settled(ctx, m, s)
		if err == nil && !settled {
			c.session = s.Path()
			err = c.remember(ctx, s)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			return err
		}
		if settled { // which needs no model, and no home that can be written
			return c.leaveAlone(s.ID())
		}
	}
	b, err := c.workbench(ctx, c.confine.roots)
	if err != nil {
		return err
	}
	defer func() { err = b.close(err) }()
	if err := c.lastModel(ctx, b.session); err != nil {
		return err
	}
	mdl, err := c.chooseModel(b)
	if err != nil {
		return err
	}
	if prompt != nil {
		if err := c.interrupted(ctx, b.session); err != nil {
			return err
		}
	}
	set, err := c.settings(b.files.Dir())
	if err != nil {
		return err
	}
	if c.apart && prompt == nil {
		return c.detachAgain(ctx, b)
	}
	if err := c.confined(b); err != nil {
		return err
	}
	said, err := c.said(b, prompt)
	if err != nil {
		return err
	}
	with, err := c.enterMode(ctx, b, nil)
	if err != nil {
		return err
	}
	models, err := c.recording(mdl, b.session)
	if err != nil {
		return err
	}
	defer models.close()
	w, err := c.prepare(ctx, b, models, set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.release()) }()
	if c.apart {
		w.ask = nil // who would ask is in the background
		return c.detach(ctx, b, w, said, w.mention(ctx, b, prompt, with))
	}
	w.view.begun = func() {
		if b.session.Exists() {
			w.view.begun = nil
			b.begin()
		}
	}
	w.view.begin(b.session.ID())
	defer w.view.leave() // also when this panics
	sigs := c.catchSignals(ctx, endsRun)
	defer sigs.release()
	var out agent.Outcome
	if prompt != nil {
		with = w.mention(sigs.ctx, b, prompt, with)
		out, err = w.agent.Run(sigs.ctx, entry.PlainText(said), with...)
	} else {
		before, _ := agent.LastStart(ctx, b.session, agent.MainID) // the run itself says what cannot be read
		out, err = w.agent.Resume(sigs.ctx)
		if now, _ := agent.LastStart(ctx, b.session, agent.MainID); before != nil && before.Resumes == "" && now != nil && now.Answers == before.Answers {
			out.Resumed, out.CountedOn = false, false // nothing had come of the run by then: it was only taken over
		}
	}
	sigs.release()
	w.view.end(out)
	if err != nil {
		var locked *session.LockedError
		if prompt != nil && out.Run == "" && errors.As(err, &locked) {
			return fmt.Errorf("%w; agentrun task send main TEXT speaks to its agent, and --new begins another session", err)
		}
		if _, gone := os.Stat(b.session.Path()); gone == nil && out.Run != "" {
			err = fmt.Errorf("%w; when that is mended, agentrun resume goes on", err)
		}
		return err
	}
	return c.statusOf(out)
}

// maxPrompt bounds a prompt from standard input: no model takes more.
const maxPrompt = 8 << 20

// promptFrom reads a prompt from standard input.
func promptFrom(in *os.File) (string, error) {
	if in == nil {
		return "", usagef("the prompt - is standard input, and there is none")
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
	if err != nil {
		return "", fmt.Errorf("reading the prompt from standard input: %w", err)
	}
	if len(data) > maxPrompt {
		return "", usagef("the prompt from standard input is longer than %d MiB: put it into a file, and name that as @path", maxPrompt>>20)
	}
	return strings.ToValidUTF8(string(data), "\ufffd"), nil
}

// onePrompt takes the arguments of run.
func onePrompt(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("a prompt is one argument: quote it, as in agentrun run %s", bash.Quote([]string{strings.Join(args, " ")}))
	}
	return positional(1, 1, "a prompt")(cmd, args)
}

// leaveAlone is the end of resume for a run with which nothing goes on.
func (c *agentCommand) leaveAlone(session string) error {
	c.remark("the run is completed, and nothing is left to do")
	if !c.json {
		return nil
	}
	return printJSON(c.stdout, agentEvent{Version: 1, Agent: agent.MainID, Event: "begin", Session: session})
}

// chooseModel opens the model that flags, the log or the type of the agent name, in this order, and takes from the type how much
// it thinks.
func (c *agentCommand) chooseModel(b *workbench) (model.Model, error) {
	types, _ := agentTypes(b.session.CWD(), b.session.Home()) // whoever prepares the agent tells of problems
	if err := c.become(types); err != nil {
		return nil, err
	}
	mdl, err := c.openModel(c.model)
	if err != nil {
		return nil, err
	}
	c.model, err = lastingName(c.model)
	return mdl, err
}

// lastModel is that of the last run of the session, for a run that names none.
func (c *agentCommand) lastModel(ctx context.Context, s *session.Session) error {
	if c.model != "" || !s.Exists() {
		return nil
	}
	start, err := agent.LastStart(ctx, s, agent.MainID)
	if err != nil || start == nil {
		return err
	}
	if c.typ == "" {
		c.model = start.Spec
	}
	c.last = start.Spec // for a type that names none
	return nil
}

// become has the agent be of the type that --agent names.
func (c *agentCommand) become(types []task.Type) error {
	if c.as = nil; c.typ == "" {
		return nil
	}
	i := slices.IndexFunc(types, func(t task.Type) bool { return t.Name == c.typ })
	if i < 0 {
		return usagef("there is no agent %q: see agentrun agents", c.typ)
	}
	typ := types[i]
	if typ.Runner == task.RunnerCommand {
		return usagef("the agent %q is another program, which only an agent can start, with the tool task: run without --agent and ask for that", c.typ)
	}
	if typ.Isolation != "" && typ.Isolation != isolation.None {
		return usagef("the agent %q has files of its own (isolation: %s), which only subagents have: run without --agent and ask for that, or take isolation out of %s", c.typ, typ.Isolation, typ.Source)
	}
	c.as, c.model, c.thinking = &typ, cmp.Or(c.model, typ.Model, c.last), cmp.Or(c.thinking, thinkingLevel(typ.Thinking))
	return nil
}

// statusOf is the exit status of a run. A limit that a flag can raise is told with it.
func (c *agentCommand) statusOf(out agent.Outcome) error {
	reason := fmt.Errorf("the run did not complete: %s", out.Reason)
	switch out.Status {
	case agent.Completed:
		return nil
	case agent.BudgetEnd:
		if c.cost > 0 {
			reason = fmt.Errorf("%w; agentrun resume --max-cost N goes on until it has cost $N altogether", reason)
		}
		return &commandError{statusBudget, reason}
	case agent.TimeoutEnd:
		return &commandError{statusBudget, fmt.Errorf("%w; agentrun resume --max-time TIME goes on until it has taken TIME altogether", reason)}
	case agent.Cancelled:
		return &commandError{statusInterrupted, fmt.Errorf("%w; agentrun resume goes on", reason)}
	}
	return &commandError{statusError, fmt.Errorf("%w; when that is mended, agentrun resume goes on", reason)}
}

// work is an agent with what it works with.
type work struct {
	agent   *agent.Agent
	view    *agentView
	release func() error
	rules   []*permission.Rules
	ask     func(context.Context, agent.Question) (bool, error) // nil where nobody is
}

// confined gives the tools a sandbox: the one that flags and settings name, else the workspace where that is possible.
func (c *agentCommand) confined(b *workbench) (err error) {
	if b.policy, err = c.policy(b.session, &c.confine, ""); err != nil || b.policy != nil || c.confine.mode != "" {
		return err
	}
	c.confine.mode = sandboxMode(sandbox.Workspace)
	p, err := c.policy(b.session, &c.confine, "")
	if err != nil {
		return err
	}
	box, err := sandbox.New(*p)
	if errors.Is(err, sandbox.ErrImpossible) {
		c.remark("commands run without a sandbox: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	box.Close()
	b.policy = p
	return nil
}

// prepare makes the agent of the session and its tree of subagents.
func (c *agentCommand) prepare(ctx context.Context, b *workbench, models *models, set json.RawMessage) (*work, error) {
	rules, err := permissions(b.session.Home(), b.policy != nil, c.allow)
	if err != nil {
		return nil, err
	}
	types, problems := agentTypes(b.session.CWD(), b.session.Home())
	for _, p := range problems {
		c.remark("%s", sentence(p))
	}
	view := newAgentView(c.environment)
	if c.chat != nil {
		view.front = c.chat.front
	}
	if info := models.first.Info(); info.Prices == nil {
		view.unpriced = true
		if c.cost > 0 {
			c.say("the prices of %s are not known, and its requests count as free: --max-cost does not end the run; --max-time does", info.Name())
		}
	}
	hooks, err := c.hooks(b, view)
	if err != nil {
		return nil, err
	}
	shortened, err := compaction(b, hooks, c.board)
	if err != nil {
		return nil, err
	}
	told, err := c.told(b)
	if err != nil {
		return nil, err
	}
	dir := b.kept()
	spaces := spacesOf(b.session.Home())
	if b.policy != nil && b.policy.Mode == sandbox.ReadOnly {
		spaces = ""
	}
	limits := agent.Limits{Cost: float64(c.cost), Time: time.Duration(c.time)}
	budget := agent.NewBudget(nil, agent.Limits{Cost: float64(c.cost), Agents: task.DefaultAgents}) // of all agents together
	view.spent = budget.Spent
	all := []*permission.Rules{rules, ownSecrets(b.session.Home())}
	tree, err := task.New(task.Options{
		Manager: b.manager, Root: b.session, Artifacts: dir, Types: types, Default: models.first, Model: models.open, Rules: all, Ask: view.asker(), Retries: c.retries.of(agent.DefaultRetries),
		Dir: b.files.Dir(), Spaces: spaces, Sync: c.durability.value == session.Sync, Recorder: checkpoint.New(b.manager, b.session, checkpoint.Options{}),
		Tools: func(_ context.Context, of task.Subagent) ([]tool.Tool, func(), error) {
			tools, done, err := subagentTools(b, of)
			if err == nil && len(told.skills) > 0 {
				tools = append(tools, instructions.SkillTool{Skills: told.skills})
			}
			return tools, done, err
		},
		Command: func(ctx context.Context, of task.Subagent, argv []string, stdin string) (bash.Result, error) {
			return runProgram(ctx, b, of, argv, stdin)
		},
		Observe: view.observe,
		Prepare: func(o *agent.Options) {
			o.Hooks, o.More = hooks.Subagent(o.ID), c.board.Rules
			o.System = append(o.System, told.documents()...)
			if o.Tools.Knows(instructions.SkillTool{}.Name()) == nil {
				o.System = append(o.System, told.skillPrompt()...)
			}
			shortened(o)
		},
	})
	if err != nil {
		return nil, err
	}
	tools, done, err := c.mainTools(b)
	if err != nil {
		return nil, err
	}
	root, system := tree.Root(budget), entry.Prompt{mainPrompt}
	if c.as != nil {
		root, system = tree.RootAs(*c.as, budget), entry.Prompt{c.as.System}
	}
	release := func() error {
		root.Stop()
		done()
		return nil
	}
	tools = append(tools, c.board.Tools()...)
	if len(told.skills) > 0 {
		tools = append(tools, instructions.SkillTool{Skills: told.skills})
	}
	offered, err := toolset.New(root.Offer(tools)...)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	system = append(system, told.documents()...)
	if offered.Knows(instructions.SkillTool{}.Name()) == nil {
		system = append(system, told.skillPrompt()...)
	}
	seals, err := sealing(b.session, set)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	o := agent.Options{
		Session: b.session, Model: models.first, Spec: c.model, Settings: set, Seal: seals, Tools: offered, System: system, Thinking: string(c.thinking), Limits: limits, Budget: budget, Rules: all, Dir: b.files.Dir(), Ask: view.asker(),
		Retries: c.retries.of(agent.DefaultRetries), Hooks: hooks.Agent(), More: c.board.Rules, Artifacts: dir, Observe: func(e agent.Event) {
			if mode, ok := e.(agent.ModeChanged); ok {
				c.board.Entered(mode.Mode)
			}
			view.observe(agent.MainID, e)
		},
	}
	shortened(&o)
	root.Attach(&o)
	a, err := agent.New(o)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return &work{a, view, release, all, o.Ask}, nil
}

// compaction returns what has the context of an agent made shorter, as the settings say.
func compaction(b *workbench, hooks *hook.Runner, board *plan.Board) (func(*agent.Options), error) {
	settings, _, err := config.Load(nil, b.session.Home()) // whoever opened the home has told of mistakes
	if err != nil {
		return nil, err
	}
	set := settings.Agent.Compact
	if set.Mode == "off" {
		return func(*agent.Options) {}, nil
	}
	return func(o *agent.Options) {
		id := cmp.Or(o.ID, agent.MainID)
		with := compact.Options{
			Threshold: int64(set.Threshold), Before: func(ctx context.Context, tokens int64) { hooks.Compacting(ctx, id, tokens) },
		}
		if id == agent.MainID { // whose mode and list they are
			with.State = board.State
		}
		compact.Equip(o, with)
	}, nil
}

// mainPrompt is what the agent of a session is told of itself.
const mainPrompt = `You are a coding agent. You work in the directory of the session, with the tools that you have, until what was asked is
done; then you say in a few sentences what you did, and what is left open.

- Read before you change, and check what you changed: run the tests, or what else shows that it works.
- Long output is shortened in the middle, and whole at the URL that its notice names: read that with the tool read.
- Give subagents what can be done side by side. What they report is at agent://<id>.`

// agentTypes are the types of agents of a project, of the home, and those that are built in.
func agentTypes(cwd, home string) ([]task.Type, []error) {
	return task.Types(filepath.Join(cwd, ".agentrun", "agents"), filepath.Join(cwd, ".claude", "agents"), filepath.Join(home, "agents"))
}

// lastingName is a model's name that means the same in every directory.
func lastingName(name string) (string, error) {
	file, ok := strings.CutPrefix(name, "script:")
	if !ok {
		return name, nil
	}
	file, err := filepath.Abs(file)
	return "script:" + file, err
}
