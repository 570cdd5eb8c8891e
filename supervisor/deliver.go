package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// DoneType is the type of the entry that says that the result of a job was taken: a custom entry, or, where the end
// stands on a branch that is not the leaf's, a custom_message with it, which a model sees.
const DoneType = "agentrun.job.done"

// takeWait is how long to wait for another process that takes results.
const takeWait = 10 * time.Second

// Delivery is the result of a job that was moved to the background.
type Delivery struct {
	Job Job
	// Entry is the id of the entry with the result, which is in the context of the leaf: the end of the run, or the message
	// that stands for it on this branch.
	Entry string
	// Output is what the entry says that the job printed: bounded, with a notice where all of it is.
	Output string
}

// doneData is the data of an entry of DoneType.
type doneData struct {
	Run string `json:"run"`
	Job string `json:"job"`
	End string `json:"end"` // id of the entry with the end
}

// Take returns the results of jobs that were moved to the background, have ended, and were not taken before: each once,
// whoever asks, in however many processes, to the session that started the job and not to its forks. That one was
// taken is written to the log before Take returns it, and its result is in the context of the session by then: a driver
// that dies between the two finds it there when it goes on. For a job whose supervisor was killed Take records the end.
//
// With an error it returns what was taken before. It waits for 10 s at most for another process that takes.
func Take(ctx context.Context, s *session.Session) ([]Delivery, error) {
	if list, err := untaken(ctx, s); err != nil || len(list) == 0 {
		return nil, err
	}
	p := placeOf(s.Home(), s.ID())
	if err := durable.MkdirAll(nil, p.dir); err != nil {
		return nil, fmt.Errorf("taking the results of jobs: %w", err)
	}
	lock, err := durable.OpenLock(nil, filepath.Join(p.dir, p.name+".results"))
	if err != nil {
		return nil, fmt.Errorf("taking the results of jobs: %w", err)
	}
	defer lock.Close()
	if err := lock.Lock(ctx, takeWait); err != nil {
		return nil, fmt.Errorf("taking the results of jobs: %w", err)
	}
	list, err := untaken(ctx, s)
	if err != nil {
		return nil, err
	}
	var taken []Delivery
	for _, j := range list {
		d, err := take(ctx, s, j)
		if err != nil {
			return taken, fmt.Errorf("taking the result of job %s: %w", j.ID, err)
		}
		taken = append(taken, d)
	}
	return taken, nil
}

// untaken lists jobs whose result is to be taken.
func untaken(ctx context.Context, s *session.Session) ([]Job, error) {
	jobs, err := Jobs(s.ID(), s.Entries(ctx))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(jobs, func(j Job) bool {
		of := j.start.Session
		return !j.Moved || j.delivered || of != "" && of != s.ID() || j.State == Running ||
			j.ending == "" && j.State == Lost && j.start.Host != process.Self().Host // nobody knows here
	}), nil
}

// take takes one. The caller holds the lock.
func take(ctx context.Context, s *session.Session, j Job) (Delivery, error) {
	if j.ending == "" {
		note := fmt.Sprintf("[The command ended when agentrun's supervisor did; what it printed until then is %s]", j.Artifact)
		if j.State == Lost {
			note = fmt.Sprintf("[The command ended when the machine did; what it printed until then is %s]", j.Artifact)
		}
		id, err := bash.EndInterrupted(ctx, s, j.start, j.began, note, string(j.State))
		if err != nil {
			return Delivery{}, err
		}
		j.ending = id
	}
	e, err := s.Entry(ctx, j.ending)
	if err != nil {
		return Delivery{}, err
	}
	j.end(e)
	var m struct {
		Message entry.BashExecutionMessage `json:"message"`
	}
	if err := e.Decode(&m); err != nil {
		return Delivery{}, err
	}
	data, err := json.Marshal(doneData{j.Run, j.URL, j.ending})
	if err != nil {
		return Delivery{}, err
	}
	d := Delivery{Job: j, Entry: j.ending, Output: m.Message.Output}
	onPath, err := leadsTo(ctx, s, j.ending)
	if err != nil {
		return Delivery{}, err
	}
	if onPath {
		_, err = s.Append(ctx, entry.Custom{CustomType: DoneType, Data: data})
		return d, err
	}
	text := fmt.Sprintf("%s, started on another branch, has ended. %s", j.URL, entry.Text(m.Message))
	d.Entry, err = s.Append(ctx, entry.CustomMessage{CustomType: DoneType, Content: entry.PlainText(text), Display: true, Details: data})
	return d, err
}

// leadsTo reports whether the leaf descends from an entry.
func leadsTo(ctx context.Context, s *session.Session, id string) (bool, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return false, err
	}
	leaf := t.Leaf()
	return leaf >= 0 && slices.Contains(t.Path(leaf), t.Find(id)), nil
}

var doneWord = []byte(DoneType)

// deliveryOf returns the run whose result e says was taken.
func deliveryOf(e entry.Entry) (run string, ok bool) {
	if !bytes.Contains(e.Raw(), doneWord) {
		return "", false
	}
	var b struct {
		CustomType    string `json:"customType"`
		Data, Details doneData
	}
	if e.Decode(&b) != nil || b.CustomType != DoneType {
		return "", false
	}
	if e.Type() == entry.TypeCustom {
		return b.Data.Run, b.Data.Run != ""
	}
	return b.Details.Run, b.Details.Run != ""
}
