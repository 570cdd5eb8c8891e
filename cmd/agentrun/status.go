package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Exit statuses that are not those of a command.
const (
	statusError  = 1
	statusUsage  = 2
	statusSignal = 128 // plus the number of the signal that ended agentrun and so the command
)

// usageError is a mistake in the command line itself.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// commandError is the end of exec and bash: the status of the command, or that of
// agentrun's own failure with the reason.
type commandError struct {
	status int
	err    error // nil when there is nothing to say
}

func (e *commandError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *commandError) Unwrap() error { return e.err }

// failed makes an error agentrun's own failure to run a command, unless it is the
// command's end or a mistake of the user.
func failed(err error) error {
	var (
		usage   *usageError
		command *commandError
	)
	if err == nil || errors.As(err, &usage) || errors.As(err, &command) {
		return err
	}
	return &commandError{bash.CodeFailure, err}
}

// conclude says what went wrong and returns the exit status.
func (e *environment) conclude(err error) int {
	var (
		usage   *usageError
		command *commandError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &command):
		if command.err != nil {
			e.say("%s", sentence(command.err))
		}
		return command.status
	case errors.As(err, &usage):
		e.say("%v", err)
		return statusUsage
	}
	e.say("%s", sentence(err))
	return statusError
}

// sentence is what err tells a person, with what to do about the disk.
func sentence(err error) string {
	text := err.Error()
	// No other append follows in this process that could write what waits.
	var pending *session.PendingError
	if errors.As(err, &pending) {
		text = strings.Replace(text, pending.Error(), pending.Err.Error(), 1)
	}
	text = strings.TrimSuffix(text, ": "+session.ErrNotFound.Error()) // the sentence has said it
	text, home := aboutHome(text)
	var escape *workspace.EscapeError
	switch {
	case errors.As(err, &escape):
		text += ", or allow its directory with --root"
	case errors.Is(err, syscall.EROFS):
		text += "; name a home that can be written with --home"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		text += "; free some space"
	case home:
		text += "; name another with --home"
	}
	return text
}

// aboutHome reports whether text is about a home that can not be used. It leaves out
// what else could not be made because of that: the session, and its directory.
func aboutHome(text string) (string, bool) {
	const making, started = "making the home: ", " was not started: "
	way, reason, ok := strings.Cut(text, making)
	if !ok {
		return text, strings.HasPrefix(text, "opening the home ")
	}
	if i := strings.LastIndex(reason, ": mkdir "); i >= 0 {
		reason = reason[i+len(": "):]
	}
	if name, _, ok := strings.Cut(way, started); ok {
		return name + started + making + reason, true
	}
	return making + reason, true
}

// say prints a remark of agentrun's own.
func (e *environment) say(format string, args ...any) {
	fmt.Fprintf(e.stderr, "agentrun: %s\n", visible(fmt.Sprintf(format, args...)))
}

// remark is say for what nobody needs who asked for the output alone.
func (e *environment) remark(format string, args ...any) {
	if !e.quiet {
		e.say(format, args...)
	}
}

// visible replaces control characters, which names and titles in files may hold,
// so that printing them does nothing to a terminal.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f {
			return '\ufffd'
		}
		return r
	}, s)
}

// group makes cmd one of which only the commands do something: alone it shows its help.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// positional checks the number of arguments and says what is expected.
func positional(least, most int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return usagef("%s takes %s: see %s --help", cmd.CommandPath(), want, cmd.CommandPath())
	}
}
