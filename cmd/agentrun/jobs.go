package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/bash"
)

func newJobsCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Run commands in the background, and see to them",
		Long: `jobs runs commands that go on when agentrun has ended, under a process of the
session that owns them. A job's start and end are recorded in the session, and
its output is an artifact from the first byte on, whose number is the id of the
job. Without a command jobs lists.

Its state is running, exited, killed (by a signal, a timeout, jobs kill, or with
the process that owned it) or lost (the machine was started anew meanwhile).

With --json start prints an object: id, url, artifact; the others one object a
line: id, url, state, exitCode, started, ended, artifact, command, and of one
that did not end by itself signal, or endedBy: timeout, kill, limit (of a
sandbox, or of the output) or supervisor (the process that owned it was killed).`,
		Example: `  agentrun jobs start -- npm run dev
  agentrun jobs tail --follow 0
  agentrun jobs kill 0`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return env.listJobs(cmd.Context()) },
	}
	cmd.AddCommand(newJobsStartCommand(env), newJobsListCommand(env), newJobsWaitCommand(env), newJobsTailCommand(env), newJobsSendCommand(env), newJobsKillCommand(env), newJobsStopCommand(env))
	return cmd
}

func newJobsStartCommand(env *environment) *cobra.Command {
	run := &commandRun{environment: env}
	cmd := &cobra.Command{
		Use:   "start [flags] [--] COMMAND [ARG...]",
		Short: "Start a command in the background and print its id",
		Long: `start runs a program with its arguments in the background. For a script use
agentrun bash --background. What it reads is what jobs send sends. It ends after
24 h unless --timeout says otherwise (0 never).

` + fmt.Sprintf(ptyHelp, ", or for\njobs send") + "\n\n" + sandboxHelp,
		Example: `  agentrun jobs start -- npm run dev
  agentrun jobs start --timeout 1h --json -- make soak | jq -r .id`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usagef("no command: give a program and its arguments, as in: agentrun jobs start -- npm run dev")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			run.argv = args
			return run.start(cmd.Context(), bash.Quote(args))
		},
	}
	run.timeout = timeout(bash.DefaultJobTimeout)
	f := cmd.Flags()
	f.Var(&run.timeout, "timeout", "end the command after `TIME`: 90s, 5m, 30 (seconds)")
	f.Var(&run.maxOutput, "max-output", "end a command that writes more than `SIZE`, such as 100MiB")
	f.StringVar(&run.cwd, "cwd", "", "run the command in the directory `DIR`")
	run.confinement.addFlags(f)
	run.addRedact(f)
	run.pty.addFlags(f)
	f.Var(&run.env, "env", "set a variable for the command, or with a name alone pass on one that is withheld; may be repeated")
	return cmd
}

func newJobsListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the jobs of the session",
		Long:  "list shows all jobs that the session has had, in the order of their starts.",
		Args:  positional(0, 0, "no arguments"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return env.listJobs(cmd.Context()) },
	}
}

func newJobsWaitCommand(env *environment) *cobra.Command {
	var most timeout
	var status bool
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a job has ended, and say how",
		Long: `wait returns when the job has ended. With --timeout it returns after that time
with what there is to say then. The exit status is 0 in any case; with --status
it is that of the job, 124 when it still runs, 125 when nobody knows it.`,
		Args: positional(1, 1, "the id of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.withJob(cmd.Context(), args[0], func(ctx context.Context, s *session.Session, j supervisor.Job) error {
				if most > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(most))
					defer cancel()
				}
				if err := env.supervisorOf(s).Wait(ctx, j.Number); err != nil && ctx.Err() == nil {
					return aboutJob(j, err)
				}
				if err := env.printJobAgain(cmd.Context(), s, j.Number); err != nil || !status {
					return err
				}
				return env.statusOfJob(cmd.Context(), s, j.Number)
			})
		},
	}
	cmd.Flags().BoolVar(&status, "status", false, "exit with the status of the job")
	cmd.Flags().Var(&most, "timeout", "wait for `TIME` at most")
	return cmd
}

func newJobsKillCommand(env *environment) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "kill ID",
		Short: "End a job and everything that it started",
		Long: `kill sends SIGINT, after 2 s SIGTERM, after 2 s SIGKILL, and returns when the
end is recorded.`,
		Args: positional(1, 1, "the id of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.withJob(cmd.Context(), args[0], func(ctx context.Context, s *session.Session, j supervisor.Job) error {
				if err := env.supervisorOf(s).Kill(ctx, j.Number, now); err != nil {
					return aboutJob(j, err)
				}
				return env.quietly(ctx, s, j.Number)
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "send SIGKILL at once")
	return cmd
}

func newJobsStopCommand(env *environment) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End all jobs, named shells and kernels of the session",
		Long: `stop ends all jobs of the session as jobs kill does, its named shells, its
kernels, and the process that owns them, which would otherwise stay for a minute
after the last job and for 30 minutes after the last script in a shell. With
--all it does so for all sessions of the home.

With --json it prints an object: jobs, shells, kernels, how many of each were
ended.`,
		Example: `  agentrun jobs stop
  agentrun jobs stop --all`,
		Args: positional(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return env.stopJobs(cmd.Context(), all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "for all sessions of the home")
	return cmd
}

func (e *environment) stopJobs(ctx context.Context, all bool) (err error) {
	var ended supervisor.Stopped
	if all {
		m, err := e.manager()
		if err != nil {
			return err
		}
		if ended, err = supervisor.StopAll(ctx, m.Home()); err != nil {
			return err
		}
	} else {
		_, s, err := e.view(ctx, "")
		if err != nil {
			return err
		}
		defer func() { err = closeSession(s, err) }()
		if ended, err = e.supervisorOf(s).Stop(ctx); err != nil {
			return err
		}
	}
	if e.json {
		return printJSON(e.stdout, ended)
	}
	jobs, shells := count(int64(ended.Jobs), "job", "jobs"), count(int64(ended.Shells), "shell", "shells")
	if ended.Kernels == 0 {
		e.remark("ended %s and %s", jobs, shells)
		return nil
	}
	e.remark("ended %s, %s and %s", jobs, shells, count(int64(ended.Kernels), "kernel", "kernels"))
	return nil
}

// aboutJob says which job does not run any more, and how it ended.
func aboutJob(j supervisor.Job, err error) error {
	var usage *usageError
	switch {
	case errors.Is(err, supervisor.ErrNotRunning):
		return fmt.Errorf("job %s has ended: %s; agentrun jobs tail %[1]s shows its output", j.ID, describeState(j))
	case errors.As(err, &usage):
		return err
	}
	return fmt.Errorf("job %s: %w", j.ID, err)
}

// withJob finds a job of the session at hand.
func (e *environment) withJob(ctx context.Context, arg string, do func(context.Context, *session.Session, supervisor.Job) error) (err error) {
	n, err := supervisor.ParseID(arg)
	if err != nil {
		return usagef("%w", err)
	}
	_, s, err := e.view(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	j, err := supervisor.Find(s.ID(), s.Entries(ctx), n)
	if err != nil {
		return err
	}
	return do(ctx, s, j)
}

// readJob prints what a job is, as JSON, as session:// does of a session.
func (e *environment) readJob(ctx context.Context, url string) error {
	return e.withJob(ctx, url, func(_ context.Context, _ *session.Session, j supervisor.Job) error {
		return printJSON(e.stdout, j)
	})
}

func (e *environment) listJobs(ctx context.Context) (err error) {
	_, s, err := e.view(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	jobs, err := supervisor.Jobs(s.ID(), s.Entries(ctx))
	if err != nil {
		return err
	}
	if e.json {
		for _, j := range jobs {
			if err := printJSON(e.stdout, j); err != nil {
				return err
			}
		}
		return nil
	}
	if len(jobs) == 0 {
		e.remark("the session has no jobs; agentrun jobs start starts one")
		return nil
	}
	w := table(e.stdout)
	for _, j := range jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", j.ID, describeState(j), localTime(j.Started), j.Artifact, firstWords(j.Command, 60))
	}
	return w.Flush()
}

// describeState is the state of a job in words.
func describeState(j supervisor.Job) string {
	if j.State == supervisor.Exited && j.ExitCode != nil {
		switch *j.ExitCode {
		case bash.CodeNotFound:
			return fmt.Sprintf("exited %d, command not found", *j.ExitCode)
		case bash.CodeNotExecutable:
			return fmt.Sprintf("exited %d, command can not be executed", *j.ExitCode)
		}
		return fmt.Sprintf("exited %d", *j.ExitCode)
	}
	if j.State != supervisor.Killed {
		return string(j.State)
	}
	switch by := j.EndedBy; {
	case by == "kill":
		return "killed by jobs kill"
	case by == "supervisor":
		return "killed with its supervisor"
	case by != "":
		return "killed by its " + by
	case j.Signal != "":
		return "killed by " + j.Signal
	}
	return string(j.State)
}

func (e *environment) printJobStarted(j supervisor.Job) error {
	e.remark("job %s runs; its output is %s", j.ID, j.Artifact)
	_, err := fmt.Fprintln(e.stdout, j.ID)
	return err
}

// jobAgain is a job as it is by now.
func (e *environment) jobAgain(ctx context.Context, s *session.Session, n int64) (supervisor.Job, error) {
	m, err := e.manager()
	if err != nil {
		return supervisor.Job{}, err
	}
	now, err := m.View(ctx, s.Path()) // the log as it is by now
	if err != nil {
		return supervisor.Job{}, err
	}
	defer now.Close()
	return supervisor.Find(now.ID(), now.Entries(ctx), n)
}

// statusOfJob is the exit status of a job as that of this process; nil is 0.
func (e *environment) statusOfJob(ctx context.Context, s *session.Session, n int64) error {
	j, err := e.jobAgain(ctx, s, n)
	switch {
	case err != nil:
		return err
	case j.State == supervisor.Running:
		return &commandError{status: bash.CodeTimeout}
	case j.ExitCode == nil:
		return &commandError{status: bash.CodeFailure}
	case *j.ExitCode != 0:
		return &commandError{status: *j.ExitCode}
	}
	return nil
}

// printJobAgain prints a job as it is by now.
func (e *environment) printJobAgain(ctx context.Context, s *session.Session, n int64) error {
	j, err := e.jobAgain(ctx, s, n)
	if err != nil {
		return err
	}
	if e.json {
		return printJSON(e.stdout, j)
	}
	_, err = fmt.Fprintf(e.stdout, "job %s: %s\n", j.ID, describeState(j))
	return err
}

// quietly is printJobAgain for programs alone.
func (e *environment) quietly(ctx context.Context, s *session.Session, n int64) error {
	if !e.json {
		return nil
	}
	return e.printJobAgain(ctx, s, n)
}
