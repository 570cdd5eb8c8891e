package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// Version is the version of the format that this package reads and writes.
const Version = 1

// Line is one line of a script. The package comment says what its members mean.
type Line struct {
	Agent  string  `json:"agent"`
	Expect *Expect `json:"expect,omitempty"`
	Say    []Step  `json:"say"`
	Stop   string  `json:"stop,omitempty"`
	Times  int     `json:"times,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// Head is a first line that says what the model is.
type Head struct {
	Script int       `json:"script"` // Version
	Model  ModelInfo `json:"model,omitzero"`
}

// ModelInfo is what a script may say of its model.
type ModelInfo struct {
	ID            string            `json:"id,omitempty"`
	ContextWindow int64             `json:"contextWindow,omitempty"`
	MaxOutput     int64             `json:"maxOutput,omitempty"`
	Prices        *model.Prices     `json:"prices,omitempty"`
	Images        model.ImageLimits `json:"images,omitzero"`
}

// Step is one step of an answer.
type Step struct {
	Text      Pieces          `json:"text,omitempty"`
	Thinking  Pieces          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Redacted  string          `json:"redacted,omitempty"`
	Call      string          `json:"call,omitempty"`
	ID        string          `json:"id,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"`
	RawArgs   Pieces          `json:"rawArgs,omitempty"`
	Parallel  []Step          `json:"parallel,omitempty"`
	Repeat    int             `json:"repeat,omitempty"`
	Delay     Duration        `json:"delay,omitempty"`
	Hang      bool            `json:"hang,omitempty"`
	Usage     *Usage          `json:"usage,omitempty"`
	Retry     *Failure        `json:"retry,omitempty"`
	Error     *Failure        `json:"error,omitempty"`
	Cut       bool            `json:"cut,omitempty"`
}

// Usage is tokens.
type Usage struct {
	Input           int64  `json:"input,omitempty"`
	Output          int64  `json:"output,omitempty"`
	CacheRead       int64  `json:"cacheRead,omitempty"`
	CacheWrite      int64  `json:"cacheWrite,omitempty"`
	ReasoningTokens *int64 `json:"reasoningTokens,omitempty"`
}

func (u Usage) entry() entry.Usage {
	return entry.Usage{
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, ReasoningTokens: u.ReasoningTokens,
	}
}

// Failure is how a request fails.
type Failure struct {
	Kind       model.Kind `json:"kind"`
	Status     int        `json:"status,omitempty"`
	RetryAfter Duration   `json:"retryAfter,omitempty"`
	Message    string     `json:"message,omitempty"`
}

func (f Failure) err() *model.Error {
	message := f.Message
	if message == "" {
		message = "the script says " + string(f.Kind)
	}
	return &model.Error{Kind: f.Kind, Status: f.Status, RetryAfter: time.Duration(f.RetryAfter), Message: message}
}

// Pieces are one string, or several that come one behind the other.
type Pieces []string

// MarshalJSON writes a single piece as a string.
func (p Pieces) MarshalJSON() ([]byte, error) {
	if len(p) == 1 {
		return json.Marshal(p[0])
	}
	return json.Marshal([]string(p))
}

// UnmarshalJSON reads a string or a list of strings.
func (p *Pieces) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*p = make(Pieces, 1)
		return json.Unmarshal(b, &(*p)[0])
	}
	return json.Unmarshal(b, (*[]string)(p))
}

func (p Pieces) size() (n int) {
	for _, piece := range p {
		n += len(piece)
	}
	return n
}

// Duration is a time.Duration, in JSON as Go writes it: "1.5s".
type Duration time.Duration

// MarshalJSON writes a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a string such as "50ms".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("a time is a string such as \"50ms\": %w", err)
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 || v > MaxDelay {
		return fmt.Errorf("%.40q is no time between 0 and %v, such as 50ms", text, MaxDelay)
	}
	*d = Duration(v)
	return nil
}

// ends reports whether the line is a turn: its answer has an end.
func (l *Line) ends() bool {
	if len(l.Say) == 0 {
		return true
	}
	last := &l.Say[len(l.Say)-1]
	return last.Error == nil && !last.Cut && !last.Hang
}

// pattern reports whether the line is for agents by pattern.
func (l *Line) pattern() bool { return strings.ContainsAny(l.Agent, "*?[") }

// check returns what is wrong with a line.
func (l *Line) check() error {
	if l.Agent == "" || len(l.Agent) > MaxAgent {
		return fmt.Errorf("agent is missing, or longer than %d bytes", MaxAgent)
	}
	if l.pattern() {
		if _, err := path.Match(l.Agent, ""); err != nil {
			return fmt.Errorf("agent %.80q is no pattern", l.Agent)
		}
	}
	if l.Stop != "" && l.Stop != entry.StopLength && l.Stop != entry.StopStop {
		return fmt.Errorf("stop is %.40q; it is \"length\" or left out", l.Stop)
	}
	if l.Times < -1 || l.Times > MaxTimes {
		return fmt.Errorf("times is %d; it is at most %d, or -1 for ever", l.Times, MaxTimes)
	}
	total := 0
	for i := range l.Say {
		size, err := l.Say[i].check(true)
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if total += size; total > model.MaxAnswer {
			return fmt.Errorf("step %d: the answer is longer than %d MiB", i+1, model.MaxAnswer>>20)
		}
		if last := l.Say[i]; i < len(l.Say)-1 && (last.Error != nil || last.Cut || last.Hang) {
			return fmt.Errorf("step %d ends the answer, and step %d follows", i+1, i+2)
		}
	}
	if l.Stop != "" && !l.ends() {
		return errors.New("stop stands beside a step that ends the answer otherwise")
	}
	if l.Expect != nil {
		return l.Expect.check()
	}
	return nil
}

// check returns what is wrong with a step, and how long it makes the answer.
func (s *Step) check(outer bool) (size int, err error) {
	var kinds []string
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"text", s.Text != nil},
		{"thinking", s.Thinking != nil},
		{"redacted", s.Redacted != ""},
		{"call", s.Call != ""},
		{"parallel", s.Parallel != nil},
		{"delay", s.Delay != 0},
		{"hang", s.Hang},
		{"usage", s.Usage != nil},
		{"retry", s.Retry != nil},
		{"error", s.Error != nil},
		{"cut", s.Cut},
	} {
		if k.set {
			kinds = append(kinds, k.name)
		}
	}
	switch {
	case len(kinds) == 0:
		return 0, errors.New("says nothing to do: give it text, thinking, redacted, call, parallel, delay, hang, usage, retry, error or cut")
	case len(kinds) > 1:
		return 0, fmt.Errorf("is both %s and %s; make two steps of it", kinds[0], kinds[1])
	}
	kind := kinds[0]
	pieces := s.pieces()
	switch {
	case s.Signature != "" && kind != "thinking" && kind != "text":
		return 0, errors.New("signature belongs to thinking, or to text")
	case (s.ID != "" || s.Args != nil || s.RawArgs != nil) && kind != "call":
		return 0, errors.New("id, args and rawArgs belong to call")
	case s.Args != nil && s.RawArgs != nil:
		return 0, errors.New("has both args and rawArgs")
	case s.Repeat < 0 || s.Repeat > model.MaxAnswer:
		return 0, fmt.Errorf("repeat is %d", s.Repeat)
	case s.Repeat > 1 && (len(pieces) == 0 || s.Args != nil):
		return 0, errors.New("repeat belongs to text, thinking or rawArgs")
	case s.Repeat > 1 && !outer:
		return 0, errors.New("repeat cannot be within parallel")
	case !outer && kind != "text" && kind != "thinking" && kind != "call":
		return 0, fmt.Errorf("%s cannot be within parallel", kind)
	}
	for _, f := range []*Failure{s.Error, s.Retry} {
		if f != nil {
			if err := f.check(); err != nil {
				return 0, err
			}
		}
	}
	size = len(s.Signature) + len(s.Redacted) + len(s.Call) + len(s.ID)
	if n := pieces.size(); n > 0 && s.Repeat > model.MaxAnswer/n {
		return 0, fmt.Errorf("the answer is longer than %d MiB", model.MaxAnswer>>20)
	}
	size += pieces.size() * max(s.Repeat, 1)
	for i := range s.Parallel {
		n, err := s.Parallel[i].check(false)
		if err != nil {
			return 0, fmt.Errorf("part %d: %w", i+1, err)
		}
		size += n
	}
	return size, nil
}

func (f *Failure) check() error {
	switch f.Kind {
	case model.KindAuth, model.KindRateLimit, model.KindOverloaded, model.KindOverflow, model.KindInvalid,
		model.KindRefused, model.KindNetwork, model.KindCut, model.KindServer:
	default:
		return fmt.Errorf("there is no error of the kind %.40q; see the kinds of package model", f.Kind)
	}
	if f.Status < 0 || f.Status > 999 {
		return fmt.Errorf("status %d is none of HTTP", f.Status)
	}
	return nil
}

// pieces are what the step streams.
func (s *Step) pieces() Pieces {
	switch {
	case s.Text != nil:
		return s.Text
	case s.Thinking != nil:
		return s.Thinking
	case s.RawArgs != nil:
		return s.RawArgs
	case s.Args != nil:
		return Pieces{string(s.Args)}
	}
	return nil
}
