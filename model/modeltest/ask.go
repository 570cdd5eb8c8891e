package modeltest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

// info is that of the model of most scenarios.
var info = model.Info{
	ID: "test-model-1", ContextWindow: 100_000, MaxOutput: 8000, Thinks: true,
	Prices: &model.Prices{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75},
}

// open opens a model, and checks at the end of the test that nothing is left of it.
func open(t *testing.T, o Options, lines ...script.Line) Backend {
	t.Helper()
	return openInfo(t, o, info, lines...)
}

func openInfo(t *testing.T, o Options, info model.Info, lines ...script.Line) Backend {
	t.Helper()
	for i := range lines {
		lines[i].Agent = "main"
	}
	before := goleak.IgnoreCurrent()
	b := o.Open(t, Scenario{Name: t.Name(), Lines: lines, Info: info})
	t.Cleanup(func() {
		b.Close()
		goleak.VerifyNone(t, before)
	})
	return b
}

func say(steps ...script.Step) script.Line { return script.Line{Say: steps} }

func text(pieces ...string) script.Step { return script.Step{Text: pieces} }

// ask is a request.
func ask(messages ...entry.Message) *model.Request {
	if len(messages) == 0 {
		messages = []entry.Message{entry.UserText("What is it?")}
	}
	turn := 0
	for _, m := range messages {
		if m.MessageRole() == entry.RoleAssistant {
			turn++
		}
	}
	return &model.Request{
		Agent: "main", Turn: turn, Messages: messages, System: entry.Prompt{"You are careful."},
		Tools: []model.ToolSpec{
			{Name: "read", Description: "Reads a file.", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
		},
	}
}

// collect ranges over a stream to its end, and checks what holds for all of them.
func collect(t *testing.T, m model.Model, req *model.Request) ([]model.Event, *entry.AssistantMessage, *model.Error) {
	t.Helper()
	var events []model.Event
	var stop *entry.AssistantMessage
	var failed *model.Error
	for e, err := range m.Stream(t.Context(), req) {
		if stop != nil || failed != nil {
			t.Fatalf("something follows the end: %T, %v", e, err)
		}
		if err != nil {
			if !errors.As(err, &failed) {
				t.Fatalf("the error is a %T and no *model.Error: %v", err, err)
			}
			checkError(t, failed)
			continue
		}
		events = append(events, e)
		if s, ok := e.(model.Stop); ok {
			stop = &s.Message
		}
	}
	if stop == nil && failed == nil {
		t.Fatal("the stream ended without Stop or an error")
	}
	if stop != nil {
		checkAnswer(t, m, events, stop)
	}
	return events, stop, failed
}

// answer is collect for an answer that must be one.
func answer(t *testing.T, m model.Model, req *model.Request) *entry.AssistantMessage {
	t.Helper()
	_, stop, err := collect(t, m, req)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

// fails is collect for an answer that must fail.
func fails(t *testing.T, m model.Model, req *model.Request, kind model.Kind) *model.Error {
	t.Helper()
	_, stop, err := collect(t, m, req)
	if stop != nil {
		t.Fatalf("there is an answer: %+v", stop)
	}
	if err.Kind != kind {
		t.Fatalf("the error is of the kind %s and not %s: %v", err.Kind, kind, err)
	}
	return err
}

func checkError(t *testing.T, err *model.Error) {
	t.Helper()
	texts := err.Error()
	for e := error(err); e != nil; e = errors.Unwrap(e) {
		texts += e.Error()
	}
	if err.Partial != nil {
		raw, merr := json.Marshal(err.Partial)
		if merr != nil {
			t.Errorf("what came before the error is no JSON: %v", merr)
		}
		texts += string(raw)
		if r := err.Partial.StopReason; r != entry.StopError && r != entry.StopAborted {
			t.Errorf("what came before the error has the stop reason %q, so a context would take it for an answer", r)
		}
	}
	if strings.Contains(texts, Key) {
		t.Errorf("the error holds the key: %v", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is more than one line: %q", err.Error())
	}
}

// checkAnswer checks an answer against the events before it.
func checkAnswer(t *testing.T, m model.Model, events []model.Event, a *entry.AssistantMessage) {
	t.Helper()
	i := m.Info()
	if a.API != i.API || a.Provider != i.Provider || a.Model != i.ID || i.API == "" || i.Provider == "" {
		t.Errorf("the answer is of %s %s/%s, and the model is %s %s", a.API, a.Provider, a.Model, i.API, i.Name())
	}
	if a.Timestamp == 0 || a.Duration == nil || a.CompletedAt == nil {
		t.Errorf("the answer does not tell its times: %d, %v, %v", a.Timestamp, a.Duration, a.CompletedAt)
	}
	if _, err := json.Marshal(a); err != nil {
		t.Errorf("the answer is no JSON: %v", err)
	}
	grown, ended := map[int]*strings.Builder{}, map[int]entry.Block{}
	grow := func(block int, delta string) {
		if ended[block] != nil {
			t.Errorf("block %d goes on behind its end", block)
		}
		if grown[block] == nil {
			grown[block] = &strings.Builder{}
		}
		grown[block].WriteString(delta)
	}
	for _, e := range events {
		switch e := e.(type) {
		case model.TextDelta:
			grow(e.Block, e.Text)
		case model.ThinkingDelta:
			grow(e.Block, e.Text)
		case model.ToolCallStart:
			grow(e.Block, "")
		case model.ToolCallDelta:
			grow(e.Block, e.JSON)
		case model.BlockEnd:
			ended[e.Block] = e.Content
		}
	}
	blocks := a.Content.Blocks()
	calls := len(a.Content.ToolCalls())
	if calls > 0 && a.StopReason == entry.StopStop || calls == 0 && a.StopReason == entry.StopToolUse {
		t.Errorf("there are %d tool calls, and the stop reason is %q", calls, a.StopReason)
	}
	if len(blocks) != len(ended) {
		t.Errorf("the answer has %d blocks, and %d ended", len(blocks), len(ended))
	}
	for n, b := range blocks {
		want := ""
		if grown[n] != nil {
			want = grown[n].String()
		}
		switch b := b.(type) {
		case entry.TextBlock:
			if b.Text != want {
				t.Errorf("block %d is %.80q, and its deltas are %.80q", n, b.Text, want)
			}
		case entry.ThinkingBlock:
			if b.Thinking != want {
				t.Errorf("block %d is %.80q, and its deltas are %.80q", n, b.Thinking, want)
			}
		case entry.ToolCallBlock:
			if text, invalid := model.InvalidArguments(b); invalid && text != want || !invalid && want != "" && string(b.Arguments) != want {
				t.Errorf("the arguments of block %d are %.80s, and the deltas are %.80q", n, b.Arguments, want)
			}
		}
	}
}
