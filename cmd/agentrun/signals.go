package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signals are what a run does when this process is asked to end. The first signal
// ends ctx, which has the command asked to end and killed when it does not; the second
// closes kill. This process itself goes on until the run is recorded.
type signals struct {
	ctx  context.Context
	kill chan struct{}

	cancel context.CancelFunc
	caught chan os.Signal

	mu       sync.Mutex
	count    int            // guarded by mu
	first    syscall.Signal // guarded by mu
	released bool           // guarded by mu
}

// impatience is how long the end of a run may take after the second signal. One that
// comes later ends this process as if it had never listened: what is waited for then
// is a reader of the live output who does not read.
const impatience = 2 * time.Second

// What is said when a signal comes: to a command, and to an agent's run.
const (
	endsCommand = "ending the command; again to kill it"
	endsRun     = "ending the run, with what its tools and subagents do"
)

// catchSignals begins to listen. SIGPIPE is an error of the write from now on, so that
// a reader who leaves early costs no record. The first signal is answered with says.
func (e *environment) catchSignals(ctx context.Context, says string) *signals {
	s := &signals{kill: make(chan struct{}), caught: make(chan os.Signal, 4)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Notify(s.caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) { // nohup means what it says
		signal.Notify(s.caught, syscall.SIGHUP)
	}
	go func() {
		for sig := range s.caught {
			if !s.answer(sig.(syscall.Signal), func() { e.remark("%s", says) }) {
				surrender(sig.(syscall.Signal))
			}
		}
	}()
	return s
}

// answer does what a signal is for, false when the run was released before.
func (s *signals) answer(sig syscall.Signal, say func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return false
	}
	switch s.count++; s.count {
	case 1:
		s.first = sig
		say()
		s.cancel()
	case 2:
		close(s.kill)
		time.AfterFunc(impatience, func() { signal.Stop(s.caught) })
	}
	return true
}

// surrender has a signal do to this process what it does to one that does not listen.
func surrender(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig)
}

// release ends what signals are for, and returns the first one that came, 0 for none:
// one that comes now ends this process, as if it had never listened. It listens still,
// because to stop takes a switch to another thread and back for each signal, and there
// is little left to do. It may be called again.
func (s *signals) release() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	s.cancel()
	return s.first
}

// interruptible has do end with its context at the first SIGINT, SIGTERM or SIGHUP, so
// that what a command has half made is removed, and not left. The second one ends the
// process at once. What was done before the signal had an effect stays done.
func (e *environment) interruptible(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(caught, syscall.SIGHUP)
	}
	var first syscall.Signal
	var done sync.WaitGroup
	done.Go(func() {
		sig, ok := <-caught
		signal.Stop(caught)
		if ok {
			first = sig.(syscall.Signal)
			cancel()
		}
	})
	err := do(ctx)
	signal.Stop(caught)
	close(caught) // nothing is sent after Stop
	done.Wait()
	if first != 0 && errors.Is(err, context.Canceled) {
		return &commandError{statusSignal + int(first), fmt.Errorf("ended by %s; nothing of it is left", unix.SignalName(first))}
	}
	return err
}
