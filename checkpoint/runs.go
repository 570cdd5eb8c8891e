package checkpoint

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// runs are the times during which a session ran something.
type runs struct {
	list []span
	open map[string]int // of list, by what ends it
}

type span struct {
	what       string
	begin, end time.Time
	alive      bool // it may still be at work
	done       bool
}

// The time stamps of files come from a clock that the kernel moves in steps of up to
// 10 ms (HZ=100), those of entries are cut to the millisecond.
const (
	fileClock  = 10 * time.Millisecond
	entryClock = time.Millisecond
)

// findRuns reads the log for runs and tool calls. One without an end that is not at
// work any more has the next entry for its end.
func (r *Recorder) findRuns(ctx context.Context) (*runs, error) {
	found := &runs{open: map[string]int{}}
	err := r.lines(ctx, 0, func(line []byte, offset int64) {
		for _, e := range session.LineEntries(line, offset, 0) {
			found.add(e)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("looking for runs: %w", err)
	}
	return found, nil
}

func (f *runs) add(e entry.Entry) {
	now := e.Time()
	if now.IsZero() {
		return
	}
	for _, i := range f.open { // as far as is known until its end is found
		if s := &f.list[i]; s.end.IsZero() {
			s.end = now
		}
	}
	if s, ok := bash.StartOf(e); ok {
		if s.Remote != "" {
			return // it changed files of another host
		}
		if _, twice := f.open["run "+s.Run]; twice {
			return // it became a job
		}
		f.begin("run "+s.Run, span{
			what: "the run of " + strconv.Quote(firstBytes(s.Command)), begin: now,
			alive: bash.Life(s.Owner.Life()) == bash.Alive,
		})
		return
	}
	if run, ok := bash.EndOf(e); ok {
		f.finish("run "+run, now)
		return
	}
	for _, id := range e.ToolCallIDs() {
		f.begin("call "+id, span{what: "the tool call " + strconv.Quote(firstBytes(id)), begin: now})
	}
	if id := e.ToolCallID(); id != "" {
		f.finish("call "+id, now)
	}
}

func (f *runs) begin(key string, s span) {
	f.open[key] = len(f.list)
	f.list = append(f.list, s)
}

func (f *runs) finish(key string, at time.Time) {
	if i, ok := f.open[key]; ok {
		f.list[i].end, f.list[i].done = at, true
		delete(f.open, key)
	}
}

// firstBytes is as much of a command as a reason needs.
func firstBytes(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// at names what ran at a time, "" for nothing.
func (f *runs) at(t time.Time) string {
	for i := len(f.list) - 1; i >= 0; i-- {
		s := f.list[i]
		if t.Before(s.begin.Add(-fileClock)) {
			continue
		}
		if !s.done && s.alive || !s.end.IsZero() && !t.After(s.end.Add(entryClock)) {
			return s.what
		}
	}
	return ""
}
