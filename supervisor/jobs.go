package supervisor

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// State is what became of a job.
type State string

// States of jobs.
const (
	Running State = "running"
	Exited  State = "exited" // by itself, with its exit code
	Killed  State = "killed" // by a signal, a timeout, somebody who cancelled it, or with its supervisor
	Lost    State = "lost"   // the machine was started anew meanwhile, or it ran on another one
)

// Job is one job of a session. Its JSON is what the command line prints.
type Job struct {
	ID       string     `json:"id"`
	URL      string     `json:"url"`
	State    State      `json:"state"`
	ExitCode *int       `json:"exitCode"` // null while it runs, and when nobody knows
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended"` // null while it runs, and when nobody knows
	Artifact string     `json:"artifact"`
	Command  string     `json:"command"`
	Signal   string     `json:"signal,omitempty"`  // that ended it, as SIGKILL
	EndedBy  string     `json:"endedBy,omitempty"` // "timeout", "kill", "limit" of a sandbox or of the output, or "supervisor": gone, and the job with it

	Number int64  `json:"-"`
	Run    string `json:"-"`
	Moved  bool   `json:"-"` // somebody waited for it at first

	Terminal *bash.TerminalSize `json:"-"` // that it had at its start; nil is none

	start     bash.Start
	began     string // id of the entry that its start is recorded beside
	ending    string // id of the entry with its end
	delivered bool
}

// Name, URL and Artifact of job n.
func names(n int64) (id, url, artifact string) {
	id = strconv.FormatInt(n, 10)
	return id, "job://" + id, "artifact://" + id
}

// Named returns what is known of job n by its number alone.
func Named(n int64) Job {
	j := Job{Number: n, State: Running}
	j.ID, j.URL, j.Artifact = names(n)
	return j
}

// ParseID reads the name of a job: its number, or its URL.
func ParseID(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(s, "job://"), 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != strings.TrimPrefix(s, "job://") {
		return 0, fmt.Errorf("%q names no job: give its number, as agentrun jobs list shows it", s)
	}
	return n, nil
}

// Jobs lists the jobs of a session, whose id is given, in the order of their starts, from the entries of its log in file
// order. Those that a fork has of the session it was made from are listed if they had ended by then: what became of the
// others is in that session.
func Jobs(session string, entries iter.Seq2[entry.Entry, error]) ([]Job, error) {
	list, err := allJobs(entries)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(j Job) bool { return j.elsewhere(session) }), nil
}

// elsewhere reports whether the job runs in another session, of which this one is a fork.
func (j *Job) elsewhere(session string) bool {
	return j.ending == "" && j.start.Session != "" && j.start.Session != session
}

func allJobs(entries iter.Seq2[entry.Entry, error]) ([]Job, error) {
	var list []Job
	at := map[string]int{}
	began := map[string]string{} // by run: the entry that it began with
	for e, err := range entries {
		if err != nil {
			return nil, fmt.Errorf("looking for jobs: %w", err)
		}
		if s, ok := bash.StartOf(e); ok {
			if _, twice := began[s.Run]; !twice {
				began[s.Run] = e.ID()
			}
			if _, twice := at[s.Run]; twice || !s.Job || s.Artifact == nil {
				continue
			}
			j := Named(*s.Artifact)
			j.Started, j.Command, j.Run, j.Moved = s.Began, s.Command, s.Run, s.Moved
			j.start, j.began, j.Terminal = s, began[s.Run], s.Terminal
			at[s.Run] = len(list)
			list = append(list, j)
		} else if run, ok := bash.EndOf(e); ok {
			if i, ok := at[run]; ok {
				list[i].end(e)
			}
		} else if run, ok := deliveryOf(e); ok {
			if i, ok := at[run]; ok {
				list[i].delivered = true
			}
		}
	}
	for i := range list {
		if list[i].State == Running {
			list[i].State = stateOf(list[i].start.Owner)
		}
	}
	return list, nil
}

// stateOf is the state of a job without an end, by who ran it: a supervisor that is killed takes its jobs along.
func stateOf(owner bash.Owner) State {
	switch owner.Life() {
	case process.Alive:
		return Running
	case process.Gone:
		if owner.BootID == process.Self().BootID {
			return Killed
		}
	}
	return Lost
}

// end fills in what the entry of its end says.
func (j *Job) end(e entry.Entry) {
	var b struct {
		Message struct {
			ExitCode  *int        `json:"exitCode"`
			Cancelled bool        `json:"cancelled"`
			Timestamp int64       `json:"timestamp"`
			Details   bash.Finish `json:"details"`
		} `json:"message"`
	}
	if e.Decode(&b) != nil {
		return
	}
	m := &b.Message
	if j.ending == "" {
		j.ending = e.ID()
	}
	j.delivered = j.delivered || m.Details.Delivered
	j.State, j.ExitCode = Exited, m.ExitCode
	if m.Details.Signal != nil {
		j.Signal = *m.Details.Signal
	}
	switch {
	case m.Details.Interrupted == string(Killed):
		j.EndedBy = "supervisor"
	case m.Details.TimedOut:
		j.EndedBy = "timeout"
	case slices.Contains(strings.Split(m.Details.Limits, ","), bash.LimitOutput):
		j.EndedBy = "limit"
	case m.Cancelled:
		j.EndedBy = "kill"
	case m.Details.Signal != nil && m.Details.Limits != "":
		j.EndedBy = "limit"
	}
	if m.Cancelled || m.Details.TimedOut || m.Details.Signal != nil {
		j.State = Killed
	}
	if m.Details.Interrupted != "" { // nobody knows when
		j.State, j.ExitCode = Killed, nil
		if m.Details.Interrupted == string(Lost) {
			j.State = Lost
		}
		return
	}
	if m.Timestamp > 0 {
		ended := time.UnixMilli(m.Timestamp).UTC()
		j.Ended = &ended
	}
}

// Find returns job n of a session.
func Find(session string, entries iter.Seq2[entry.Entry, error], n int64) (Job, error) {
	jobs, err := allJobs(entries)
	if err != nil {
		return Job{}, err
	}
	var there []string
	for _, j := range jobs {
		switch {
		case j.elsewhere(session):
			if j.Number == n {
				return Job{}, fmt.Errorf("job %d is one of session %s, which this one was forked from: give --session %s", n, j.start.Session, j.start.Session)
			}
			continue
		case j.Number == n:
			return j, nil
		}
		there = append(there, j.ID)
	}
	switch len(there) {
	case 0:
		return Job{}, fmt.Errorf("there is no job %d: the session has none; agentrun jobs start starts one", n)
	case 1:
		return Job{}, fmt.Errorf("there is no job %d: there is %s", n, there[0])
	}
	return Job{}, fmt.Errorf("there is no job %d: there are %s", n, strings.Join(there, ", "))
}
