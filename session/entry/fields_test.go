package entry

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

func ptr[T any](v T) *T { return &v }

// bodies are one full and one empty body of each type, as they stand in a line.
var bodies = []struct {
	body Body
	want string
}{
	{MessageBody{Message: json.RawMessage(` {"role" : "user", "content" : "<\u2028\u0041>" } `)}, `,"message":{"role":"user","content":"<` + "\u2028" + `A>"}`},
	{
		ModelUsage{Purpose: "title", Role: "tiny", API: "a", Provider: "p", Model: "m", Usage: Usage{Input: 1, Cost: Cost{Total: 0.5}}, StopReason: "stop", ErrorMessage: "e"},
		`,"purpose":"title","role":"tiny","api":"a","provider":"p","model":"m","usage":{"input":1,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.5}},"stopReason":"stop","errorMessage":"e"`,
	},
	{ThinkingLevelChange{ThinkingLevel: ptr("high"), Configured: ptr("auto")}, `,"thinkingLevel":"high","configured":"auto"`},
	{ThinkingLevelChange{}, `,"thinkingLevel":null`},
	{ModelChange{Model: "p/m", Role: "smol", ResolvedModelIsFallback: true}, `,"model":"p/m","role":"smol","resolvedModelIsFallback":true`},
	{ModelChange{Provider: "p", ModelID: "m"}, `,"provider":"p","modelId":"m"`},
	{ServiceTierChange{}, `,"serviceTier":null`},
	{ServiceTierChange{ServiceTier: &ServiceTier{OpenAI: "flex", Anthropic: "a", Google: "g"}}, `,"serviceTier":{"openai":"flex","anthropic":"a","google":"g"}`},
	{Compaction{Summary: "s", FirstKeptEntryID: "1"}, `,"summary":"s","firstKeptEntryId":"1","tokensBefore":0`},
	{
		Compaction{
			Summary: "s", ShortSummary: "ss", FirstKeptEntryID: "1", TokensBefore: 2, TokensAfter: ptr(int64(0)), Method: "soft", ProviderReplayThroughEntryID: "3",
			Details: json.RawMessage(`{"a":1}`), PreserveData: json.RawMessage(`{}`), FromExtension: true, FromHook: true, Warning: "w",
			Checkpoint: &Checkpoint{Settings: Settings{Models: map[string]string{"default": "p/m"}, ExplicitModel: true}, Title: "t", TitleSource: "user"},
		},
		`,"summary":"s","shortSummary":"ss","firstKeptEntryId":"1","tokensBefore":2,"tokensAfter":0,"method":"soft","providerReplayThroughEntryId":"3","details":{"a":1},"preserveData":{},"fromExtension":true,"fromHook":true,"warning":"w","agentrun":{"settings":{"models":{"default":"p/m"},"explicitModel":true},"title":"t","titleSource":"user"}`,
	},
	{BranchSummary{FromID: "root", Summary: "s"}, `,"fromId":"root","summary":"s"`},
	{BranchSummary{FromID: "1", Summary: "s", Details: json.RawMessage("null"), FromExtension: true, FromHook: true}, `,"fromId":"1","summary":"s","details":null,"fromExtension":true,"fromHook":true`},
	{ResetBoundary{}, ``},
	{ResetBoundary{Checkpoint: &Checkpoint{}}, `,"agentrun":{"settings":{}}`},
	{Custom{CustomType: "agentrun.run.start", Data: json.RawMessage(`{"2":0,"b":1,"1":2}`)}, `,"customType":"agentrun.run.start","data":{"1":2,"2":0,"b":1}`},
	{Custom{CustomType: "c"}, `,"customType":"c"`},
	{CustomMessage{CustomType: "c", Content: PlainText("x")}, `,"customType":"c","content":"x","display":false`},
	{CustomMessage{CustomType: "c", Content: Blocks(TextBlock{Text: "x"}), Display: true, Details: json.RawMessage(`[]`), Attribution: "agent"}, `,"customType":"c","content":[{"type":"text","text":"x"}],"display":true,"details":[],"attribution":"agent"`},
	{Label{TargetID: "1", Label: "l"}, `,"targetId":"1","label":"l"`},
	{Label{TargetID: "1"}, `,"targetId":"1"`},
	{TitleChange{Title: "t", Source: "auto"}, `,"title":"t","source":"auto"`},
	{TitleChange{Title: "t", PreviousTitle: "p", Source: "user", Trigger: "g"}, `,"title":"t","previousTitle":"p","source":"user","trigger":"g"`},
	{SessionInfo{Name: "n"}, `,"name":"n"`},
	{TTSRInjection{InjectedRules: []string{"a", "b"}}, `,"injectedRules":["a","b"]`},
	{SessionInit{SystemPrompt: Prompt{"p"}, Task: "t", Tools: []string{"bash"}}, `,"systemPrompt":"p","task":"t","tools":["bash"]`},
	{
		SessionInit{SystemPrompt: Prompt{"p", "q"}, Task: "t", Tools: []string{}, Agent: "a", ModelRole: "r", ResolvedModel: "p/m", ReadOnly: ptr(false), OutputSchema: json.RawMessage(`{}`), OutputSchemaMode: "strict", RestrictToolNames: ptr(true), Spawns: ptr(""), ReadSummarize: ptr(false), Advisor: "on"},
		`,"systemPrompt":["p","q"],"task":"t","tools":[],"agent":"a","modelRole":"r","resolvedModel":"p/m","readOnly":false,"outputSchema":{},"outputSchemaMode":"strict","restrictToolNames":true,"spawns":"","readSummarize":false,"advisor":"on"`,
	},
	{ModeChange{Mode: "plan", Data: json.RawMessage(`{"f":1}`)}, `,"mode":"plan","data":{"f":1}`},
	{ModeChange{Mode: ModeNone}, `,"mode":"none"`},
	{CredentialPin{Provider: "p", Hash: "00"}, `,"provider":"p","hash":"00"`},
	{Raw{Type: "someday", Fields: json.RawMessage(`{ "b" : 1, "a" : [ ] }`)}, `,"b":1,"a":[]`},
	{Raw{Type: "someday", Fields: json.RawMessage(`{}`)}, ``},
}

func TestAppendFieldsOfEveryType(t *testing.T) {
	seen := map[string]bool{}
	for _, tt := range bodies {
		t.Run(tt.body.EntryType(), func(t *testing.T) {
			seen[tt.body.EntryType()] = true
			got, err := AppendFields([]byte("before"), tt.body)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != "before"+tt.want {
				t.Fatalf("got  %s\nwant before%s", got, tt.want)
			}
			line := []byte(`{"type":"` + tt.body.EntryType() + `","id":"1","parentId":null,"timestamp":"2026-01-02T03:04:05.678Z"` + tt.want + `}`)
			if !ecmajson.Normal(line) {
				t.Errorf("a rewrite by JavaScript would change %s", line)
			}
			body, err := parse(line).Body()
			if err != nil {
				t.Fatal(err)
			}
			if reflect.TypeOf(body) != reflect.TypeOf(tt.body) {
				t.Fatalf("decodes to %T", body)
			}
			again, err := AppendFields(nil, body)
			if err != nil || string(again) != tt.want {
				t.Errorf("decoded and written again: %s, %v\nwant %s", again, err, tt.want)
			}
		})
	}
	if len(seen) != 18 {
		t.Errorf("%d types have an example, not all 17 and an unknown one", len(seen))
	}
}

func TestAppendFieldsOfMessages(t *testing.T) {
	usage := `{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}`
	for _, tt := range []struct {
		message Message
		want    string
	}{
		{UserMessage{Content: PlainText("<a> & \u2028 \xff"), Timestamp: 1}, `{"role":"user","content":"<a> & ` + "\u2028 \ufffd" + `","timestamp":1}`},
		{UserMessage{Role: RoleDeveloper, Synthetic: true, Steering: true, Attribution: "agent"}, `{"role":"developer","content":[],"timestamp":0,"synthetic":true,"steering":true,"attribution":"agent"}`},
		{
			AssistantMessage{Content: Blocks(ThinkingBlock{Thinking: "t", Signature: "s", ItemID: "i"}, RedactedThinkingBlock{Data: "d"}, FallbackBlock{From: json.RawMessage(`"a"`), To: json.RawMessage(`"b"`)},
				AnthropicServerToolBlock{Block: json.RawMessage(`{"x":1}`)}, UnknownBlock{Type: "u", Raw: json.RawMessage(`{"z":1,"type":"u"}`)}, UnknownBlock{Type: "v"}, TextBlock{Text: "t", Signature: "s"}, ImageBlock{Data: "QQ==", MIMEType: "image/png"})},
			`{"role":"assistant","content":[{"type":"thinking","thinking":"t","thinkingSignature":"s","itemId":"i"},{"type":"redactedThinking","data":"d"},{"type":"fallback","from":"a","to":"b"},{"type":"anthropicServerTool","block":{"x":1}},{"z":1,"type":"u"},{"type":"v"},{"type":"text","text":"t","textSignature":"s"},{"type":"image","data":"QQ==","mimeType":"image/png"}],"api":"","provider":"","model":"","usage":` + usage + `,"stopReason":"","timestamp":0}`,
		},
		{ToolResultMessage{ToolCallID: "x", ToolName: "n", Content: Blocks()}, `{"role":"toolResult","toolCallId":"x","toolName":"n","content":[],"isError":false,"timestamp":0}`},
		{BashExecutionMessage{Command: "c", ExitCode: ptr(0), Details: json.RawMessage(`{"run":"r"}`)}, `{"role":"bashExecution","command":"c","output":"","exitCode":0,"cancelled":false,"truncated":false,"timestamp":0,"details":{"run":"r"}}`},
		{PythonExecutionMessage{Code: "c", Cancelled: true}, `{"role":"pythonExecution","code":"c","output":"","cancelled":true,"truncated":false,"timestamp":0}`},
		{ExtensionMessage{CustomType: "c", Content: PlainText("")}, `{"role":"custom","customType":"c","content":"","display":false,"timestamp":0}`},
		{FileMentionMessage{}, `{"role":"fileMention","files":[],"timestamp":0}`},
		{FileMentionMessage{Files: []MentionedFile{{Path: "p", LineCount: ptr(int64(0)), Image: &ImageBlock{}}}}, `{"role":"fileMention","files":[{"path":"p","content":"","lineCount":0,"image":{"type":"image","data":"","mimeType":""}}],"timestamp":0}`},
		{UnknownMessage{Role: "r", Raw: json.RawMessage(`{"b":1,"role":"r"}`)}, `{"b":1,"role":"r"}`},
		{UnknownMessage{Role: "r"}, `{"role":"r"}`},
	} {
		t.Run(tt.message.MessageRole(), func(t *testing.T) {
			got, err := AppendFields(nil, tt.message)
			if err != nil {
				t.Fatal(err)
			}
			if want := `,"message":` + tt.want; string(got) != want {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
			m, err := DecodeMessage([]byte(tt.want))
			if err != nil {
				t.Fatal(err)
			}
			if again, err := AppendFields(nil, m); err != nil || string(again) != string(got) {
				t.Errorf("decoded and written again: %s, %v\nwant %s", again, err, got)
			}
		})
	}
}

func TestAppendFieldsRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		body Body
		want error
	}{
		{"an envelope member", Raw{Type: "x", Fields: json.RawMessage(`{"a":1,"id":"2"}`)}, ErrReserved},
		{"one written with escapes", Raw{Type: "x", Fields: json.RawMessage(`{"\u0063rc":"2"}`)}, ErrReserved},
		{"the list of externalized strings", Raw{Type: "x", Fields: json.RawMessage(`{"externalized":[]}`)}, ErrReserved},
		{"fields that are no object", Raw{Type: "x", Fields: json.RawMessage(`[]`)}, nil},
		{"fields that are no JSON", Raw{Type: "x", Fields: json.RawMessage(`{"a":}`)}, nil},
		{"two values", Raw{Type: "x", Fields: json.RawMessage(`{} {}`)}, nil},
		{"no message", MessageBody{}, nil},
		{"a message that is no object", MessageBody{Message: json.RawMessage(`"hi"`)}, nil},
		{"a null message", MessageBody{Message: json.RawMessage(`null`)}, nil},
		{"a message that is no JSON", &MessageBody{Message: json.RawMessage(`{`)}, nil},
		{"data that is no JSON", Custom{CustomType: "c", Data: json.RawMessage(`{`)}, nil},
		{"an unknown message that is no object", UnknownMessage{Raw: json.RawMessage(`7`)}, nil},
		{"no body", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dst, err := AppendFields([]byte("before"), tt.body)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got error %v, want %v", err, tt.want)
			}
			if string(dst) != "before" {
				t.Errorf("dst became %q", dst)
			}
		})
	}
}

func TestAppendFieldsOfAMessageBodyDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var body Body = MessageBody{Message: json.RawMessage(`{"role":"user","content":"` + strings.Repeat("words ", 100) + `"}`)}
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := AppendFields(dst, body); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestUnknownTypesKeepTheirMembers(t *testing.T) {
	line := `{"z":1, "type":"someday","id":"1","a":{"b" : "\u0041"},"parentId":null,"timestamp":"x","crc":"00000000"}`
	body, err := parse([]byte(line)).Body()
	if err != nil {
		t.Fatal(err)
	}
	want := Raw{Type: "someday", Fields: json.RawMessage(`{"z":1,"a":{"b" : "\u0041"}}`)}
	if !reflect.DeepEqual(body, want) {
		t.Errorf("got %s, want %s", body.(Raw).Fields, want.Fields)
	}
}

func TestBodiesOfTheWrongShapeAreErrors(t *testing.T) {
	for _, line := range []string{
		`compaction "summary":7`, `custom_message "content":7`, `custom_message "content":[{"type":"text","text":7}]`,
		`session_init "systemPrompt":7`, `ttsr_injection "injectedRules":"a"`, `reset_boundary "agentrun":7`,
	} {
		if b, err := chain(line)[0].Body(); err == nil {
			t.Errorf("%s gave %+v", line, b)
		}
	}
	if b, err := New([]byte("{"), Envelope{Type: "someday"}).Body(); err == nil {
		t.Errorf("half a line gave %+v", b)
	}
}

// What a struct writes of a real message is what was read, but for empty strings
// that it leaves out and for members that it adds because every program writes them.
func TestRealMessagesSurviveTheirStructs(t *testing.T) {
	if testing.Short() {
		t.Skip("reads all recordings; run without -short")
	}
	for name, lines := range sessions(t) {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, e := range path(t, lines) {
				if e.Type() != TypeMessage {
					continue
				}
				n++
				m, err := e.Message()
				if err != nil {
					t.Fatal(err)
				}
				written, err := marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				var got, want any
				if err := json.Unmarshal(written, &got); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(e.message().Raw), &want); err != nil {
					t.Fatal(err)
				}
				if diff := changed("", want, got); diff != "" {
					t.Errorf("%s: %s", e.describe(), diff)
				}
			}
			if n == 0 {
				t.Error("no messages")
			}
		})
	}
}

// changed names a value of got that is neither in want nor zero.
func changed(at string, want, got any) string {
	switch g := got.(type) {
	case map[string]any:
		w, _ := want.(map[string]any)
		for k, v := range g {
			if d := changed(at+"/"+k, w[k], v); d != "" {
				return d
			}
		}
		for k, v := range w {
			if _, ok := g[k]; !ok && v != "" && k != "partialJson" {
				return at + "/" + k + " is gone"
			}
		}
		return ""
	case []any:
		w, _ := want.([]any)
		if len(w) != len(g) {
			return at + " has another length"
		}
		for i := range g {
			if d := changed(at+"/"+string(rune('0'+i%10)), w[i], g[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if want == nil && (got == nil || reflect.ValueOf(got).IsZero()) || reflect.DeepEqual(want, got) {
		return ""
	}
	return at + " changed"
}
