package bash

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/withhold"
)

// Runner runs scripts in something that goes on between them: a shell. *shell.Shell of tool/shell is one.
type Runner interface {
	// RunScript runs a script and says how it ended, as [Process.Run] does: whatever the script did is in the
	// Exit, and the error is about the Runner.
	RunScript(ctx context.Context, s *Script) (Exit, error)
}

// Script is what a Runner runs.
type Script struct {
	Text string
	Run  string   // the id of the run in the log; "" outside of one
	Dir  string   // the directory to change to before; "" stays
	Env  []string // variables to export, KEY=VALUE; behind the script they are as they were

	Stdin string // the path of what it reads; "" is empty

	// Stdout and Stderr get the output. One goroutine at a time writes to either.
	Stdout, Stderr io.Writer
	// Separate gives the streams a pipe each; what goes to which is told by the writers, and their order is that in
	// which they arrive. Else both are one pipe, and go to Stdout in the order in which they were written.
	Separate bool

	// Terminal is to be the standard input, output and error of the script, and its controlling terminal; what is
	// written to it goes to Stdout, all of it before the script's end is told. Nil is none. See Terminal.OpenTerminal.
	Terminal *Terminal

	Timeout time.Duration // 0 is without limit

	// Kill ends the script at once, Feedback and Limit as a timeout does, when they are closed; nil never does.
	Kill, Feedback, Limit <-chan struct{}

	// Started is told the process group, before the script runs; may be nil.
	Started func(pid int)
}

// quiet are variables with which programs ask nobody, open no editor and no pager, and print what can be read in a
// file: those that oh-my-pi gives to its shell.
var quiet = []string{
	"PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat", "SYSTEMD_PAGER=cat", "BAT_PAGER=cat", "DELTA_PAGER=cat", "GH_PAGER=cat", "AWS_PAGER=", "LESS=FRX",
	"TERM=dumb", "NO_COLOR=1", "CI=true", "AGENT=1", "PYTHONUNBUFFERED=1",
	"GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true", "GIT_SEQUENCE_EDITOR=true", "EDITOR=true", "VISUAL=true", "SSH_ASKPASS_REQUIRE=never",
	"DEBIAN_FRONTEND=noninteractive", "PIP_NO_INPUT=1", "npm_config_yes=true",
}

// Quiet are variables for a script that nobody watches, KEY=VALUE: with them programs ask nobody and open no editor and no
// pager.
func Quiet() []string { return slices.Clone(quiet) }

// ScriptEnvironment is what a shell for scripts is started with: dir as an absolute path, and the environment of this
// process, with what keeps programs from waiting for a person, and additions (KEY=VALUE) laid over it.
// A base takes the place of this process's environment; nil is that.
func ScriptEnvironment(base []string, dir string, additions []string) (env []string, abs string, err error) {
	if base == nil {
		base = withhold.Environ()
	}
	if abs, err = workingDirectory(dir); err != nil {
		return nil, "", err
	}
	env, err = environment(slices.Concat(base, quiet), abs, additions)
	return env, abs, err
}

// CheckDirectory returns an error that says so if nothing can run in dir.
func CheckDirectory(dir string) error {
	_, err := workingDirectory(dir)
	return err
}

// FindProgram returns the path of a program: the one that a path names, from dir on, else the one that the PATH of
// environ has.
func FindProgram(name, dir string, environ []string) (string, error) {
	path, err := lookup(name, dir, environ)
	if err != nil {
		return "", err
	}
	return path, nil
}

// FindShell returns the path of a shell: the one that is named, by a path or as the PATH has it; for "" bash, else sh.
func FindShell(name, dir string) (string, error) {
	names := []string{name}
	if name == "" {
		names = []string{"bash", "sh"}
	}
	var refused *StartError
	for _, n := range names {
		path, err := "", (*StartError)(nil)
		if path, err = lookup(n, dir, os.Environ()); err == nil {
			return path, nil
		}
		refused = err
	}
	return "", fmt.Errorf("finding a shell: %w: install bash, or name a shell that is there", refused)
}
