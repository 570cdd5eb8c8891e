package model_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

var info = model.Info{
	Provider: "test", API: "test-api", ID: "m-1", ContextWindow: 1000, MaxOutput: 100,
	Prices: &model.Prices{Input: 2, Output: 10, CacheRead: 0.5, CacheWrite: 3},
}

func ask() *model.Request {
	return &model.Request{Messages: []entry.Message{entry.UserText("hello")}}
}

// collect ranges over a stream to its end.
func collect(t *testing.T, ctx context.Context, produce func(context.Context, *model.Answer) error) ([]model.Event, *model.Error) {
	t.Helper()
	var events []model.Event
	for e, err := range model.Assemble(ctx, info, ask(), produce) {
		if err != nil {
			var typed *model.Error
			if !errors.As(err, &typed) {
				t.Fatalf("the error is a %T", err)
			}
			return events, typed
		}
		events = append(events, e)
	}
	return events, nil
}

func TestAnAnswerIsMadeOfItsEvents(t *testing.T) {
	events, err := collect(t, t.Context(), func(_ context.Context, a *model.Answer) error {
		return errors.Join(
			a.Thinking(0, "let me"), a.Thinking(0, " see"), a.Sign(0, entry.BlockThinking, "c2ln"), a.End(0),
			a.Text(1, "h\xc3"), a.Text(1, "\xa9"), a.Text(2, ""),
			a.ToolCall(3, "c1", "read"), a.ToolCall(4, "c2", "grep"),
			a.Arguments(3, `{"path":"\u00`), a.Arguments(4, `{"x"`), a.Arguments(3, `e9"}`),
			a.Whole(5, entry.RedactedThinkingBlock{Data: "x"}),
			a.Usage(entry.Usage{Input: 1_000_000, Output: 100_000, CacheRead: 2_000_000, CacheWrite: 0}),
			a.Finish(entry.StopStop),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	m := events[len(events)-1].(model.Stop).Message
	got, _ := m.Content.MarshalJSON()
	want := `[{"type":"thinking","thinking":"let me see","thinkingSignature":"c2ln"},{"type":"text","text":"hé"},` +
		`{"type":"toolCall","id":"c1","name":"read","arguments":{"path":"\u00e9"}},` +
		`{"type":"toolCall","id":"c2","name":"grep","arguments":{"INVALID_JSON":"{\"x\""}},{"type":"redactedThinking","data":"x"}]`
	if strings.TrimSpace(string(got)) != want {
		t.Errorf("content is\n%s\nwant\n%s", got, want)
	}
	if m.StopReason != entry.StopToolUse {
		t.Errorf("stop reason %q with tool calls", m.StopReason)
	}
	if c := m.Usage.Cost; c.Input != 2 || c.Output != 1 || c.CacheRead != 1 || c.Total != 4 || m.Usage.TotalTokens != 3_100_000 {
		t.Errorf("usage %+v", m.Usage)
	}
	calls := m.Content.ToolCalls()
	if text, invalid := model.InvalidArguments(calls[1]); !invalid || text != `{"x"` {
		t.Errorf("invalid arguments are %q, %v", text, invalid)
	}
	if _, invalid := model.InvalidArguments(calls[0]); invalid {
		t.Error("good arguments count as invalid")
	}
	var text strings.Builder
	for _, e := range events {
		if d, ok := e.(model.TextDelta); ok {
			text.WriteString(d.Text)
		}
	}
	if text.String() != "hé" {
		t.Errorf("deltas are %q", text.String())
	}
}

func TestACharacterMayComeInHalves(t *testing.T) {
	for name, pieces := range map[string][]string{
		"bytes":                  {"a\xf0", "\x9f\x98", "\x80b"},
		"halves of UTF-16":       {"a\xed\xa0\xbd", "\xed\xb8\x80b"},
		"both halves in a piece": {"a\xed\xa0\xbd\xed\xb8\x80", "b"},
	} {
		events, err := collect(t, t.Context(), func(_ context.Context, a *model.Answer) error {
			for _, p := range pieces {
				if err := a.Text(0, p); err != nil {
					return err
				}
			}
			return a.Finish(entry.StopStop)
		})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range events {
			if d, ok := e.(model.TextDelta); ok {
				got += d.Text
			}
		}
		stop := events[len(events)-1].(model.Stop)
		if got != "a😀b" || stop.Message.Content.Text() != got {
			t.Errorf("%s: %q, %q", name, got, stop.Message.Content.Text())
		}
	}
	events, err := collect(t, t.Context(), func(_ context.Context, a *model.Answer) error {
		return errors.Join(a.Text(0, "a\xed\xa0\xbd"), a.Text(0, "b\xed\xb8\x80"), a.Text(0, "\xed\xa0"), a.Finish(entry.StopStop))
	})
	if err != nil || !utf8.ValidString(events[len(events)-1].(model.Stop).Message.Content.Text()) {
		t.Errorf("halves that stand alone: %v, %v", events, err)
	}
}

func TestAStreamEndsOnce(t *testing.T) {
	cause := errors.New("connection reset")
	cancelled, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct {
		ctx     context.Context
		produce func(context.Context, *model.Answer) error
		kind    model.Kind
		partial string
		reason  string
	}{
		"without an end it is cut":                  {t.Context(), func(_ context.Context, a *model.Answer) error { return a.Text(0, "ab") }, model.KindCut, "ab", entry.StopError},
		"an error before anything is the network's": {t.Context(), func(context.Context, *model.Answer) error { return cause }, model.KindNetwork, "", ""},
		"an error behind something cuts it": {t.Context(), func(_ context.Context, a *model.Answer) error {
			return errors.Join(a.Text(0, "ab"), cause)
		}, model.KindCut, "ab", entry.StopError},
		"a typed error stays": {t.Context(), func(_ context.Context, a *model.Answer) error {
			_ = a.Text(0, "ab")
			return &model.Error{Kind: model.KindRefused, Message: "no"}
		}, model.KindRefused, "ab", entry.StopError},
		"a cancelled one is cancelled": {cancelled, func(_ context.Context, a *model.Answer) error {
			_ = a.Text(0, "ab")
			cancel()
			_ = a.Text(0, "cd")
			return errors.New("whatever")
		}, model.KindCancelled, "ab", entry.StopAborted},
		"a delta behind the end is the provider's mistake": {t.Context(), func(_ context.Context, a *model.Answer) error {
			return errors.Join(a.Text(0, "ab"), a.End(0), a.Text(0, "cd"))
		}, model.KindServer, "ab", entry.StopError},
		"a mistake that the adapter hides is one": {t.Context(), func(_ context.Context, a *model.Answer) error {
			_ = a.Text(0, "ab")
			_ = a.Arguments(0, "cd")
			_ = a.Finish(entry.StopStop)
			return nil
		}, model.KindServer, "ab", entry.StopError},
		"too long an answer": {t.Context(), func(_ context.Context, a *model.Answer) error {
			_ = a.Text(0, "ab")
			return a.Text(1, strings.Repeat("x", model.MaxAnswer))
		}, model.KindServer, "ab", entry.StopError},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := collect(t, c.ctx, c.produce)
			if err == nil || err.Kind != c.kind || model.KindOf(err) != c.kind {
				t.Fatalf("%d events, then %v", len(events), err)
			}
			if !strings.HasPrefix(err.Error(), "asking test/m-1: ") {
				t.Errorf("the sentence is %q", err)
			}
			switch {
			case c.partial == "" && err.Partial != nil:
				t.Errorf("there is a partial answer %+v", err.Partial)
			case c.partial != "" && (err.Partial == nil || err.Partial.Content.Blocks()[0].(entry.TextBlock).Text != c.partial || err.Partial.StopReason != c.reason):
				t.Errorf("the partial answer is %+v", err.Partial)
			}
		})
	}
}

func TestAReaderWhoLeavesEndsTheRequest(t *testing.T) {
	var ended bool
	for range model.Assemble(t.Context(), info, ask(), func(ctx context.Context, a *model.Answer) error {
		for a.Text(0, "x") == nil {
		}
		ended = true
		return ctx.Err()
	}) {
		break
	}
	if !ended {
		t.Error("the adapter goes on")
	}
}

func TestCheckRefusesWhatNoProviderTakes(t *testing.T) {
	user := entry.UserText("hello")
	call := func(ids ...string) entry.Message {
		var blocks []entry.Block
		for _, id := range ids {
			blocks = append(blocks, entry.ToolCallBlock{ID: id, Name: "read"})
		}
		return entry.AssistantMessage{Content: entry.Blocks(blocks...)}
	}
	result := func(id string) entry.Message {
		return entry.ToolResult(entry.ToolCallBlock{ID: id, Name: "read"}, entry.PlainText("x"))
	}
	tool := model.ToolSpec{Name: "read", Schema: []byte(`{"type":"object"}`)}
	hot := 3.0
	for want, req := range map[string]*model.Request{
		"":                         {Messages: []entry.Message{user, call("a", "b"), result("b"), result("a"), user}, Tools: []model.ToolSpec{tool}},
		"no messages":              {},
		"has no result":            {Messages: []entry.Message{user, call("a"), user}},
		"before message 3":         {Messages: []entry.Message{user, call("a")}},
		"no message before it":     {Messages: []entry.Message{user, result("a")}},
		"second or late":           {Messages: []entry.Message{user, call("a"), result("a"), result("a")}},
		"so has one before":        {Messages: []entry.Message{user, call("a"), result("a"), call("a"), result("a")}},
		"message 3 has a tool":     {Messages: []entry.Message{user, user, call("a", "a"), result("a")}},
		"without an id":            {Messages: []entry.Message{user, call(""), result("")}},
		"(user) says nothing":      {Messages: []entry.Message{entry.UserText(" \n")}},
		"(assistant) says nothing": {Messages: []entry.Message{user, entry.AssistantMessage{}}},
		"into words first":         {Messages: []entry.Message{entry.BashExecutionMessage{Command: "ls"}}},
		"is nil":                   {Messages: []entry.Message{nil}},
		"is a reference":           {Messages: []entry.Message{entry.UserMessage{Content: entry.Blocks(entry.ImageBlock{Data: "blob:sha256:00", MIMEType: "image/png"})}}},
		"two tools":                {Messages: []entry.Message{user}, Tools: []model.ToolSpec{tool, tool}},
		"a tool has the name":      {Messages: []entry.Message{user}, Tools: []model.ToolSpec{{Name: "a b", Schema: tool.Schema}}},
		"schema of tool read":      {Messages: []entry.Message{user}, Tools: []model.ToolSpec{{Name: "read", Schema: []byte(`[]`)}}},
		"none is offered":          {Messages: []entry.Message{user}, ToolChoice: model.ToolChoice{Mode: model.ToolAny}},
		"it is not offered":        {Messages: []entry.Message{user}, ToolChoice: model.ToolChoice{Mode: model.ToolOne, Name: "x"}},
		"no tool choice":           {Messages: []entry.Message{user}, ToolChoice: model.ToolChoice{Mode: "often"}},
		"no level of thinking":     {Messages: []entry.Message{user}, Thinking: "deep"},
		"at most 100":              {Messages: []entry.Message{user}, MaxTokens: 101},
		"at least 1":               {Messages: []entry.Message{user}, MaxTokens: -1},
		"the temperature is 3":     {Messages: []entry.Message{user}, Temperature: &hot},
		"the answer's schema":      {Messages: []entry.Message{user}, Answer: &model.AnswerSchema{Name: "x", Schema: []byte(`{`)}},
	} {
		err := model.Check(req, info)
		switch {
		case want == "" && err != nil:
			t.Errorf("a good request: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", want, err)
		case err != nil && strings.ContainsAny(err.Error(), "\n"):
			t.Errorf("%q has several lines", err)
		}
	}
}

func TestAContextIsPutIntoWords(t *testing.T) {
	code := 2
	for _, c := range []struct {
		m    entry.Message
		text string
		ok   bool
	}{
		{entry.BashExecutionMessage{Command: "ls", Output: "a", ExitCode: &code}, "Ran `ls`\n```\na\n```\n\nCommand exited with code 2", true},
		{entry.BashExecutionMessage{Command: "ls", ExcludeFromContext: true}, "", false},
		{entry.PythonExecutionMessage{Code: "1"}, "Ran Python:\n```python\n1\n```\n(no output)", true},
		{entry.ExtensionMessage{Content: entry.PlainText("note")}, "note", true},
		{entry.CompactionSummaryMessage{Summary: "s"}, "The conversation before this point was compacted into this summary:\n\n<summary>\ns\n</summary>", true},
		{entry.BranchSummaryMessage{}, "", false},
		{entry.UnknownMessage{Role: "x"}, "", false},
		{entry.ExtensionMessage{}, "", false},
		{entry.UserText(" "), "", false},
		{entry.AssistantMessage{Content: entry.PlainText("\n")}, "", false},
	} {
		m, ok := model.Plain(c.m)
		if ok != c.ok || ok && (m.MessageRole() != entry.RoleUser || m.(entry.UserMessage).Content.Text() != c.text) {
			t.Errorf("%T became %v, %v", c.m, m, ok)
		}
	}
	m, _ := model.Plain(entry.FileMentionMessage{Files: []entry.MentionedFile{{Path: "a.png", Image: &entry.ImageBlock{Data: "x"}}}})
	if blocks := m.(entry.UserMessage).Content.Blocks(); len(blocks) != 2 || blocks[1].BlockType() != entry.BlockImage {
		t.Errorf("a mention became %v", blocks)
	}
	if !slices.Contains(model.ThinkingLevels(), model.ThinkingOff) {
		t.Error("thinking cannot be off")
	}
}
