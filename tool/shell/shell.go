// Package shell keeps a shell between scripts: the working directory, variables, exported or not, functions, aliases,
// options and traps that one script leaves are those that the next one finds.
//
// It is a real bash (another path may be given, also of sh or zsh), which evaluates each script as its own. A [Shell]
// is a [bash.Runner]: bash.Run with it bounds, keeps and records what scripts print.
//
// A program that uses this package calls [Main] first in its main, because a shell runs below another process of that
// program, which owns everything that the shell starts.
//
// # Promises
//
//   - The end of a script and its exit status come through a pipe that nothing which the script starts has open, with
//     a number that nobody else knows: no output looks like them. Nothing is polled.
//   - Behind each script the state of the shell is written down. A shell that ended, by exit, set -e, exec, a signal or
//     a timeout, is followed by another one with that state, and the result says so. The state is that at the end
//     where bash got to say it (exit, set -e, SIGINT, SIGTERM), else that before the script.
//   - The result does not wait for what a script left in the background. That runs on while the shell lives; what it
//     prints between scripts is shown with the next one, the last 64 KiB of it.
//   - A timeout or a cancelled context sends SIGINT, 2 s later SIGTERM, 2 s later SIGKILL to everything that the shell
//     started, also what left its process group, session and parent. The shell ends with it.
//   - When the Shell is closed, or this process dies, nothing that it started is left.
//
// # Limits
//
// A script's standard input is empty, its outputs are pipes, and there is no terminal, unless one is asked for: such a
// script runs in a shell that has the state of the last one and a terminal, what it leaves is the state of the next one,
// and what it left in the background ends with it. TERM is as it was afterwards. Redirections of 0, 1 and 2 by
// exec last until the end of the script. Names that begin with __agentrun_ are the shell's own. A state of more than 64 MiB
// is not carried over. A bash whose script sets a trap on EXIT and ends before its own end, otherwise than by exit, is followed by one
// with the state before that script; so is a sh. A zsh that has such a trap and exits, or ends by set -e, is followed by one with the
// whole state but the trap, which is that before the script; by set -e only where it has no trap on ZERR of its own. Of sh, functions are
// not carried over, which it can not print, and of its aliases those of one line.
//
// # Concurrency
//
// A Shell may be used by any number of goroutines, and runs one script at a time. One that comes meanwhile gets a shell
// of its own, with the state of the last script that ended; what it changes is not carried over, and its result says so.
//
// The package needs Linux.
package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool/bash"
)

// Main must be called before anything else in main (and in TestMain). It returns, except in the processes that this
// package starts.
func Main() {
	sandbox.Main()
	shim.Main()
}

// ErrClosed is returned by runs in a shell that was closed.
var ErrClosed = errors.New("the shell is closed")

// Options say which shell to keep. The zero value is bash, else sh, of the PATH.
type Options struct {
	Path string   // of the shell; "" looks for bash, then sh
	Dir  string   // where it starts; "" is the working directory of this process
	Env  []string // additions to the environment of this process, KEY=VALUE
	// Environ takes the place of the environment of this process; nil is that.
	Environ []string
	// Once says that there will be one script: its state is not kept, and that the shell ended with it is not told.
	Once bool
	// Sandbox is what the shell, and everything that it starts, may do for its life; nil is everything. Its private
	// files outlive an end of the shell's process.
	Sandbox *sandbox.Policy
}

// Shell is one shell. Use [New].
type Shell struct {
	opts    Options
	path    string
	dialect *dialect

	turn chan struct{} // holds one token while nobody runs a script

	mu     sync.Mutex // guards what is below; held for moments only
	states [3]*os.File
	slots  [3]string // their names
	good   int       // the slot of states that holds the last state; -1 when there is none
	closed bool
	others sync.WaitGroup // shells of concurrent scripts

	exchange exchange

	live  *instance    // owned by who has the turn
	stale bool         // the state of live is not the last one: a script at a terminal has left another
	moved string       // where live should be and is not, because that is gone; "" is nowhere. The next script is told
	pid   atomic.Int64 // of the last one, 0 before there was one
}

var _ bash.Runner = (*Shell)(nil)

// New returns a shell. Its process is started by the first script.
func New(o Options) (*Shell, error) {
	s := &Shell{opts: o, good: -1, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	var err error
	if s.opts.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	if s.path, err = bash.FindShell(o.Path, s.opts.Dir); err != nil {
		return nil, err
	}
	s.dialect = dialectOf(s.path)
	if !o.Sandbox.IsZero() {
		if s.exchange.box, err = sandbox.New(*o.Sandbox); err != nil {
			return nil, fmt.Errorf("starting a shell: %w", err)
		}
	}
	for i := range s.states {
		if s.states[i], s.slots[i], err = s.exchange.file("state"); err != nil {
			s.release()
			return nil, err
		}
	}
	return s, nil
}

// Path is that of its program.
func (s *Shell) Path() string { return s.path }

// RunScript implements [bash.Runner]. How the script ended is in the Exit; the error is about the shell.
func (s *Shell) RunScript(ctx context.Context, c *bash.Script) (bash.Exit, error) {
	if strings.IndexByte(c.Text, 0) >= 0 {
		return bash.Exit{}, errors.New("running a script: it contains a NUL byte, which no shell can be given")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return bash.Exit{}, ErrClosed
	}
	s.others.Add(1)
	s.mu.Unlock()
	defer s.others.Done()
	select {
	case <-s.turn:
	default:
		return s.aside(ctx, c)
	}
	defer func() { s.turn <- struct{}{} }()
	return s.run(ctx, c)
}

// Directory is where the shell is, and the next script will begin; "" is not known. A shell that has ended is followed by
// another one for it.
func (s *Shell) Directory() string {
	s.mu.Lock()
	fresh, closed := s.good < 0, s.closed
	if !closed {
		s.others.Add(1)
		defer s.others.Done()
	}
	s.mu.Unlock()
	if closed {
		return ""
	}
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
		if s.live == nil && fresh {
			return s.opts.Dir
		}
		if s.live == nil {
			live, err := s.start(context.Background(), nil, nil, false)
			if err != nil {
				return ""
			}
			s.live, s.stale = live, false
		}
		if s.stale {
			return ""
		}
		s.pid.Store(int64(s.live.shim.PID()))
	default: // a script is running
	}
	pid := s.pid.Load()
	if pid == 0 {
		return s.opts.Dir
	}
	dir, err := os.Readlink("/proc/" + strconv.FormatInt(pid, 10) + "/cwd")
	if err != nil {
		return ""
	}
	if vanished(dir) {
		return s.opts.Dir
	}
	return dir
}

// aside runs a script in a shell of its own, because another one is running in s.
func (s *Shell) aside(ctx context.Context, c *bash.Script) (bash.Exit, error) {
	own, err := s.Copy(true)
	if err != nil {
		return bash.Exit{}, err
	}
	defer own.Close()
	exit, err := own.run(ctx, c)
	exit.Notes = append(exit.Notes, "Another script was running in the shell: this one had its own, a copy, and what it changed there is not carried over")
	return exit, err
}

// Copy returns another shell, which begins with the state of the last script that ended in s. Once is that of [Options].
func (s *Shell) Copy(once bool) (*Shell, error) {
	own, err := New(Options{Path: s.path, Dir: s.opts.Dir, Env: s.opts.Env, Environ: s.opts.Environ, Once: once, Sandbox: s.opts.Sandbox})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.good >= 0 {
		if err := copyFile(own.states[0], s.states[s.good]); err != nil {
			own.release()
			return nil, err
		}
		own.good = 0
	}
	return own, nil
}

// run runs a script in the shell that lives, or in a new one.
func (s *Shell) run(ctx context.Context, c *bash.Script) (bash.Exit, error) {
	if c.Terminal != nil {
		return s.atTerminal(ctx, c)
	}
	var notes []string
	if s.live != nil && s.live.gone() { // somebody killed it between two scripts
		s.live.close()
		s.live = nil
		notes = append(notes, "The shell had ended since the last script; this one ran in a new shell with what there was behind that")
	}
	if s.live == nil {
		live, exit, err := s.begin(ctx, c)
		if live == nil {
			return exit, err
		}
		s.live, s.stale = live, false
		s.pid.Store(int64(live.shim.PID()))
	}
	s.live.reload = s.stale
	c, note, err := s.live.place(c)
	if err != nil {
		return bash.Exit{Code: bash.CodeFailure}, err
	}
	s.stale = false
	if note != "" {
		notes = append(notes, note)
	}
	if s.exchange.box != nil && c.Stdin != "" {
		within := *c
		stdin, stop, err := s.exchange.input(c.Stdin)
		if err != nil {
			return bash.Exit{Code: bash.CodeFailure}, err
		}
		defer stop()
		within.Stdin = stdin
		c = &within
	}
	exit, ended, err := s.live.run(ctx, c)
	if s.exchange.box != nil {
		exit.Limits = s.exchange.box.Settle(syscall.WaitStatus(exit.Code << 8))
	}
	exit.Notes = append(notes, exit.Notes...)
	if ended {
		if s.live.close() > 0 && !s.opts.Once && !exit.TimedOut && !exit.Cancelled {
			exit.Notes = append(exit.Notes, "Processes that ran in the background of the shell were ended with it")
		}
		s.live = nil
	}
	return exit, err
}

// begin starts a shell for a script. Without one it returns how the script ended.
func (s *Shell) begin(ctx context.Context, c *bash.Script) (*instance, bash.Exit, error) {
	began := time.Now()
	live, err := s.start(ctx, c.Kill, c.Terminal, c.Separate)
	if err == nil {
		return live, bash.Exit{}, nil
	}
	exit := bash.Exit{Code: bash.CodeFailure, Began: began, Duration: time.Since(began)}
	if exit.Cancelled = ctx.Err() != nil || closed(c.Kill); exit.Cancelled {
		exit.Notes = append(exit.Notes, "The script was not started")
		return nil, exit, nil
	}
	return nil, exit, err
}

// atTerminal runs a script in a shell that has a terminal, and ends with the script: a terminal that stayed would be one
// for the scripts behind it too. What the script leaves is the state of s; the shell that lives takes it over.
func (s *Shell) atTerminal(ctx context.Context, c *bash.Script) (bash.Exit, error) {
	live, exit, err := s.begin(ctx, c)
	if live == nil {
		return exit, err
	}
	defer live.close()
	c, note, err := live.place(c)
	if err != nil {
		return bash.Exit{Code: bash.CodeFailure}, err
	}
	exit, _, err = live.run(ctx, c)
	if note != "" {
		exit.Notes = append([]string{note}, exit.Notes...)
	}
	if s.exchange.box != nil {
		exit.Limits = s.exchange.box.Settle(syscall.WaitStatus(exit.Code << 8))
	}
	if s.live != nil {
		if all, lerr := process.Descendants(s.live.shim.Root()); lerr == nil && len(all) <= 1 { // itself: nothing in the background
			s.live.close()
			s.live = nil
		}
	}
	s.stale = true
	return exit, err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// next is the slot for the next state of i. It is not that of a shell beside it, which writes there when it ends.
func (s *Shell) next(i *instance) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range s.states {
		if slot != s.good && (s.live == nil || s.live == i || s.live.slot != slot) {
			return slot
		}
	}
	return 0 // there are more slots than that
}

// last is the name of the last state, "" when there is none.
func (s *Shell) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.good < 0 {
		return ""
	}
	return s.slots[s.good]
}

// commit makes the state in a slot the last one.
func (s *Shell) commit(slot int) error {
	info, err := s.states[slot].Stat()
	if err != nil || info.Size() > maxState {
		return fmt.Errorf("the state of the shell is larger than %d MiB", maxState>>20)
	}
	s.mu.Lock()
	s.good = slot
	s.mu.Unlock()
	return nil
}

// Close ends the shell and everything that it started, after the scripts that are running.
func (s *Shell) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.others.Wait()
	if s.live != nil {
		s.live.close()
		s.live = nil
	}
	s.release()
	return nil
}

func (s *Shell) release() {
	if s.exchange.box != nil {
		s.exchange.box.Close()
	}
	for _, f := range s.states {
		if f != nil {
			f.Close()
		}
	}
}
