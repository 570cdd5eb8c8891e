package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/redact"
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
	return &supervisor.Client{Home: s.Home(), Session: s.ID(), Argv: argv, Entries: s.Entries, Redact: e.replacing}
}

// choose gives o the shell that the flags ask for. The function that it returns ends one of this process.
func (r *commandRun) choose(ctx context.Context, o *bash.Options, s *session.Session) (func(), error) {
	nothing := func() {}
	switch {
	case r.shell != "" && r.pass && r.terminal == nil:
		return nothing, usagef("--stdin and --shell exclude each other: a shell's input is empty")
	case r.shell != "":
		if s.ID() == "" {
			if err := r.beginSession(ctx, s); err != nil {
				return nothing, err
			}
		}
		cwd, err := workingDirectory()
		if err != nil {
			return nothing, err
		}
		o.Shell = &supervisor.Shell{Client: r.supervisorOf(s), Name: r.shell, Path: r.program, Cwd: cwd, Sandbox: r.policy}
	case r.program != "":
		if r.pass && r.terminal == nil {
			return nothing, usagef("--stdin and --shell-path exclude each other: a shell's input is empty")
		}
		sh, err := shell.New(shell.Options{Path: r.program, Once: true, Sandbox: r.policy})
		if err != nil {
			return nothing, err
		}
		o.Shell = sh
		return func() { sh.Close() }, nil
	}
	return nothing, nil
}

// beginSession writes a session down, so that its supervisor finds it. One in an empty file has its id from then on.
func (e *environment) beginSession(ctx context.Context, s *session.Session) error {
	if s.Exists() && s.ID() != "" {
		return nil
	}
	if _, err := s.Append(ctx, entry.Custom{CustomType: createdType}); err != nil {
		return err
	}
	e.remark("started session %s", s.ID())
	return nil
}

// inSession runs scripts under the supervisor of a session, which begins with the first of them.
type inSession struct{ *workbench }

func (b *inSession) RunOrMove(ctx context.Context, o bash.Options, after time.Duration) (bash.Result, *bash.Moved, error) {
	if err := b.beginSession(ctx, b.session); err != nil {
		return bash.Result{}, nil, err
	}
	return (&supervisor.Background{Client: b.supervisorOf(b.session)}).RunOrMove(ctx, o, after)
}

// runOrMove runs a script that may go on as a job.
func (r *commandRun) runOrMove(ctx context.Context, s *session.Session, o bash.Options) (bash.Result, *bash.Moved, error) {
	if err := r.beginSession(ctx, s); err != nil {
		return bash.Result{}, nil, err
	}
	if o.Dir != "" || r.shell == "" {
		var err error
		if o.Dir, err = filepath.Abs(o.Dir); err != nil {
			return bash.Result{}, nil, err
		}
		if err := bash.CheckDirectory(o.Dir); err != nil {
			return bash.Result{}, nil, err
		}
	}
	return r.supervisorOf(s).Run(ctx, supervisor.Foreground{
		Command: supervisor.Command{Script: o.Script, Runs: o.Runs, Shell: r.shell, Path: r.program, Dir: o.Dir, Env: o.Env, Timeout: o.Timeout, MaxOutput: o.MaxOutput, Sandbox: r.policy, Terminal: o.Terminal},
		After:   time.Duration(r.after), Kill: o.Kill, Separate: o.Separate, Live: o.Live,
		Refused: func(err error) { r.remark("%v: it is waited for", err) },
	})
}

// printMoved prints what is known of a run that goes on.
func (r *commandRun) printMoved(s *session.Session, m *bash.Moved, live *liveView) error {
	j := supervisor.Named(*m.Artifact)
	r.remark("it goes on in the background as job %s; agentrun jobs wait %s waits for its end", j.ID, j.ID)
	if r.json {
		sum := &m.Summary
		return printJSON(r.stdout, runResult{
			TotalBytes: sum.TotalBytes, TotalLines: sum.TotalLines, ShownBytes: sum.ShownBytes, ShownLines: sum.ShownLines,
			DurationMS: time.Since(m.Began).Milliseconds(), Truncated: sum.Truncated, Artifact: orNull(sum.Artifact), Session: s.ID(), Output: sum.View, Job: &j.URL, ptyResult: r.pty.describe(),
		})
	}
	if live != nil {
		return live.finish()
	}
	_, err := io.WriteString(r.stdout, endNotice(m.Summary.View, &m.Summary))
	return err
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
	if r.policy, err = r.environment.policy(s, &r.confinement, r.cwd); err != nil {
		return err
	}
	if r.terminal, err = r.pty.terminal(); err != nil {
		return err
	}
	c := supervisor.Command{Terminal: r.terminal, Script: script, Shell: r.shell, Path: r.program, Env: r.env, Timeout: time.Duration(r.timeout), MaxOutput: int64(r.maxOutput), Sandbox: r.policy}
	if r.cwd != "" || r.shell == "" {
		if c.Dir, err = filepath.Abs(r.cwd); err != nil {
			return err
		}
		if err := bash.CheckDirectory(c.Dir); err != nil {
			return err
		}
	}
	if err := r.findProgram(c.Dir); err != nil {
		return err
	}
	if err := r.beginSession(ctx, s); err != nil {
		return err
	}
	c.Runs, _ = r.pathsFor(ctx, s, script, true)
	if len(r.argv) > 0 && !strings.HasPrefix(r.argv[0], "-") {
		// The program takes the place of the shell, which else would hide a signal that ended it behind a status. Not
		// all shells take exec -- NAME.
		c.Runs = "exec " + c.Runs
	}
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

// findProgram refuses a job whose program is not there, so that nobody has to look for that in its output.
func (r *commandRun) findProgram(dir string) error {
	if len(r.argv) == 0 {
		return nil
	}
	_, err := bash.FindProgram(r.argv[0], dir, append(withhold.Environ(), r.env...))
	var start *bash.StartError
	if !errors.As(err, &start) {
		return err
	}
	hint := ""
	if start.Code == bash.CodeNotFound {
		hint = "; for a script use agentrun bash --background"
	}
	return &commandError{start.Code, fmt.Errorf("the job was not started: %w%s", start, hint)}
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
			Open: e.reopen(m),
			Redact: func(s *session.Session, r supervisor.Redaction) *redact.Redactor {
				red, _ := e.redactor(s, r)
				return red
			},
			Ready: func() { said("ready") },
		})
	}
	if err != nil {
		said(sentence(err))
	}
	return err
}

var errNoArtifacts = errors.New("the session can have no artifacts, which a job needs: name another with --session")
