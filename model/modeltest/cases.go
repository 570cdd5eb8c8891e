package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

// cases are the parts of the suite.
var cases = []struct {
	name string
	skip func(Options) bool
	run  func(*testing.T, Options)
}{
	{"text is streamed and whole at the end", nil, testText},
	{"text with every kind of character is kept", nil, testCharacters},
	{"thinking goes back with its signature to the byte", func(o Options) bool { return o.NoSignatures }, testSignature},
	{"redacted thinking goes back", func(o Options) bool { return o.NoRedacted }, testRedacted},
	{"parallel tool calls are put together and answered", nil, testToolCalls},
	{"a call without arguments has none", nil, testNoArguments},
	{"arguments that are no JSON are handed on", nil, testInvalidArguments},
	{"usage and cost are recorded", nil, testUsage},
	{"an answer that ends at its limit says so", nil, testLength},
	{"an empty answer is an answer", nil, testEmpty},
	{"cancelling ends within one event", nil, testCancel},
	{"cancelling a hung request ends it", nil, testHang},
	{"a reader who leaves ends the request", nil, testLeave},
	{"errors have kinds", nil, testErrors},
	{"errors within a stream have kinds and what came before", nil, testErrorsWithin},
	{"a refusal is an error", nil, testRefused},
	{"a cut stream is an error with what came before", nil, testCut},
	{"garbage is an error", nil, testGarbage},
	{"ten megabytes take no more than they are", nil, testLong},
	{"images are sent", nil, testImages},
	{"images beyond the limits give way to words", func(o Options) bool { return o.NoImageLimits }, testImageLimits},
	{"a request that nobody takes is not sent", nil, testCheck},
	{"streams go on beside each other", nil, testConcurrent},
}

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

func testText(t *testing.T, o Options) {
	b := open(t, o, say(text("It ", "is ", "a module.")))
	events, stop, err := collect(t, b.Model, ask())
	if err != nil {
		t.Fatal(err)
	}
	if got := stop.Content.Text(); got != "It is a module." || stop.StopReason != entry.StopStop {
		t.Errorf("the answer is %q, %s", got, stop.StopReason)
	}
	deltas := 0
	for _, e := range events {
		if _, ok := e.(model.TextDelta); ok {
			deltas++
		}
	}
	if deltas != 3 {
		t.Errorf("three pieces came as %d", deltas)
	}
	if stop.ResponseID == "" || stop.TTFT == nil {
		t.Errorf("response id %q, time to the first token %v", stop.ResponseID, stop.TTFT)
	}
	for _, want := range []string{"You are careful.", "What is it?", "Reads a file."} {
		if sent := b.Sent(); len(sent) != 1 || !bytes.Contains(sent[0], []byte(want)) {
			t.Errorf("%q was not sent", want)
		}
	}
}

func testCharacters(t *testing.T, o Options) {
	pieces := []string{"ä€", "😀 ", "\"\\\n\r\t", "<b>&amp;</b> ", "\u2028\u2029\x00\x1f", "data: [DONE]\n\n", "e\u0301"}
	b := open(t, o, say(text(pieces...)), say(text("ok")))
	first := answer(t, b.Model, ask())
	if got, want := first.Content.Text(), strings.Join(pieces, ""); got != want {
		t.Errorf("%q came as %q", want, got)
	}
	answer(t, b.Model, ask(entry.UserText("a"), *first, entry.UserText("b")))
	if !sentText(b.Sent()[1], strings.Join(pieces, "")) {
		t.Errorf("the answer did not go back as it came: %s", b.Sent()[1])
	}
}

// sentText reports whether a body in JSON has a string that contains text.
func sentText(body []byte, text string) bool {
	return anyString(body, func(s string) bool { return strings.Contains(s, text) })
}

// sentExactly reports whether a body in JSON has a string that is text.
func sentExactly(body []byte, text string) bool {
	return anyString(body, func(s string) bool { return s == text })
}

// anyString reports whether a string in a body in JSON is as wanted.
func anyString(body []byte, wanted func(string) bool) bool {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return false
	}
	var has func(any) bool
	has = func(v any) bool {
		switch v := v.(type) {
		case string:
			return wanted(v)
		case []any:
			for _, e := range v {
				if has(e) {
					return true
				}
			}
		case map[string]any:
			for _, e := range v {
				if has(e) {
					return true
				}
			}
		}
		return false
	}
	return has(v)
}

func testSignature(t *testing.T, o Options) {
	const signature = "EqQBCgIYAhIM+/=sig<>&\\nature"
	call := script.Step{Call: "read", ID: "c1", Args: json.RawMessage(`{"path":"x"}`)}
	b := open(t, o, say(script.Step{Thinking: script.Pieces{"Let me ", "see."}, Signature: signature}, call), say(text("done")))
	req := ask()
	req.Thinking = model.ThinkingHigh
	first := answer(t, b.Model, req)
	thought, ok := first.Content.Blocks()[0].(entry.ThinkingBlock)
	if !ok || thought.Thinking != "Let me see." || !strings.Contains(thought.Signature, "EqQBCgIYAhIM+/=sig") {
		t.Fatalf("the first block is %+v", first.Content.Blocks()[0])
	}
	// It must survive the log.
	raw, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := entry.DecodeMessage(raw)
	if err != nil {
		t.Fatal(err)
	}
	req = ask(entry.UserText("a"), again, entry.ToolResult(first.Content.ToolCalls()[0], entry.PlainText("text of x")))
	req.Thinking = model.ThinkingHigh
	answer(t, b.Model, req)
	if !sentExactly(b.Sent()[1], signature) {
		t.Errorf("the signature did not go back as it came: %s", b.Sent()[1])
	}
}

func testRedacted(t *testing.T, o Options) {
	b := open(t, o, say(script.Step{Redacted: "ZW5j+/=="}, text("Hm.")), say(text("done")))
	first := answer(t, b.Model, ask())
	if r, ok := first.Content.Blocks()[0].(entry.RedactedThinkingBlock); !ok || r.Data != "ZW5j+/==" {
		t.Fatalf("the first block is %+v", first.Content.Blocks()[0])
	}
	answer(t, b.Model, ask(entry.UserText("a"), *first, entry.UserText("b")))
	if !sentExactly(b.Sent()[1], "ZW5j+/==") {
		t.Errorf("it did not go back: %s", b.Sent()[1])
	}
}

func testToolCalls(t *testing.T, o Options) {
	b := open(t, o, say(text("I read both."), script.Step{Parallel: []script.Step{
		{Call: "read", ID: "call_a", RawArgs: script.Pieces{`{"path":"\u00`, `e4\`, `n`, `€`, `"}`}},
		{Call: "read", ID: "call_b", RawArgs: script.Pieces{`{"path"`, `:"b"`, `}`}},
	}}), say(text("done")))
	first := answer(t, b.Model, ask())
	calls := first.Content.ToolCalls()
	if first.StopReason != entry.StopToolUse || len(calls) != 2 || first.Content.Text() != "I read both." {
		t.Fatalf("the answer is %+v", first)
	}
	for i, want := range []struct{ id, args string }{{"call_a", `{"path":"\u00e4\n€"}`}, {"call_b", `{"path":"b"}`}} {
		if c := calls[i]; c.ID != want.id || c.Name != "read" || string(c.Arguments) != want.args {
			t.Errorf("call %d is %s %s %s", i, c.ID, c.Name, c.Arguments)
		}
	}
	answer(t, b.Model, ask(entry.UserText("a"), *first,
		entry.ToolResult(calls[1], entry.PlainText("text of b")), entry.ToolError(calls[0], "no such file")))
	for _, want := range []string{"call_a", "call_b", "text of b", "no such file"} {
		if !sentText(b.Sent()[1], want) {
			t.Errorf("%q did not go back: %s", want, b.Sent()[1])
		}
	}
}

func testNoArguments(t *testing.T, o Options) {
	b := open(t, o, say(script.Step{Call: "read", ID: "c1"}), say(text("done")))
	first := answer(t, b.Model, ask())
	calls := first.Content.ToolCalls()
	if len(calls) != 1 || string(calls[0].Arguments) != "{}" {
		t.Fatalf("the calls are %+v", calls)
	}
	answer(t, b.Model, ask(entry.UserText("a"), *first, entry.ToolResult(calls[0], entry.Content{})))
}

func testInvalidArguments(t *testing.T, o Options) {
	for _, bad := range []string{`{"path": "go.m`, `[1]`, `{"a":1}}`, `"x"`} {
		b := open(t, o, say(script.Step{Call: "read", ID: "c1", RawArgs: script.Pieces{bad}}), say(text("done")))
		first := answer(t, b.Model, ask())
		calls := first.Content.ToolCalls()
		if len(calls) != 1 {
			t.Fatalf("the answer is %+v", first)
		}
		if got, invalid := model.InvalidArguments(calls[0]); !invalid || got != bad {
			t.Errorf("%s came as %s", bad, calls[0].Arguments)
		}
		answer(t, b.Model, ask(entry.UserText("a"), *first, entry.ToolError(calls[0], "The arguments are no JSON.")))
		if !sentText(b.Sent()[1], "The arguments are no JSON.") {
			t.Errorf("the error did not go back: %s", b.Sent()[1])
		}
	}
}

func testUsage(t *testing.T, o Options) {
	thought := int64(40)
	u := script.Usage{Input: 1000, Output: 200, CacheRead: 5000, CacheWrite: 300, ReasoningTokens: &thought}
	b := open(t, o, say(text("Hm."), script.Step{Usage: &u}))
	events, stop, err := collect(t, b.Model, ask())
	if err != nil {
		t.Fatal(err)
	}
	got := stop.Usage
	if got.Input != 1000 || got.Output != 200 || got.CacheRead != 5000 || got.CacheWrite != 300 || got.TotalTokens != 6500 {
		t.Errorf("the usage is %+v", got)
	}
	if got.ReasoningTokens == nil || *got.ReasoningTokens != 40 {
		t.Errorf("the tokens of reasoning are %v", got.ReasoningTokens)
	}
	const want = (3*1000 + 15*200 + 0.3*5000 + 3.75*300) / 1e6
	if d := got.Cost.Total - want; d > 1e-12 || d < -1e-12 {
		t.Errorf("the cost is %v and not %v", got.Cost.Total, want)
	}
	var last *model.UsageSoFar
	for _, e := range events {
		if u, ok := e.(model.UsageSoFar); ok {
			last = &u
		}
	}
	if last == nil || last.Usage.Cost != got.Cost || last.Usage.Output != got.Output {
		t.Errorf("the last usage told is %+v", last)
	}
}

func testLength(t *testing.T, o Options) {
	line := say(text("It is a"))
	line.Stop = entry.StopLength
	b := open(t, o, line)
	if stop := answer(t, b.Model, ask()); stop.StopReason != entry.StopLength || stop.Content.Text() != "It is a" {
		t.Errorf("the answer is %q, %s", stop.Content.Text(), stop.StopReason)
	}
}

func testEmpty(t *testing.T, o Options) {
	b := open(t, o, say())
	if stop := answer(t, b.Model, ask()); stop.StopReason != entry.StopStop || len(stop.Content.Blocks()) != 0 {
		t.Errorf("the answer is %+v", stop)
	}
}

func testCancel(t *testing.T, o Options) {
	b := open(t, o, say(text("One", "Two", "Three"), script.Step{Hang: true}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := -1
	var last error
	for e, err := range b.Model.Stream(ctx, ask()) {
		if after >= 0 {
			after++
		}
		if _, ok := e.(model.TextDelta); ok && after < 0 {
			cancel()
			after = 0
		}
		last = err
	}
	var failed *model.Error
	if after != 1 || !errors.As(last, &failed) || failed.Kind != model.KindCancelled || !errors.Is(last, context.Canceled) {
		t.Fatalf("%d events followed, the last error is %v", after, last)
	}
	checkError(t, failed)
	if p := failed.Partial; p == nil || p.StopReason != entry.StopAborted || !strings.HasPrefix(p.Content.Text(), "One") {
		t.Errorf("what came before is %+v", failed.Partial)
	}
}

func testHang(t *testing.T, o Options) {
	b := open(t, o, say(script.Step{Hang: true}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var last error
	for _, err := range b.Model.Stream(ctx, ask()) {
		last = err
	}
	if model.KindOf(last) != model.KindCancelled || !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("the error is %v", last)
	}
}

func testLeave(t *testing.T, o Options) {
	b := open(t, o, say(text("One", "Two"), script.Step{Hang: true}))
	for _, err := range b.Model.Stream(t.Context(), ask()) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	// That nothing is left is checked when the backend is closed.
}

func testErrors(t *testing.T, o Options) {
	for _, f := range []script.Failure{
		{Kind: model.KindAuth, Status: 401},
		{Kind: model.KindRateLimit, Status: 429, RetryAfter: script.Duration(2 * time.Second)},
		{Kind: model.KindOverloaded, Status: 529, RetryAfter: script.Duration(30 * time.Second)},
		{Kind: model.KindOverloaded, Status: 503},
		{Kind: model.KindServer, Status: 500},
		{Kind: model.KindServer, Status: 502},
		{Kind: model.KindOverflow, Status: 400},
		{Kind: model.KindInvalid, Status: 400},
		{Kind: model.KindInvalid, Status: 404},
	} {
		t.Run(fmt.Sprintf("%s %d", f.Kind, f.Status), func(t *testing.T) {
			b := open(t, o, say(script.Step{Error: &f}))
			err := fails(t, b.Model, ask(), f.Kind)
			if err.Status != f.Status || err.RetryAfter != time.Duration(f.RetryAfter) || err.Partial != nil {
				t.Errorf("status %d, wait %v, before %v", err.Status, err.RetryAfter, err.Partial)
			}
			temporary := f.Status == 429 || f.Status >= 500
			if err.Temporary() != temporary {
				t.Errorf("it is temporary: %v", err.Temporary())
			}
		})
	}
}

func testErrorsWithin(t *testing.T, o Options) {
	for _, kind := range []model.Kind{model.KindOverloaded, model.KindServer, model.KindRateLimit} {
		b := open(t, o, say(text("It is"), script.Step{Error: &script.Failure{Kind: kind}}))
		err := fails(t, b.Model, ask(), kind)
		if err.Partial == nil || err.Partial.Content.Text() != "It is" || err.Partial.ErrorMessage == "" {
			t.Errorf("%s: what came before is %+v", kind, err.Partial)
		}
	}
}

func testRefused(t *testing.T, o Options) {
	b := open(t, o, say(text("I"), script.Step{Error: &script.Failure{Kind: model.KindRefused}}))
	if err := fails(t, b.Model, ask(), model.KindRefused); err.Temporary() {
		t.Error("it is temporary")
	}
}

func testCut(t *testing.T, o Options) {
	call := script.Step{Call: "read", ID: "c1", RawArgs: script.Pieces{`{"path":"`}}
	b := open(t, o, say(text("It is"), call, script.Step{Cut: true}))
	err := fails(t, b.Model, ask(), model.KindCut)
	if !err.Temporary() || err.Partial == nil || err.Partial.Content.Text() != "It is" || err.Partial.StopReason != entry.StopError {
		t.Fatalf("what came before is %+v", err.Partial)
	}
	if calls := err.Partial.Content.ToolCalls(); len(calls) == 1 {
		if _, invalid := model.InvalidArguments(calls[0]); !invalid {
			t.Errorf("half a call passes for a whole one: %s", calls[0].Arguments)
		}
	}
}

func testGarbage(t *testing.T, o Options) {
	bad := script.Step{Error: &script.Failure{Kind: model.KindServer, Message: Garbage}}
	b := open(t, o, say(text("It is"), bad))
	if err := fails(t, b.Model, ask(), model.KindServer); err.Partial == nil || err.Partial.Content.Text() != "It is" {
		t.Errorf("what came before is %+v", err.Partial)
	}
}

func testLong(t *testing.T, o Options) {
	const size, pieces = 10 << 20, 1024
	piece := strings.Repeat("0123456789abcde\n", size/pieces/16)
	b := open(t, o, say(script.Step{Text: script.Pieces{piece}, Repeat: pieces}))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, seen := heap(), uint64(0), 0
	for e, err := range b.Model.Stream(t.Context(), ask()) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case model.TextDelta:
			if seen += len(e.Text); seen > 0 && seen%(size/8) < len(piece) {
				most = max(most, heap())
			}
		case model.Stop:
			if n := len(e.Message.Content.Text()); n != size {
				t.Errorf("%d bytes came as %d", size, n)
			}
			most = max(most, heap())
		}
	}
	// The answer, the room that it grows into, the last event of a protocol that repeats it, and
	// all of this once more for the other side, which is in this process.
	if used := int64(most) - int64(before); used > 10*size {
		t.Errorf("%d MiB were in use for an answer of %d", used>>20, size>>20)
	}
}

// png is an image of one pixel.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func pictures() *model.Request {
	first := entry.UserMessage{Content: entry.Blocks(entry.TextBlock{Text: "look"}, entry.ImageBlock{Data: png, MIMEType: "image/png"})}
	call := entry.ToolCallBlock{ID: "c1", Name: "read", Arguments: json.RawMessage(`{"path":"b.gif"}`)}
	const gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
	return ask(first, entry.AssistantMessage{Content: entry.Blocks(call)},
		entry.ToolResult(call, entry.Blocks(entry.TextBlock{Text: "b.gif"}, entry.ImageBlock{Data: gif, MIMEType: "image/gif"})))
}

func testImages(t *testing.T, o Options) {
	b := open(t, o, say(text("first")), say(text("second")))
	answer(t, b.Model, pictures())
	sent := b.Sent()[0]
	if !sentText(sent, png) || !sentText(sent, "R0lGODlhAQAB") || !bytes.Contains(sent, []byte("image/gif")) {
		t.Errorf("the images were not sent: %s", sent)
	}
}

func testImageLimits(t *testing.T, o Options) {
	i := info
	i.Images = model.ImageLimits{MaxCount: 1}
	b := openInfo(t, o, i, say(text("first")), say(text("second")))
	answer(t, b.Model, pictures())
	sent := b.Sent()[0]
	if sentText(sent, png) || !sentText(sent, "R0lGODlhAQAB") || !sentText(sent, "An image was left out here") {
		t.Errorf("the older image was not replaced: %s", sent)
	}
}

func testCheck(t *testing.T, o Options) {
	b := open(t, o, say(text("never")))
	call := entry.AssistantMessage{Content: entry.Blocks(entry.ToolCallBlock{ID: "c1", Name: "read"})}
	fails(t, b.Model, ask(entry.UserText("a"), call, entry.UserText("b")), model.KindInvalid)
	if n := len(b.Sent()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func testConcurrent(t *testing.T, o Options) {
	b := open(t, o, say(text("It ", "is ", "a module.")))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for e, err := range b.Model.Stream(t.Context(), ask()) {
				if err != nil {
					t.Error(err)
				}
				if s, ok := e.(model.Stop); ok && s.Message.Content.Text() != "It is a module." {
					t.Errorf("an answer is %q", s.Message.Content.Text())
				}
			}
		})
	}
	group.Wait()
}
