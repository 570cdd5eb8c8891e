package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// Custom entry types of the log.
const (
	// StartType is the entry that a run begins with. Its data is a Start.
	StartType = "agentrun.agent.start"
	// EndType is the entry that it ends with. Its data is an End.
	EndType = "agentrun.agent.end"
	// SayType is an entry that says something to the agent of the session. Its data is a Said.
	SayType = "agentrun.agent.say"
)

// Start is the data of the entry that a run begins with.
type Start struct {
	Run    string `json:"run"` // UUIDv7
	Agent  string `json:"agent"`
	Model  string `json:"model"`          // "provider/id"
	Spec   string `json:"spec,omitempty"` // Options.Spec
	Limits Limits `json:"limits,omitzero"`
	// Settings are Options.Settings.
	Settings json.RawMessage `json:"settings,omitempty"`
	Seal     string          `json:"seal,omitempty"`    // what Options.Seal returned for Run
	Answers  int             `json:"answers"`           // of models, in the log before this entry
	Resumes  string          `json:"resumes,omitempty"` // the run that it goes on with
	Before   *Before         `json:"before,omitempty"`  // what that has spent of the same limits; nil where they count anew
	// Said are the entries before this one that say something and were not taken up, as far as the log was read: up to the entry
	// Read. Others may have said something between that and this entry. "" is a log without entries, nil one that an older agentrun
	// wrote.
	Said []string `json:"said,omitempty"`
	Read *string  `json:"read,omitempty"`
}

// End is the data of the entry that a run ends with.
type End struct {
	Outcome
	DurationMS int64 `json:"durationMs"`
}

// Said is the data of an entry that says something to the agent. The agent takes it up before its next request, and
// the message that it then becomes has the id of this entry in its member "agentrun".
type Said struct {
	Text string `json:"text"`
	From string `json:"from,omitempty"` // who says it, for the log
}

// MaxSaid is the longest text that can be said to an agent, in bytes.
const MaxSaid = 1 << 20

// Say says something to the agent of a session, in whichever process it runs or will run: the text goes into its
// context before its next request, once. It returns the id of the entry, which is on disk then. The session may be
// driven by another process.
func Say(ctx context.Context, s *session.Session, said Said) (string, error) {
	switch {
	case said.Text == "":
		return "", errors.New("saying something to an agent: there is no text")
	case len(said.Text) > MaxSaid:
		return "", fmt.Errorf("saying something to an agent: the text has %d bytes, and %d are the most; put it into a file and name that", len(said.Text), MaxSaid)
	}
	data, err := json.Marshal(said)
	if err != nil {
		return "", fmt.Errorf("saying something to an agent: %w", err)
	}
	id, err := s.Append(ctx, entry.Custom{CustomType: SayType, Data: data})
	if err != nil {
		return "", fmt.Errorf("saying something to an agent: %w", err)
	}
	return id, nil
}

// message is a user message with a member of ours, which other programs keep.
func message(content entry.Content, o origin) (entry.Body, error) {
	m := entry.UserText("")
	m.Content = content
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing a message: %w", err)
	}
	ours, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("writing a message: %w", err)
	}
	raw = append(raw[:len(raw)-1], `,"agentrun":`...) // a message has members
	return entry.MessageBody{Message: append(append(raw, ours...), '}')}, nil
}

// origin tells where a message is from.
type origin struct {
	Said string `json:"said,omitempty"` // the entry that it takes up
	Run  string `json:"run,omitempty"`  // the run whose prompt it is
}

// past is what the log says about the agent's runs until now.
type past struct {
	answers int // of models, those that failed or were aborted aside
	start   *Start
	end     *End
	queued  []queued // said and not taken up, in their order
	read    string   // the last entry, "" if there was none

	began  time.Time // the last run
	spent  Spent     // by it, as its entries tell
	worked time.Time // when it did something last, zero if it did nothing
}

// queued is an entry that says something.
type queued struct {
	entry string
	text  string
}

func (p *past) finished() bool {
	return p.start == nil || p.end != nil && p.end.Run == p.start.Run && p.end.Status == Completed
}

// failed reports whether the last run came to its end as failed.
func (p *past) failed() bool {
	return p.start != nil && p.end != nil && p.end.Run == p.start.Run && p.end.Status == FailedRun
}

func (p *past) outcome() Outcome {
	if p.end == nil {
		return Outcome{Status: Completed}
	}
	out := p.end.Outcome
	out.Resumed = false
	return out
}

// LastStart is the beginning of the last run of an agent in a session, nil if there was none.
func LastStart(ctx context.Context, s *session.Session, id string) (*Start, error) {
	p, err := readPast(ctx, s, id)
	return p.start, err
}

// Standing is how an agent stands, by its log.
type Standing struct {
	Run    string // the last one, "" if there was none
	Status Status // of that run; Unfinished without an end
	Said   int    // how much was said to it that it has not taken up
}

// StandingOf tells how an agent stands in a session.
func StandingOf(ctx context.Context, s *session.Session, id string) (Standing, error) {
	p, err := readPast(ctx, s, id)
	if err != nil {
		return Standing{}, fmt.Errorf("reading how agent %s stands: %w", id, err)
	}
	standing := Standing{Status: Unfinished, Said: len(p.queued)}
	if p.start != nil {
		standing.Run = p.start.Run
	}
	if p.end != nil && p.end.Run == standing.Run {
		standing.Status = p.end.Status
	}
	return standing, nil
}

// readPast reads the log from its end to the beginning of the last run, and further only for what was said before that
// and not taken up. Between the last entry that a run had read and its first one there may be some of which it does not know.
func readPast(ctx context.Context, s *session.Session, id string) (past, error) {
	var p past
	taken, open := map[string]bool{}, map[string]bool{}
	unread := false // where the last run has not read
	for e, err := range s.Backward(ctx) {
		if err != nil {
			return p, err
		}
		if p.read == "" {
			p.read = e.ID()
		}
		if unread = unread && e.ID() != *p.start.Read; p.start != nil && !unread && len(open) == 0 {
			break
		}
		if said := saidOf(e); said != "" {
			taken[said] = true
		}
		if p.start == nil {
			p.note(e)
		}
		custom, ok := e.Custom()
		if !ok {
			continue
		}
		switch custom.CustomType {
		case EndType:
			var end End
			if p.start == nil && p.end == nil && json.Unmarshal(custom.Data, &end) == nil {
				p.end = &end
			}
		case SayType:
			var said Said
			if (p.start == nil || unread || open[e.ID()]) && !taken[e.ID()] && json.Unmarshal(custom.Data, &said) == nil && said.Text != "" {
				p.queued = append(p.queued, queued{e.ID(), said.Text})
			}
			delete(open, e.ID())
		case StartType:
			var start Start
			if json.Unmarshal(custom.Data, &start) != nil || start.Agent != id {
				break
			}
			if p.start != nil {
				unread = false
				break
			}
			p.start, p.began, unread = &start, e.Time(), start.Read != nil
			p.answers += start.Answers
			for _, said := range start.Said {
				open[said] = !taken[said]
			}
			maps.DeleteFunc(open, func(_ string, waits bool) bool { return !waits })
		}
		if p.start != nil && !unread && len(open) == 0 {
			break
		}
	}
	slices.Reverse(p.queued)
	return p, nil
}

// counts reports whether an answer of a model that ended so is one by which a script is played. One that failed or was
// cut short is asked for again.
func counts(stopReason string) bool {
	return stopReason != entry.StopAborted && stopReason != entry.StopError
}

// saidOf returns the entry that a message takes up, "" if it is of another kind.
func saidOf(e entry.Entry) string {
	if e.Type() != entry.TypeMessage || e.Role() != entry.RoleUser {
		return ""
	}
	var m struct {
		Message struct {
			Origin origin `json:"agentrun"`
		} `json:"message"`
	}
	if e.Decode(&m) != nil {
		return ""
	}
	return m.Message.Origin.Said
}

func newRunID() string {
	id, err := uuid.NewV7()
	if err != nil {
		id = uuid.New() // without a random source nothing works, and New panics
	}
	return id.String()
}
