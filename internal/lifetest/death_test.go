package lifetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// childEnv makes the test binary a process that does the errand that it reads from its
// standard input.
const childEnv = "AGENTRUN_TEST_LIFE"

// errand is a job for a process that dies at its n-th operation on the disk, if it
// gets there; -1 is never.
type errand struct {
	Home string
	Job  job
	N    int
}

func TestMain(m *testing.M) {
	for name, run := range map[string]func(in *bufio.Reader) error{childEnv: runErrand, togetherEnv: runTogether} {
		if os.Getenv(name) == "" {
			continue
		}
		if err := run(bufio.NewReader(os.Stdin)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	debug.SetGCPercent(400) // a quarter of the time otherwise
	os.Exit(m.Run())
}

// runErrand says the result, or dies without giving anything back.
func runErrand(in *bufio.Reader) error {
	var e errand
	if err := json.NewDecoder(in).Decode(&e); err != nil {
		return err
	}
	fsys := faultfs.New(durable.OS)
	if e.N >= 0 {
		fsys.CrashAt(e.N)
	}
	w, err := newWorker(e.Home, fsys)
	if err != nil {
		return err
	}
	r, err := w.do(context.Background(), e.Job)
	if fsys.Fired() {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err = errors.Join(err, w.close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// send has another process run an errand. died says that it was killed.
func send(ctx context.Context, e errand) (r result, died bool, err error) {
	said, err := json.Marshal(e)
	if err != nil {
		return r, false, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env, cmd.Stdin = append(os.Environ(), childEnv+"=1"), bytes.NewReader(said)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return r, true, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return r, false, json.Unmarshal(out, &r)
}

// die has somebody else do an operation who dies at operation n on the disk: a
// process, or in this one, which is quicker, somebody for whom from then on everything
// fails.
func (l *life) die(ctx context.Context, j job, n int, process bool) error {
	if process {
		r, died, err := send(ctx, errand{l.home, j, n})
		if err != nil {
			return err
		}
		if died {
			return l.died(ctx, j)
		}
		return l.done(ctx, j, r)
	}
	fsys := faultfs.New(durable.OS)
	fsys.CrashAt(n)
	w, err := newWorker(l.home, fsys)
	if err != nil {
		return err
	}
	r, err := w.do(ctx, j)
	if closeErr := w.close(); !fsys.Fired() {
		err = errors.Join(err, closeErr)
	}
	switch {
	case err == nil && !(fsys.Fired() && j.Do == "doctor"): // who tells faults as findings
		return l.done(ctx, j, r)
	case fsys.Fired():
		return l.died(ctx, j)
	}
	return err
}

// died judges what somebody left who died during a job: the state before, or that
// after, or of several entries some. It becomes the model.
func (l *life) died(ctx context.Context, j job) error {
	l.model.killed = true
	l.deaths++
	// Of the sessions that the job had nothing to do with, the next comparison of
	// everything says whether they are as they were.
	touched := func(id string) bool {
		return j.Do == "gc" || j.Do == "doctor" || id == j.ID || l.model.sessions[id] == nil
	}
	all, err := lookAround(ctx, l.home, touched)
	if err != nil {
		return err
	}
	made, err := l.model.survived(all, j)
	if err != nil {
		return err
	}
	if made != nil {
		l.model.add(made)
	}
	return l.sameAs(all)
}

// survived takes what is there for the model where the job may have changed it, and
// returns the session that it made.
func (m *model) survived(all map[string]*state, j job) (made *state, err error) {
	for id, s := range all {
		if m.sessions[id] != nil {
			continue
		}
		if made != nil {
			return nil, fmt.Errorf("sessions %s and %s are new", made.ID, id)
		}
		made = s
	}
	before, after := m.sessions[j.ID], all[j.ID]
	if before != nil && after == nil {
		return nil, fmt.Errorf("session %s is gone", j.ID)
	}
	switch j.Do {
	case "create", "fork", "travel":
		if made == nil {
			return nil, nil
		}
		if j.Do == "create" {
			return made, says(made.Entries, "", j.Bodies)
		}
		return made, forked(before, made, j)
	case "rm", "restore":
		before.Trashed = after.Trashed
		if !after.Trashed {
			before.Path = after.Path
		}
	case "move":
		if after.CWD == j.CWD {
			before.CWD, before.Path = after.CWD, after.Path
		}
	case "compress":
		before.Path = after.Path
	case "gc":
		if j.Option {
			maps.DeleteFunc(m.sessions, func(id string, s *state) bool { return s.Trashed && all[id] == nil })
		}
	case "doctor":
		for id, s := range m.sessions {
			if all[id] != nil {
				s.settle(all[id])
			}
		}
	default:
		if err := m.wrote(before, after, j, nil); err != nil {
			return nil, err
		}
		m.sessions[j.ID] = after
		m.tell(after)
	}
	if made != nil {
		return nil, fmt.Errorf("%s made session %s", j.Do, made.ID)
	}
	return nil, nil
}

// settle takes over how a repair says that artifacts ended, whose bytes are the same.
func (s *state) settle(after *state) {
	if s.Trashed || after.Trashed {
		return
	}
	for n, a := range s.Artifacts {
		if got := after.Artifacts[n]; got.Sum == a.Sum {
			s.Artifacts[n] = got
		}
	}
	s.Torn = after.Torn
}
