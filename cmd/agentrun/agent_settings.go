package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
)

// runSettings is what of a run's flags its log keeps besides the model and the limits, for whoever resumes it. Only what was
// given is there: for the rest the settings of the home hold, as they did.
type runSettings struct {
	Dir      string         `json:"dir,omitempty"` // where the tools work
	Roots    []string       `json:"roots,omitempty"`
	Agent    string         `json:"agent,omitempty"`
	Thinking string         `json:"thinking,omitempty"`
	Sandbox  string         `json:"sandbox,omitempty"`
	Net      string         `json:"net,omitempty"`
	Limits   sandbox.Limits `json:"limits,omitzero"` // of commands
	Allow    []string       `json:"allow,omitempty"`
	Redact   redact.Mode    `json:"redact,omitempty"`
	Retries  string         `json:"retries,omitempty"`
}

// settings are those of the run that begins.
func (c *agentCommand) settings(dir string) (json.RawMessage, error) {
	set := runSettings{
		Dir: dir, Agent: c.typ, Thinking: string(c.thinking), Sandbox: string(c.confine.mode), Net: string(c.confine.net),
		Limits: c.confine.limits.Limits, Redact: c.redact, Allow: c.allow, Retries: c.retries.String(),
	}
	for _, root := range c.confine.roots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("finding the directory %s: %w", root, err)
		}
		set.Roots = append(set.Roots, abs)
	}
	return json.Marshal(set)
}

// remember takes what the last run of the session began with, where the flags say nothing else, and goes to its directory.
func (c *agentCommand) remember(ctx context.Context, s *session.Session) error {
	start, err := agent.LastStart(ctx, s, agent.MainID)
	if err != nil {
		return err
	}
	if start == nil {
		return errors.New("the session has no run yet: begin one with agentrun run")
	}
	var set runSettings
	if start.Settings != nil {
		if err := json.Unmarshal(start.Settings, &set); err != nil {
			return fmt.Errorf("reading with which settings the run began: %w; give them with --new to a run of its own", err)
		}
	}
	if sealed(s, start) {
		c.tellWider(&set)
	} else if err := c.leaveOut(&set, s); err != nil {
		return err
	}
	other := c.typ != "" && c.typ != set.Agent // which has the model and the thinking of its own type
	// What follows is as hostile as any log: it goes the way of the flags.
	for _, flag := range []struct {
		given bool
		set   func(string) error
		value string
	}{
		{c.confine.mode != "", c.confine.mode.Set, set.Sandbox},
		{c.confine.net != "", c.confine.net.Set, set.Net},
		{c.redact != "", c.redact.Set, string(set.Redact)},
		{c.thinking != "" || other, c.thinking.Set, set.Thinking},
		{c.retries.given, c.retries.Set, set.Retries},
	} {
		if flag.given || flag.value == "" {
			continue
		}
		if err := flag.set(flag.value); err != nil {
			return fmt.Errorf("reading with which settings the run began: %w", err)
		}
	}
	c.confine.limits.Limits = c.confine.limits.Or(set.Limits)
	for _, name := range set.Allow {
		if err := c.allow.Set(name); err != nil {
			return fmt.Errorf("reading with which settings the run began: %w", err)
		}
	}
	c.typ = cmp.Or(c.typ, set.Agent)
	c.cost, c.time = cmp.Or(c.cost, maxCost(start.Limits.Cost)), cmp.Or(c.time, timeout(start.Limits.Time))
	if c.model == "" && other {
		c.last = start.Spec
	} else if c.model == "" {
		c.model = start.Spec
	} else if c.model, err = lastingName(c.model); err != nil {
		return err
	}
	for i, root := range c.confine.roots {
		if c.confine.roots[i], err = filepath.Abs(root); err != nil {
			return fmt.Errorf("finding the directory %s: %w", root, err)
		}
	}
	if len(c.confine.roots) == 0 {
		c.confine.roots = set.Roots
	}
	return c.goTo(set.Dir, s.CWD())
}

// tellWider tells what of settings that are sealed lets the agent do more than it may by default.
func (c *agentCommand) tellWider(set *runSettings) {
	var wider []string
	if c.confine.mode == "" && set.Sandbox == string(sandbox.Off) {
		wider = append(wider, "--sandbox off")
	}
	if c.confine.net == "" && set.Net == "on" {
		wider = append(wider, "--net on")
	}
	if len(c.confine.roots) == 0 {
		for _, root := range set.Roots {
			wider = append(wider, "--root "+visible(root))
		}
	}
	for _, name := range set.Allow {
		wider = append(wider, "--allow "+visible(name))
	}
	if len(wider) > 0 {
		c.remark("the run goes on as it began: %s", strings.Join(wider, " "))
	}
}

// maxCost is the value of --max-cost; 0 when it is not given.
type maxCost float64

func (d *maxCost) String() string {
	if *d == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*d), 'g', -1, 64)
}

func (d *maxCost) Type() string { return "N" }

func (d *maxCost) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n > 0) || math.IsInf(n, 0) {
		return errors.New("give US dollars, more than 0, such as 2 or 0.50")
	}
	*d = maxCost(n)
	return nil
}

// retries is the value of --retries.
type retries struct {
	n     int
	given bool
}

// mostRetries are some hours of them.
const mostRetries = 1000

func (r *retries) String() string {
	if !r.given {
		return ""
	}
	return strconv.Itoa(r.n)
}

func (r *retries) Type() string { return "N" }

func (r *retries) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > mostRetries {
		return fmt.Errorf("give a number from 0 to %d", mostRetries)
	}
	*r = retries{n, true}
	return nil
}

// of are the retries of a run: o with the number that was given.
func (r retries) of(o agent.Retries) agent.Retries {
	if r.given {
		o.Tries = r.n + 1
	}
	return o
}

// thinkingLevel is the value of --thinking; "" when it is not given.
type thinkingLevel string

func (l *thinkingLevel) String() string { return string(*l) }
func (l *thinkingLevel) Type() string   { return "LEVEL" }

func (l *thinkingLevel) Set(s string) error {
	if !slices.Contains(model.ThinkingLevels(), s) {
		return fmt.Errorf("there is no level of thinking %.40q: %s", s, strings.Join(model.ThinkingLevels(), ", "))
	}
	*l = thinkingLevel(s)
	return nil
}

// redactAsRun replaces secrets as the last run of the session does, for what is said to its agents.
func (e *environment) redactAsRun(ctx context.Context, s *session.Session) error {
	if e.redact != "" {
		return nil
	}
	start, err := agent.LastStart(ctx, s, agent.MainID)
	if err != nil || start == nil || start.Settings == nil {
		return err
	}
	var set runSettings
	if err := json.Unmarshal(start.Settings, &set); err != nil || set.Redact == "" {
		return nil //nolint:nilerr // what resume says of it is not for here
	}
	if home, _, err := config.Load(nil, s.Home()); err != nil || looserRedaction(set.Redact, home.Redact.Mode) && !sealed(s, start) {
		return err
	}
	return e.redact.Set(string(set.Redact))
}

// goTo makes the first of some directories that is there the working directory. Where it is another one by that, it says so.
func (c *agentCommand) goTo(dirs ...string) error {
	here, err := workingDirectory()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if dir == here {
			return nil
		}
		if !filepath.IsAbs(dir) || os.Chdir(dir) != nil {
			continue
		}
		c.remark("the run goes on in %s", visible(dir))
		return nil
	}
	if named := strings.Join(dirs, ""); named != "" {
		c.remark("%s, where the run began, is not there: it goes on in %s", visible(cmp.Or(dirs...)), visible(here))
	}
	return nil
}

// howEnded says how a run ended that was not completed.
var howEnded = map[agent.Status]string{
	agent.FailedRun: "failed", agent.BudgetEnd: "had spent its budget", agent.TimeoutEnd: "had used up its time",
	agent.Cancelled: "was cancelled", agent.Unfinished: "was interrupted",
}

// interrupted says that a new prompt leaves behind a run that was not completed.
func (c *agentCommand) interrupted(ctx context.Context, s *session.Session) error {
	if !s.Exists() {
		return nil
	}
	standing, err := agent.StandingOf(ctx, s, agent.MainID)
	if err != nil || standing.Run == "" || standing.Status == agent.Completed {
		return err
	}
	driven, err := s.Driven()
	if err != nil || driven { // who drives it is told in a moment
		return err
	}
	c.remark("the last run of the session %s: this one takes its place, with its conversation and its subagents; agentrun resume goes on with a run without a new prompt, --new begins another session", howEnded[standing.Status])
	return nil
}
