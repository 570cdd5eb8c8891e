package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/bash"
)

// detached is what run --detach --json prints.
type detached struct {
	Session  string `json:"session"`
	Run      string `json:"run"`
	Job      string `json:"job"` // its URL
	Artifact string `json:"artifact"`
}

// detach writes the beginning of the run down and has the supervisor of the session resume it. What that needs is in the
// log, but for keys: they go over the supervisor's socket, and into the environment of the process that it starts.
func (c *agentCommand) detach(ctx context.Context, b *workbench, w *work, said string, with []entry.Body) error {
	s := b.session
	run, err := w.agent.Begin(ctx, entry.PlainText(said), with...)
	if err != nil {
		return err
	}
	resumes := fmt.Sprintf("the run is in session %s, and agentrun resume %[1]s goes on with it", s.ID())
	begun, err := s.Leaf(ctx)
	if err != nil {
		return fmt.Errorf("%w; %s", err, resumes)
	}
	argv, err := c.resumeArguments(s)
	if err != nil {
		return fmt.Errorf("%w; %s", err, resumes)
	}
	shown := []byte(said)
	if r := s.Redactor(); r != nil {
		shown, _ = r.Text(shown)
	}
	return c.apartFrom(ctx, b, run, begun, resumes, "agentrun run "+bash.Quote([]string{firstWords(string(shown), maxShown)}), argv)
}

// maxShown bounds what the name of a job shows of a prompt, in columns.
const maxShown = 100

// detachAgain has the supervisor of the session go on with its last run, as the flags say.
func (c *agentCommand) detachAgain(ctx context.Context, b *workbench) error {
	s := b.session
	if driven, err := s.Driven(); err != nil || driven {
		return cmp.Or(err, fmt.Errorf("the run of session %s is under way: agentrun tasks and agentrun follow show what it does", s.ID()))
	}
	start, err := agent.LastStart(ctx, s, agent.MainID)
	if err != nil {
		return err
	}
	if start == nil {
		return errors.New("the session has no run yet: begin one with agentrun run")
	}
	begun, err := s.Leaf(ctx)
	if err != nil {
		return err
	}
	argv, err := c.resumeArguments(s)
	if err != nil {
		return err
	}
	for _, flag := range []struct{ name, value string }{
		{"--model", c.model},
		{"--thinking", string(c.thinking)},
		{"--max-cost", c.cost.String()},
		{"--max-time", c.time.String()},
		{"--retries", c.retries.String()},
		{"--sandbox", string(c.confine.mode)},
		{"--net", string(c.confine.net)},
		{"--limits", c.confine.limits.String()},
		{"--redact", string(c.redact)},
	} {
		if flag.value != "" {
			argv = append(argv, flag.name, flag.value)
		}
	}
	for _, name := range c.allow {
		argv = append(argv, "--allow", name)
	}
	for _, root := range c.confine.roots {
		root, err := filepath.Abs(root)
		if err != nil {
			return fmt.Errorf("finding the directory %s: %w", root, err)
		}
		argv = append(argv, "--root", root)
	}
	return c.apartFrom(ctx, b, start.Run, begun, "agentrun resume goes on with it here", "agentrun resume", argv)
}

// apartFrom has the supervisor of the session resume a run, as a job with a name, and waits until it is at work.
func (c *agentCommand) apartFrom(ctx context.Context, b *workbench, run, begun, otherwise, name string, argv []string) error {
	s := b.session
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding agentrun itself: %w; %s", err, otherwise)
	}
	argv = append(argv, "--", s.ID())
	command := supervisor.Command{Script: name, Runs: "exec " + bash.Quote(append([]string{program}, argv...)), Aside: true}
	if command.Dir, err = workingDirectory(); err != nil {
		return err
	}
	variable := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) // as a shell takes it; no key of a provider is called otherwise
	for _, name := range withhold.Names() {
		if value, ok := withhold.Lookup(name); ok && variable.MatchString(name) {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	client := b.supervisorOf(s)
	id, err := client.Start(ctx, command)
	if err != nil {
		return fmt.Errorf("%w; %s", err, otherwise)
	}
	j := supervisor.Named(id)
	if err := taken(ctx, s, client, j, run, begun); err != nil {
		return err
	}
	if c.json {
		return printJSON(c.stdout, detached{s.ID(), run, j.URL, j.Artifact})
	}
	if _, err := fmt.Fprintln(c.stdout, s.ID()); err != nil {
		return fmt.Errorf("printing the session: %w", err)
	}
	c.remark("it goes on as job %s; agentrun jobs tail --follow %[1]s shows what it does, agentrun task send main TEXT tells it something, agentrun jobs kill %[1]s cancels it", j.ID)
	return nil
}

// resumeArguments are those with which agentrun goes on with the run in the background.
func (c *agentCommand) resumeArguments(s *session.Session) ([]string, error) {
	argv := []string{"resume", "--home", s.Home()}
	if c.durability.given {
		how := c.durability.String()
		if how == "" {
			how = "sync"
		}
		argv = append(argv, "--durability", how)
	}
	if c.json {
		argv = append(argv, "--json")
	}
	if c.quiet || c.json { // remarks are no objects
		argv = append(argv, "--quiet")
	}
	if c.record != "" {
		file, err := filepath.Abs(c.record)
		if err != nil {
			return nil, fmt.Errorf("finding %s: %w", c.record, err)
		}
		argv = append(argv, "--record", file)
	}
	return argv, nil
}

// taken waits until the run that began with an entry of the log is driven by the job that resumes it.
func taken(ctx context.Context, s *session.Session, client *supervisor.Client, j supervisor.Job, run, begun string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Wait(watching, j.Number) // what became of it the log says
		stop()
	}()
	defer func() { stop(); <-ended }()
	for e, err := range s.Watch(watching, begun) {
		if err != nil {
			return err
		}
		if resumes(e, run) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for the run to begin in the background: %w", context.Cause(ctx))
	}
	last, err := agent.LastStart(ctx, s, agent.MainID)
	if err == nil && (last == nil || last.Run == run) {
		err = errors.New("the run did not begin in the background: agentrun jobs tail " + j.ID + " says why, and agentrun resume goes on with it")
	}
	return err
}

// resumes reports whether an entry begins a run that goes on with another one.
func resumes(e entry.Entry, run string) bool {
	custom, ok := e.Custom()
	if !ok || custom.CustomType != agent.StartType {
		return false
	}
	var start agent.Start
	return json.Unmarshal(custom.Data, &start) == nil && start.Resumes == run
}
