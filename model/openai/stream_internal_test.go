package openai

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/model/modeltest"
	"github.com/agentrun/agentrun/session/entry"
)

func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"type":"response.created","response":{"id":"r"}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"read"}}` + "\n" +
			`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a"}` + "\n" +
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c","name":"read","arguments":"{}"}}`,
		`{"type":"response.output_item.done","output_index":3,"item":{"type":"reasoning","id":"rs","encrypted_content":"x"}}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":1,"delta":"x"}`,
		`{"type":"response.output_text.delta","output_index":1,"content_index":70000,"delta":"x"}`,
		`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":1,"output_tokens":-1}}}`,
		`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}`,
		`{"type":"response.failed","response":{}}`, `{"type":"error","code":7,"message":null}`, `{"type":"new","delta":{}}`, `null`, `[DONE]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		modeltest.Events(t, lines, func(a *model.Answer) func([]byte) (bool, error) {
			r := responsesReader{answer: a}
			return func(data []byte) (bool, error) { return r.event("", data) }
		})
	})
}

func FuzzChat(f *testing.F) {
	for _, seed := range []string{
		`{"id":"c","choices":[{"delta":{"content":"x","reasoning":"y","refusal":"z"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"{"}},{"index":1}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"id":"a"},{"id":"b"},{"index":-4}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}` + "\n[DONE]",
		`{"choices":[{"finish_reason":"length"}]}`, `{"error":{"message":"x"}}`, `{"error":"x"}`, `null`, `[DONE]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		ended := false
		modeltest.Events(t, lines, func(a *model.Answer) func([]byte) (bool, error) {
			r := chatReader{answer: a}
			return func(data []byte) (bool, error) {
				goOn, err := r.event("", data)
				if err == nil && !goOn && !ended {
					ended = true
					return false, r.finish()
				}
				return goOn, err
			}
		})
	})
}

// stream plays events and returns the answer.
func stream(t *testing.T, read func(*model.Answer) func(string, []byte) (bool, error), lines ...string) entry.AssistantMessage {
	t.Helper()
	var answer entry.AssistantMessage
	modeltest.Events(t, strings.Join(lines, "\n"), func(a *model.Answer) func([]byte) (bool, error) {
		event := read(a)
		return func(data []byte) (bool, error) { return event("", data) }
	})
	req := &model.Request{Messages: []entry.Message{entry.UserText("x")}}
	all := model.Assemble(t.Context(), model.Info{ID: "x"}, req, func(_ context.Context, a *model.Answer) error {
		event := read(a)
		for _, line := range lines {
			if goOn, err := event("", []byte(line)); err != nil || !goOn {
				return err
			}
		}
		return nil
	})
	for e, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := e.(model.Stop); ok {
			answer = s.Message
		}
	}
	return answer
}

func TestServersThatDifferAreUnderstood(t *testing.T) {
	chat := func(a *model.Answer) func(string, []byte) (bool, error) {
		r := &chatReader{answer: a}
		return func(e string, data []byte) (bool, error) {
			goOn, err := r.event(e, data)
			if err == nil && !goOn {
				err = r.finish()
			}
			return goOn, err
		}
	}
	for name, c := range map[string]struct {
		lines []string
		want  string // names and arguments of the calls
	}{
		"calls without an index": {[]string{
			`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"n\":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"y","arguments":"{}"}}]},"finish_reason":"stop"}]}`,
		}, `x{"n":1} y{}`},
		"a character in halves": {[]string{
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":\"\ud83d"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]},"finish_reason":"tool_calls"}]}`,
		}, `x{"n":"😀"}`},
		"id and name with each piece": {[]string{
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"}"}}]},"finish_reason":"tool_calls"}]}`,
		}, `x{}`},
		"a call without an id": {[]string{
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		}, `x{}`},
	} {
		answer := stream(t, chat, append(c.lines, "[DONE]")...)
		var got []string
		for _, call := range answer.Content.ToolCalls() {
			if call.ID == "" {
				t.Errorf("%s: a call has no id", name)
			}
			got = append(got, call.Name+string(call.Arguments))
		}
		if strings.Join(got, " ") != c.want || answer.StopReason != entry.StopToolUse {
			t.Errorf("%s: %q, %s", name, got, answer.StopReason)
		}
	}
}

func TestReasoningAndPhasesGoBackAsTheyCame(t *testing.T) {
	const item = `{"type":"reasoning", "id":"rs_1","summary":[{"type":"summary_text","text":"a\u00e4"}],"encrypted_content":"gAAA+/=","status":null,"new":1.0}`
	responses := func(a *model.Answer) func(string, []byte) (bool, error) {
		r := &responsesReader{answer: a}
		return r.event
	}
	answer := stream(t, responses,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"one"}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"two"}`,
		`{"type":"response.output_item.done","output_index":0,"item":`+item+`}`,
		`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"I look."}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","phase":"commentary"}}`,
		`{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"c1","name":"read","arguments":"{}"}}`,
		`{"type":"response.completed","response":{"id":"r","status":"completed"}}`,
	)
	thought := answer.Content.Blocks()[0].(entry.ThinkingBlock)
	if thought.Thinking != "one\n\ntwo" || thought.Signature != item || thought.ItemID != "rs_1" {
		t.Errorf("the reasoning is %+v", thought)
	}
	m := New(Options{Info: model.Info{ID: "gpt-5.5", Thinks: true, API: model.APIOpenAIResponses}})
	answer.API, answer.Provider, answer.Model = model.APIOpenAIResponses, "openai", "gpt-5.5"
	calls := answer.Content.ToolCalls()
	req := &model.Request{Messages: []entry.Message{entry.UserText("x"), answer, entry.ToolResult(calls[0], entry.PlainText("y"))}}
	raw, err := wire.Marshal(m.input(req))
	if err != nil {
		t.Fatal(err)
	}
	var compact strings.Builder
	if err := json.NewEncoder(&compact).Encode(json.RawMessage(item)); err != nil {
		t.Fatal(err)
	}
	if got, want := gjson.GetBytes(raw, "1").Raw, strings.TrimSpace(compact.String()); got != want {
		t.Errorf("the reasoning went back as\n%s\nand not\n%s", got, want)
	}
	if got := gjson.GetBytes(raw, "2").Raw; gjson.Get(got, "phase").Str != "commentary" || gjson.Get(got, "id").Str != "msg_1" || gjson.Get(got, "content.0.text").Str != "I look." {
		t.Errorf("the text went back as %s", got)
	}
	// Another model's reasoning stays in the log.
	answer.Model = "gpt-5.4"
	req.Messages[1] = answer
	if raw, err = wire.Marshal(m.input(req)); err != nil || strings.Contains(string(raw), "gAAA") || strings.Contains(string(raw), "msg_1") {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestTheAPIIsThatOfThePlace(t *testing.T) {
	for _, c := range []struct{ base, api, want string }{
		{"", "", model.APIOpenAIResponses},
		{BaseURL + "/", "", model.APIOpenAIResponses},
		{"http://localhost:8080/v1", "", model.APIOpenAIChat},
		{"http://localhost:8080/v1", model.APIOpenAIResponses, model.APIOpenAIResponses},
		{"", model.APIOpenAIChat, model.APIOpenAIChat},
	} {
		m := New(Options{BaseURL: c.base, Info: model.Info{ID: "x", API: c.api}})
		if got := m.Info().API; got != c.want {
			t.Errorf("%q, %q: %s", c.base, c.api, got)
		}
	}
}

func TestEffortIsWhatTheModelKnows(t *testing.T) {
	for _, c := range []struct{ id, level, want string }{
		{"gpt-5.6-sol", "", "none"},
		{"gpt-5.6-sol", "xhigh", "xhigh"},
		{"gpt-5.6-sol", "minimal", "low"},
		{"gpt-5.3-codex", "off", "low"},
		{"gpt-5-mini", "off", "low"},
		{"gpt-5", "xhigh", "high"},
		{"gpt-5.1-codex", "xhigh", "high"},
		{"o3", "medium", "medium"},
	} {
		if got := New(Options{Info: model.Info{ID: c.id, Thinks: true}}).effort(c.level); got != c.want {
			t.Errorf("%s, %s: %s", c.id, c.level, got)
		}
	}
	if got := New(Options{Info: model.Info{ID: "llama"}}).effort("high"); got != "" {
		t.Errorf("a model that does not think is told %s", got)
	}
}
