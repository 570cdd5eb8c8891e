package bash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/sandbox"
)

// StartError says why a command was not started.
type StartError struct {
	Name string // as it was asked for
	Code int    // CodeNotFound, CodeNotExecutable or CodeFailure
	why  string
	err  error
}

// NotStarted is why a [Runner] did not start what it was given; the exit code is that of err where it is a StartError.
func NotStarted(name string, err error) *StartError {
	s := &StartError{Name: name, Code: CodeFailure, why: err.Error(), err: err}
	if inner := (*StartError)(nil); errors.As(err, &inner) {
		s.Code = inner.Code
	}
	return s
}

func (e *StartError) Error() string { return e.Name + ": " + e.why }
func (e *StartError) Unwrap() error { return e.err }

// location is a command made ready for exec: where it is, where it starts, what it sees.
type location struct {
	path, dir string
	argv, env []string
	refused   *StartError // the command can not be started; nil when it may be
}

// locate checks everything that can be checked before a process is made. An error is the caller's mistake (a
// directory that is not there, a variable without a name); a program that is not there is an outcome.
func (p *Process) locate() (location, error) {
	var l location
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return l, errors.New("running a command: it has no name: give the program and its arguments")
	}
	for _, a := range p.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return l, fmt.Errorf("running %s: an argument contains a NUL byte, which no program can be given", p.Argv[0])
		}
	}
	var err error
	if l.dir, err = workingDirectory(p.Dir); err != nil {
		return l, err
	}
	base := withhold.Environ()
	if p.shell {
		base = append(base, quiet...)
	}
	if p.Terminal != nil {
		base = append(base, p.Terminal.Variable())
	}
	if l.env, err = environment(base, l.dir, p.Env); err != nil {
		return l, err
	}
	l.argv = p.Argv
	l.path, l.refused = lookup(p.Argv[0], l.dir, l.env)
	if l.refused != nil && p.shell {
		l.argv = append([]string{"sh"}, p.Argv[1:]...)
		l.path, l.refused = lookup("sh", l.dir, l.env)
	}
	return l, nil
}

// directoryError says why a directory is none to work in. What it wraps is for errors.Is; the sentence has said it.
type directoryError struct {
	dir, why string
	err      error
}

func (e *directoryError) Error() string { return "the working directory " + e.dir + " " + e.why }
func (e *directoryError) Unwrap() error { return e.err }

// workingDirectory returns dir as an absolute path. Symbolic links in it stay, as in a shell.
func workingDirectory(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w: name one", err)
	}
	switch info, err := os.Stat(abs); {
	case errors.Is(err, fs.ErrNotExist):
		return "", &directoryError{abs, "does not exist: make it or name another", err}
	case err != nil:
		return "", fmt.Errorf("looking at the working directory: %w: name another", err)
	case !info.IsDir():
		return "", &directoryError{abs, "is not a directory: name another", syscall.ENOTDIR}
	}
	return abs, nil
}

// environment is base with PWD set to dir and additions laid over it.
func environment(base []string, dir string, additions []string) ([]string, error) {
	for _, kv := range additions {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || key == "" || strings.IndexByte(kv, 0) >= 0 {
			return nil, fmt.Errorf("environment variable %q: write it as KEY=VALUE, without NUL bytes", kv)
		}
	}
	env := append(base, "PWD="+dir)
	return append(env, additions...), nil
}

// lookup finds a program as execvp(3) does, but with the search path and the working directory that the program
// itself will see.
func lookup(name, dir string, env []string) (string, *StartError) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := executable(path); err != nil {
			return "", classifyStart(name, path, err)
		}
		return path, nil
	}
	denied := ""
	for _, d := range filepath.SplitList(variable(env, "PATH")) {
		if !filepath.IsAbs(d) { // also "", which means the working directory
			d = filepath.Join(dir, d)
		}
		path := filepath.Join(d, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if denied == "" && errors.Is(err, fs.ErrPermission) {
			denied = path
		}
	}
	if denied != "" {
		return "", &StartError{Name: name, Code: CodeNotExecutable, why: denied + " is not executable", err: fs.ErrPermission}
	}
	return "", &StartError{Name: name, Code: CodeNotFound, why: "command not found", err: fs.ErrNotExist}
}

// executable returns nil for a regular file that may be executed, and what execve would say for anything else.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "exec", Path: path, Err: syscall.EACCES}
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return &fs.PathError{Op: "exec", Path: path, Err: err}
	}
	return nil
}

// variable is the value of key in env, where the last one wins.
func variable(env []string, key string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, _ := strings.Cut(env[i], "="); k == key {
			return v
		}
	}
	return ""
}

// classifyStart turns what stat, fork or execve said into an exit code and a sentence.
func classifyStart(name, path string, err error) *StartError {
	s := &StartError{Name: name, Code: CodeNotExecutable, err: err}
	switch {
	case errors.Is(err, sandbox.ErrFailed):
		s.Code, s.why = CodeFailure, err.Error()
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR):
		if executable(path) == nil { // the file is there, so it is the one named in its first line that is not
			s.why = "the interpreter it names does not exist"
			return s
		}
		s.Code, s.why = CodeNotFound, "no such file"
	case errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM):
		s.why = "not executable"
	case errors.Is(err, syscall.ENOEXEC):
		s.why = "not a program this machine can execute; a script needs a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		s.why = "the arguments are too long for the system; put them into a file"
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM):
		s.Code, s.why = CodeFailure, fmt.Sprintf("no process could be made: %v; try again when the machine is less busy", err)
	default:
		s.why = err.Error()
	}
	return s
}
