// Package record makes a script of a conversation with a model, which model/script plays
// again, without the network and without what it cost.
//
// Each answer becomes one line when it has ended, and each request that failed one that
// fails; the format is that of model/script. Answers stand block by block, without
// how long they took and in what pieces they came. A line expects as many messages, a last one of the
// same role, and the same tools; its note has the beginning of what was asked. What was cancelled,
// or not listened to, is not recorded.
//
// What of a line may be secret goes through Options.Redact: texts, reasoning, arguments,
// notes, messages of errors. Signatures are kept as they are; only the provider can read
// them.
//
// A conversation that began before its recording has one line that stands for the turns before. A
// turn that is answered twice cannot be in a script: the first answer stays, and Err
// says so. A line that cannot be written leaves the conversation as it is; Err tells.
package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

// noteSize is how much of a question stands in the note of its answer, in bytes.
const noteSize = 400

// Options are how a conversation is recorded.
type Options struct {
	// Redact takes secrets out of a text. It is called by one goroutine at a time. Nil
	// leaves them in.
	Redact func([]byte) []byte
}

// Model records what is said to another. It is as safe for concurrent use as that one.
type Model struct {
	inner model.Model
	*tape
}

// tape is where a conversation is recorded.
type tape struct {
	redact func([]byte) []byte

	mu   sync.Mutex
	w    io.Writer
	err  error
	next map[string]int // the turn of each agent that comes next
}

var _ model.Model = (*Model)(nil)

// New records what is said to inner. The writer gets whole lines, each in one write; its
// owner closes it.
func New(inner model.Model, w io.Writer, o Options) *Model {
	m := &Model{inner, &tape{redact: o.Redact, w: w, next: map[string]int{}}}
	i := inner.Info()
	m.write(script.Head{Script: script.Version, Model: script.ModelInfo{
		ID: i.ID, ContextWindow: i.ContextWindow, MaxOutput: i.MaxOutput, Prices: i.Prices, Images: i.Images,
	}})
	return m
}

// Beside records what is said to another model in the same script, which says what the first one is: agents of one
// conversation may ask several.
func (m *Model) Beside(inner model.Model) *Model { return &Model{inner, m.tape} }

// Info says what the model is.
func (m *Model) Info() model.Info { return m.inner.Info() }

// Unwrap returns the model that is recorded.
func (m *Model) Unwrap() model.Model { return m.inner }

// Err is the first thing that could not be recorded, nil if everything was.
func (m *Model) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Stream asks the model, and records what it says.
func (m *Model) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for e, err := range m.inner.Stream(ctx, req) {
			// The line is there before anybody acts on the answer.
			if stop, ok := e.(model.Stop); ok && err == nil {
				m.answered(req, &stop.Message)
			}
			var failed *model.Error
			if errors.As(err, &failed) && failed.Kind != model.KindCancelled {
				m.failed(req, failed)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (t *tape) answered(req *model.Request, a *entry.AssistantMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reach(req) {
		return
	}
	t.next[req.Agent] = req.Turn + 1
	line := t.line(req)
	t.say(&line, a)
	if a.StopReason == entry.StopLength {
		line.Stop = entry.StopLength
	}
	t.write(line)
}

func (t *tape) failed(req *model.Request, e *model.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reach(req) {
		return
	}
	line := t.line(req)
	if e.Kind == model.KindInvalid {
		line.Expect = nil // what was wrong may be what a script refuses first
	}
	if e.Partial != nil {
		t.say(&line, e.Partial)
	}
	if e.Kind == model.KindCut {
		line.Say = append(line.Say, script.Step{Cut: true})
	} else {
		line.Say = append(line.Say, script.Step{Error: &script.Failure{
			Kind: e.Kind, Status: e.Status, RetryAfter: script.Duration(e.RetryAfter), Message: t.clean(e.Message),
		}})
	}
	t.write(line)
}

// reach brings the script to the turn of a request. It is false if the script is beyond.
func (t *tape) reach(req *model.Request) bool {
	next := t.next[req.Agent]
	if req.Turn < next {
		t.fail(fmt.Errorf("recording agent %s: turn %d was answered before; a script has one answer for it", req.Agent, req.Turn))
		return false
	}
	if missing := req.Turn - next; missing > 0 {
		t.write(script.Line{Agent: req.Agent, Say: []script.Step{}, Times: missing, Note: "turns before the recording"})
		t.next[req.Agent] = req.Turn
	}
	return true
}

// line is a line without what is said.
func (t *tape) line(req *model.Request) script.Line {
	n := len(req.Messages)
	expect := &script.Expect{Messages: &n}
	line := script.Line{Agent: req.Agent, Expect: expect, Say: []script.Step{}}
	for _, t := range req.Tools {
		expect.Tools = append(expect.Tools, t.Name)
	}
	if n > 0 {
		last := req.Messages[n-1]
		expect.Last = &script.ExpectMessage{Role: last.MessageRole()}
		note := t.clean(entry.Text(last))
		if len(note) > noteSize {
			note = string(bytes.ToValidUTF8([]byte(note[:noteSize]), nil)) + "…"
		}
		line.Note = note
	}
	return line
}

// say adds the blocks of an answer to a line.
func (t *tape) say(line *script.Line, a *entry.AssistantMessage) {
	for _, b := range a.Content.Blocks() {
		var s script.Step
		switch b := b.(type) {
		case entry.TextBlock:
			s = script.Step{Text: script.Pieces{t.clean(b.Text)}, Signature: b.Signature}
		case entry.ThinkingBlock:
			s = script.Step{Thinking: script.Pieces{t.clean(b.Thinking)}, Signature: b.Signature}
		case entry.RedactedThinkingBlock:
			s = script.Step{Redacted: b.Data}
		case entry.ToolCallBlock:
			s = script.Step{Call: b.Name, ID: b.ID}
			if text, invalid := model.InvalidArguments(b); invalid {
				s.RawArgs = script.Pieces{t.clean(text)}
			} else if args := t.clean(string(b.Arguments)); json.Valid([]byte(args)) {
				s.Args = json.RawMessage(args)
			} else {
				s.RawArgs = script.Pieces{args}
			}
		default:
			line.Note += fmt.Sprintf(" [A block of the type %.40s is left out.]", b.BlockType())
			continue
		}
		line.Say = append(line.Say, s)
	}
	if u := a.Usage; u.TotalTokens > 0 {
		line.Say = append(line.Say, script.Step{Usage: &script.Usage{
			Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, ReasoningTokens: u.ReasoningTokens,
		}})
	}
}

// clean takes secrets out of a text.
func (t *tape) clean(s string) string {
	if t.redact == nil {
		return s
	}
	return string(t.redact([]byte(s)))
}

// write adds a line.
func (t *tape) write(line any) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(line)
	if err == nil {
		_, err = t.w.Write(buf.Bytes())
	}
	if err != nil {
		t.fail(fmt.Errorf("recording the conversation: %w", err))
	}
}

// fail keeps the first thing that went wrong.
func (t *tape) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}
