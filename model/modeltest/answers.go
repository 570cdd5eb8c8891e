package modeltest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

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
