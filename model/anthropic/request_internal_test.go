package anthropic

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/modeltest"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// asked is the body of a request, as JSON to look into.
func asked(t *testing.T, id string, req *model.Request) gjson.Result {
	t.Helper()
	m := New(Options{Info: model.Info{ID: id, MaxOutput: 64_000, Thinks: true}})
	if err := model.Check(req, m.Info()); err != nil {
		t.Fatal(err)
	}
	body, err := m.body(req)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(body) {
		t.Fatalf("the body is no JSON: %s", body)
	}
	return gjson.ParseBytes(body)
}

func question() *model.Request {
	call := entry.ToolCallBlock{ID: "c1", Name: "read", Arguments: json.RawMessage(`{"path":"x"}`)}
	return &model.Request{
		System: entry.Prompt{"Be careful."},
		Tools:  []model.ToolSpec{{Name: "read", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "write", Schema: json.RawMessage(`{"type":"object"}`)}},
		Messages: []entry.Message{
			entry.UserText("one"),
			entry.AssistantMessage{Content: entry.Blocks(entry.TextBlock{Text: " "}, entry.ThinkingBlock{Thinking: "unsigned"}, call)},
			entry.ToolResult(call, entry.PlainText("result")),
			entry.UserMessage{Role: entry.RoleDeveloper, Content: entry.PlainText("two")},
			entry.AssistantMessage{Content: entry.Blocks(entry.ThinkingBlock{Thinking: "alone", Signature: "x"})},
			entry.UserText("three"),
		},
	}
}

func TestTheCacheCutsInFourPlacesAtMost(t *testing.T) {
	for name, c := range map[string]struct {
		system entry.Prompt
		marked []string
	}{
		"one part":       {entry.Prompt{"a"}, []string{"tools.1", "system.0"}},
		"several parts":  {entry.Prompt{"a", "b", " ", "c"}, []string{"system.0", "system.2"}},
		"no system part": {nil, []string{"tools.1"}},
	} {
		req := question()
		req.System = c.system
		body := asked(t, "claude-sonnet-5-5", req)
		for _, path := range append(c.marked, "messages.2.content.2", "messages.0.content.0") {
			if !body.Get(path + ".cache_control").Exists() {
				t.Errorf("%s: there is no mark at %s: %s", name, path, body.Raw)
			}
		}
		if n := strings.Count(body.Raw, `"cache_control":{"type":"ephemeral"}`); n != len(c.marked)+2 || n > 4 {
			t.Errorf("%s: there are %d marks", name, n)
		}
	}
}

func TestMessagesAreThoseOfTheAPI(t *testing.T) {
	body := asked(t, "claude-sonnet-5-5", question())
	got := body.Get("messages.#.role").Raw
	if got != `["user","assistant","user"]` {
		t.Errorf("the roles are %s", got)
	}
	for path, want := range map[string]string{
		"messages.1.content.#.type":        `["tool_use"]`,
		"messages.1.content.0.input":       `{"path":"x"}`,
		"messages.2.content.#.type":        `["tool_result","text","text"]`,
		"messages.2.content.0.tool_use_id": `"c1"`,
		"messages.2.content.1.text":        `"two"`,
		"max_tokens":                       `64000`,
		"stream":                           `true`,
	} {
		if got := body.Get(path).Raw; got != want {
			t.Errorf("%s is %s and not %s", path, got, want)
		}
	}
	odd := question()
	odd.Messages = []entry.Message{
		entry.UserText("a"),
		entry.AssistantMessage{API: "openai-responses", Content: entry.Blocks(
			entry.ThinkingBlock{Thinking: "theirs", Signature: "x"}, entry.ToolCallBlock{ID: "call_1|fc_1", Name: "read"}, entry.ToolCallBlock{ID: "call_1|fc_2", Name: "read"})},
		entry.ToolResult(entry.ToolCallBlock{ID: "call_1|fc_2"}, entry.PlainText("")),
		entry.ToolResult(entry.ToolCallBlock{ID: "call_1|fc_1"}, entry.PlainText("x")),
	}
	body = asked(t, "claude-sonnet-5-5", odd)
	ids := body.Get("messages.1.content.#.id").Array()
	if len(ids) != 2 || ids[0].Str == ids[1].Str || strings.ContainsAny(ids[0].Str+ids[1].Str, "|") ||
		body.Get("messages.2.content.0.tool_use_id").Str != ids[1].Str || strings.Contains(body.Raw, "theirs") {
		t.Errorf("another provider's answer goes as %s", body.Raw)
	}
}

func TestThinkingHasTheFormOfTheGeneration(t *testing.T) {
	for _, c := range []struct{ id, level, thinking, effort string }{
		{"claude-sonnet-4-5-20250929", "", "", ""},
		{"claude-sonnet-4-5-20250929", "high", `{"type":"enabled","budget_tokens":20480}`, ""},
		{"claude-3-7-sonnet-latest", "minimal", `{"type":"enabled","budget_tokens":1024}`, ""},
		{"claude-opus-4-6", "off", "", ""},
		{"claude-opus-4-6", "xhigh", `{"type":"adaptive","display":"summarized"}`, "max"},
		{"claude-opus-4-7", "xhigh", `{"type":"adaptive","display":"summarized"}`, "xhigh"},
		{"claude-sonnet-5", "off", `{"type":"disabled"}`, ""},
		{"claude-sonnet-5-5", "minimal", `{"type":"adaptive","display":"summarized"}`, "low"},
		{"claude-opus-5-5", "off", "", "low"},
		{"claude-fable-5-1", "medium", `{"type":"adaptive","display":"summarized"}`, "medium"},
		{"anthropic.claude-haiku-4-5@20251001", "low", `{"type":"enabled","budget_tokens":4096}`, ""},
		{"some-model", "low", `{"type":"enabled","budget_tokens":4096}`, ""},
	} {
		req := question()
		req.Thinking = c.level
		body := asked(t, c.id, req)
		if got := body.Get("thinking").Raw; got != c.thinking || body.Get("output_config.effort").Str != c.effort {
			t.Errorf("%s, %s: %s %s", c.id, c.level, got, body.Get("output_config").Raw)
		}
	}
	small := question()
	small.Thinking, small.MaxTokens = "high", 1500
	if body := asked(t, "claude-sonnet-4-5", small); body.Get("thinking").Exists() {
		t.Errorf("thinking takes the whole answer: %s", body.Get("thinking").Raw)
	}
	forced := question()
	forced.Thinking, forced.ToolChoice = "high", model.ToolChoice{Mode: model.ToolOne, Name: "read"}
	forced.Answer = &model.AnswerSchema{Name: "a", Schema: json.RawMessage(`{"type":"object"}`)}
	body := asked(t, "claude-sonnet-4-5", forced)
	if body.Get("thinking").Exists() || body.Get("tool_choice").Raw != `{"type":"tool","name":"read"}` || body.Get("output_config.format.schema.type").Str != "object" {
		t.Errorf("a forced call is %s", body.Raw)
	}
}

// TestSignaturesAndImagesSurviveTheLog: what a provider signed, and an image that became a
// blob, go back as they came after the process has ended.
func TestSignaturesAndImagesSurviveTheLog(t *testing.T) {
	home := t.TempDir()
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Create(t.Context(), t.TempDir(), session.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	signature := strings.Repeat("EqQB+/<>&\u2028\\\"", 60_000) // longer than strings of a line may be
	picture := strings.Repeat("iVBORw0KGgoA", 1000)            // base64 of 9,000 bytes, so a blob
	call := entry.ToolCallBlock{ID: "toolu_1", Name: "read", Arguments: json.RawMessage(`{"path":"\u00e4 €"}`)}
	for _, message := range []entry.Message{
		entry.UserText("look"),
		entry.AssistantMessage{
			API: model.APIAnthropic, Provider: "anthropic", Model: "claude-sonnet-5-5", StopReason: entry.StopToolUse, Timestamp: 1,
			Content: entry.Blocks(entry.ThinkingBlock{Thinking: "hm \u2029", Signature: signature}, entry.RedactedThinkingBlock{Data: signature}, call),
		},
		entry.ToolResult(call, entry.Blocks(entry.ImageBlock{Data: picture, MIMEType: "image/png"})),
	} {
		if _, err := s.Append(t.Context(), message); err != nil {
			t.Fatal(err)
		}
	}
	path := s.Path()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = m.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(raw), picture) {
		t.Fatalf("the image is no blob (%v)", err)
	}
	resumed, err := s.Resume(t.Context(), session.ResumeOptions{Restore: true})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := model.Messages(resumed.Context)
	if err != nil {
		t.Fatal(err)
	}
	body := asked(t, "claude-sonnet-5-5", &model.Request{Messages: messages})
	for path, want := range map[string]string{
		"messages.1.content.0.signature":             signature,
		"messages.1.content.0.thinking":              "hm \u2029",
		"messages.1.content.1.data":                  signature,
		"messages.2.content.0.content.0.source.data": picture,
	} {
		if got := body.Get(path).Str; got != want {
			t.Errorf("%s came back with %d bytes and not %d", path, len(got), len(want))
		}
	}
	if got := body.Get("messages.1.content.2.input.path").Str; got != "ä €" { // a log has its own escapes
		t.Errorf("the arguments came back as %s", got)
	}
}

// TestEveryRecordedSessionCanBeSent: contexts of real sessions, of whatever program, are
// requests that pass.
func TestEveryRecordedSessionCanBeSent(t *testing.T) {
	root := os.Getenv("AGENTRUN_TEST_DATA")
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; root == "" && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "shared", "data")); err == nil {
			root = filepath.Join(dir, "shared", "data")
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, "pi-sessions", "*.jsonl"))
	more, _ := filepath.Glob(filepath.Join(root, "pi-sessions", "*", "*.jsonl"))
	if files = append(files, more...); root == "" || len(files) == 0 {
		t.Skip("no recorded sessions: set AGENTRUN_TEST_DATA")
	}
	m, err := session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, path := range files {
		s, err := m.View(t.Context(), path)
		if err != nil {
			t.Logf("%s does not open: %v", filepath.Base(path), err)
			continue
		}
		resumed, err := s.Resume(t.Context(), session.ResumeOptions{Restore: true})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		messages, err := model.Messages(resumed.Context)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if len(messages) > 0 {
			sent++
			if err := model.Check(&model.Request{Messages: messages}, model.Info{}); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			asked(t, "claude-sonnet-5-5", &model.Request{Messages: messages})
		}
		s.Close()
	}
	t.Logf("%d of %d sessions were put into requests", sent, len(files))
}

func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}` + "\n" + `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"b","input":{"x":1}}}` + "\n" + `{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"{"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":-9}}` + "\n" + `{"type":"message_stop"}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"web_search_tool_result","content":[]}}`,
		`{"type":"error"}`, `null`, `[]`, `{"type":"message_start","message":null}`, `{"type":"content_block_start"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		modeltest.Events(t, lines, func(a *model.Answer) func([]byte) (bool, error) {
			r := reader{answer: a}
			return func(data []byte) (bool, error) { return r.event("", data) }
		})
	})
}
