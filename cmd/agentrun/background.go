package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
)

// supervisorOf is the way to the supervisor of a session.
func (e *environment) supervisorOf(s *session.Session) *supervisor.Client {
	argv := []string{"agentrun", "supervise", "--home", s.Home(), "--session", s.ID()}
	if e.durability.value == session.Flush {
		argv = append(argv, "--durability", "flush")
	}
	return &supervisor.Client{Home: s.Home(), Session: s.ID(), Argv: argv}
}

// choose gives o the shell that the flags ask for. The function that it returns ends one of this process.
func (r *commandRun) choose(o *bash.Options, s *session.Session) (func(), error) {
	nothing := func() {}
	switch {
	case r.shell != "" && r.pass:
		return nothing, usagef("--stdin and --shell exclude each other: a shell's input is empty")
	case r.shell != "":
		cwd, err := workingDirectory()
		if err != nil {
			return nothing, err
		}
		o.Shell = &supervisor.Shell{Client: r.supervisorOf(s), Name: r.shell, Path: r.program, Cwd: cwd}
	case r.program != "":
		if r.pass {
			return nothing, usagef("--stdin and --shell-path exclude each other: a shell's input is empty")
		}
		sh, err := shell.New(shell.Options{Path: r.program})
		if err != nil {
			return nothing, err
		}
		o.Shell = sh
		return func() { sh.Close() }, nil
	}
	return nothing, nil
}

// start runs a script as a job.
func (r *commandRun) start(ctx context.Context, script string) (err error) {
	defer func() { err = failed(err) }()
	if r.live || r.pass {
		return usagef("a job has no --live and no --stdin: agentrun jobs tail --follow shows its output, agentrun jobs send gives it input")
	}
	s, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	if !s.Exists() {
		if _, err := s.Append(ctx, entry.Custom{CustomType: createdType}); err != nil {
			return err
		}
		r.remark("started session %s", s.ID())
	}
	c := supervisor.Command{Script: script, Shell: r.shell, Path: r.program, Env: r.env, Timeout: time.Duration(r.timeout)}
	if r.cwd != "" || r.shell == "" {
		if c.Dir, err = filepath.Abs(r.cwd); err != nil {
			return err
		}
		if err := bash.CheckDirectory(c.Dir); err != nil {
			return err
		}
	}
	c.Runs, _ = r.pathsFor(ctx, s, script, true)
	id, err := r.supervisorOf(s).Start(ctx, c)
	if err != nil {
		return err
	}
	j := supervisor.Named(id)
	if r.json {
		return printJSON(r.stdout, struct {
			ID       string `json:"id"`
			URL      string `json:"url"`
			Artifact string `json:"artifact"`
		}{j.ID, j.URL, j.Artifact})
	}
	return r.printJobStarted(j)
}

// supervise is the process of a supervisor. Its file 3 is told when it is ready, or why it is not.
func (e *environment) supervise(ctx context.Context, shellIdle, lingers time.Duration) error {
	tell := os.NewFile(3, "ready")
	said := func(text string) {
		_, _ = tell.WriteString(text + "\n")
		tell.Close()
	}
	if e.home == "" || e.session == "" {
		return usagef("supervise is for agentrun itself: use agentrun bash --shell or agentrun jobs start")
	}
	m, err := e.manager()
	if err == nil {
		err = supervisor.Serve(ctx, supervisor.Options{
			Session: e.session, Home: m.Home(), ShellIdle: shellIdle, Linger: lingers,
			Open:  e.reopen(m),
			Ready: func() { said("ready") },
		})
	}
	if err != nil {
		said(sentence(err))
	}
	return err
}

var errNoArtifacts = errors.New("the session can have no artifacts, which a job needs: name another with --session")
