package entry

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const note = `custom_message "customType":"interrupted-thinking","content":"I was about to","display":false`

// shape words a context: the ids of its messages, with marks.
func shape(ctx *Context) string {
	var words []string
	for _, m := range ctx.Messages {
		w := m.EntryID
		switch {
		case m.Synthetic:
			w = "!" + m.ToolCallIDs[0]
		case m.Role == RoleCompactionSummary:
			w = "S" + w
		case m.Interrupted:
			w += "~"
		case m.Excluded:
			w += "x"
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

func repairs(ctx *Context) string {
	var words []string
	for _, r := range ctx.Repairs {
		words = append(words, string(r.Kind)+" "+r.EntryID+" "+r.ToolCallID)
	}
	return strings.Join(words, ", ")
}

func TestBuildContext(t *testing.T) {
	const remote = `"preserveData":{"openaiRemoteCompaction":{"provider":"openai","replacementHistory":[{}]}}`
	for _, tt := range []struct {
		name    string
		path    []Entry
		want    string
		repairs string
	}{
		{"an empty path gives nothing", nil, "", ""},
		{"messages in order", chain(user("a"), answer("x"), result("x"), ended(StopStop)), "1 2 3 4", ""},
		{"entries that are no messages are left out", chain(
			`model_change "model":"p/m"`, user("a"), `custom "customType":"c"`, `label "targetId":"2"`, `title_change "title":"t"`,
			`someday "message":{"role":"user"}`, `session_info "name":"n"`, ended(StopStop)), "2 8", ""},
		{"custom messages and branch summaries are in", chain(`branch_summary "fromId":"root","summary":"left"`,
			`custom_message "customType":"c","content":[]`, `branch_summary "fromId":"1","summary":""`), "1 2", ""},
		{"every role is in", chain(user("a"), `message "message":{"role":"developer","content":""}`, `message "message":{"role":"fileMention","files":[]}`,
			`message "message":{"role":"hookMessage","content":""}`, `message "message":{"role":"someday"}`), "1 2 3 4 5", ""},
		{"executions may be excluded", chain(
			`message "message":{"role":"bashExecution","command":"ls"}`,
			`message "message":{"role":"bashExecution","command":"ls","excludeFromContext":true}`,
			`message "message":{"role":"pythonExecution","code":"1","excludeFromContext":false}`), "1 2x 3", ""},
		{"messages that say nothing are reported", chain(user("a"), `message "message":null`, `message "x":1`, `message "message":{"role":7}`,
			`custom_message "content":7`), "1", "unreadable 2 , unreadable 3 , unreadable 4 , unreadable 5 "},

		{"a reset boundary cuts", chain(user("a"), `reset_boundary`, user("b")), "3", ""},
		{"the last reset boundary counts", chain(user("a"), `reset_boundary`, user("b"), `reset_boundary`), "", ""},
		{"a boundary behind a compaction wins", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"1"`, user("b"), `reset_boundary`, user("c")), "5", ""},
		{"a compaction behind a boundary wins", chain(user("a"), `reset_boundary`, user("b"), `compaction "summary":"s","firstKeptEntryId":"3"`, user("c")), "S4 3 5", ""},
		{"what a compaction keeps may begin before a boundary", chain(user("a"), `reset_boundary`, user("b"), `compaction "summary":"s","firstKeptEntryId":"1"`), "S4 1 3", ""},

		{"a compaction comes first, then what it keeps", chain(user("a"), user("b"), user("c"), `compaction "summary":"s","firstKeptEntryId":"2"`, user("d")), "S4 2 3 5", ""},
		{"only the last compaction counts", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"1"`, user("b"), `compaction "summary":"s","firstKeptEntryId":"1"`, user("c")), "S4 1 3 5", ""},
		{"nothing is kept from an id elsewhere", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"9"`, user("b")), "S2 3", ""},
		{"nothing is kept without an id", chain(user("a"), `compaction "summary":"s"`, user("b")), "S2 3", ""},
		{"nothing is kept from the compaction itself on", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"2"`, user("b")), "S2 3", ""},
		{"nothing is kept from behind it", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"3"`, user("b")), "S2 3", ""},
		{"a replacement history holds the kept ones", chain(user("a"), user("b"), `compaction "summary":"s","firstKeptEntryId":"1",`+remote, user("c")), "S3 4", ""},
		{"but not those behind its end", chain(user("a"), user("b"), user("c"), `compaction "summary":"s","firstKeptEntryId":"1","providerReplayThroughEntryId":"2",`+remote, user("d")), "S4 3 5", ""},
		{"its end may be elsewhere", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"1","providerReplayThroughEntryId":"9",`+remote, user("d")), "S2 3", ""},
		{"a history of no provider is none", chain(user("a"), `compaction "summary":"s","firstKeptEntryId":"1","preserveData":{"openaiRemoteCompaction":{"replacementHistory":[]}}`), "S2 1", ""},

		{"a failed turn goes", chain(user("a"), ended(StopError), ended(StopAborted), user("b")), "1 4", ""},
		{"and takes its results along", chain(user("a"), ended(StopAborted, "x", "y"), result("x"), result("y"), user("b")), "1 5", ""},
		{"wherever they are", chain(user("a"), ended(StopAborted, "x"), user("b"), result("x")), "1 3", ""},
		{"a failed turn stays before a note", chain(user("a"), ended(StopAborted), note), "1 2~ 3", ""},
		{"its open calls are answered before the note", chain(user("a"), ended(StopAborted, "x"), note), "1 2~ !x 3", "interrupted 2 x"},
		{"a note further away does not help", chain(user("a"), ended(StopAborted), user("b"), note), "1 3 4", ""},
		{"results stand between a turn and its note", chain(user("a"), ended(StopAborted, "x"), result("x"), note), "1 4", ""},
		{"entries that are no messages do not", chain(user("a"), ended(StopAborted), `custom "customType":"c"`, note), "1 2~ 4", ""},
		{"one note serves the last of two", chain(ended(StopAborted), ended(StopAborted), note), "2~ 3", ""},
		{"a note may follow by what is left out", chain(ended(StopAborted), ended(StopError, "x"), result("x"), note), "1~ 4", ""},
		{"a note written as a message", chain(ended(StopAborted), `message "message":{"role":"custom","customType":"interrupted-thinking","content":""}`), "1~ 2", ""},
		{"a user can't write one", chain(ended(StopAborted), `message "message":{"role":"user","customType":"interrupted-thinking","content":""}`), "2", ""},
		{"a retried turn goes even before a note", chain(
			`message "message":{"role":"assistant","content":[{"type":"toolCall","id":"x"}],"stopReason":"toolUse","retryRecovery":{"attempt":1}}`, result("x"), note), "3", ""},
		{"retryRecovery before the content", chain(`message "message":{"role":"assistant","retryRecovery":true,"content":[],"stopReason":"stop"}`), "", ""},
		{"no retry", chain(`message "message":{"role":"assistant","content":[],"stopReason":"stop","retryRecovery":null}`), "1", ""},
		{"an empty error goes even before a note", chain(
			`message "message":{"role":"assistant","content":[{"type":"text","text":" "},{"type":"thinking","thinking":""},{"type":"redactedThinking","data":""},{"type":"fallback"}],"stopReason":"error"}`, note), "2", ""},
		{"an error with an unknown block is not empty", chain(`message "message":{"role":"assistant","content":[{"type":"someday"}],"stopReason":"error"}`, note), "1~ 2", ""},
		{"words in other places do not fail a turn", chain(`message "message":{"role":"assistant","content":[{"type":"text","text":"\"stopReason\":\"error\""}],"stopReason":"stop","providerPayload":{"stopReason":"error","retryRecovery":1}}`), "1", ""},
		{"nor hide that it failed", chain(`message "message":{"role":"assistant","content":[],"providerPayload":{"stopReason":"stop"},"stopReason":"aborted"}`), "", ""},
		{"nor when written with escapes", chain(`message "message":{"role":"assistant","content":[],"x":{"stopReason":"stop"},"\u0073topReason":"aborted"}`), "", ""},

		{"a call without a result is interrupted", chain(user("a"), answer("x")), "1 2 !x", "interrupted 2 x"},
		{"also in the middle", chain(user("a"), answer("x"), user("b")), "1 2 !x 3", "interrupted 2 x"},
		{"also when a sibling has one", chain(answer("x", "y", "z"), result("y"), user("b")), "1 2 !x !z 3", "interrupted 1 x, interrupted 1 z"},
		{"results follow their turn at once", chain(answer("x", "y"), result("x"), user("b"), result("y")), "1 2 4 3", "moved 4 y"},
		{"also over another turn", chain(answer("x"), answer("y"), result("y"), result("x")), "1 4 2 3", "moved 4 x"},
		{"results may come in any order", chain(answer("x", "y"), result("y"), result("x")), "1 2 3", ""},
		{"a result without a call goes", chain(user("a"), result("x"), user("b")), "1 3", "orphan 2 x"},
		{"a result before its call goes", chain(result("x"), answer("x")), "2 !x", "orphan 1 x, interrupted 2 x"},
		{"a call cut off by a compaction", chain(answer("x"), result("x"), `compaction "summary":"s","firstKeptEntryId":"2"`), "S3", "orphan 2 x"},
		{"a second result goes", chain(answer("x"), result("x"), result("x")), "1 2", "orphan 3 x"},
		{"an id may be used again", chain(answer("x"), result("x"), answer("x"), result("x")), "1 2 3 4", ""},
		{"the nearest call gets the result", chain(answer("x"), answer("x"), result("x")), "1 !x 2 3", "interrupted 1 x"},
		{"one id twice in a turn is one call", chain(answer("x", "x"), result("x")), "1 2", ""},
		{"a result behind a failed turn's retry", chain(ended(StopError, "x"), answer("x"), result("x")), "2 3", ""},
		{"not moved over what is left out", chain(answer("x"), ended(StopError), result("x")), "1 3", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := BuildContext(tt.path, ContextOptions{})
			if got := shape(ctx); got != tt.want {
				t.Errorf("messages %q, want %q", got, tt.want)
			}
			if got := repairs(ctx); got != tt.repairs {
				t.Errorf("repairs %q, want %q", got, tt.repairs)
			}
		})
	}
}

// paired words the calls and results of a context, as the bytes of the messages have
// them: a turn as (x y), the result of a call as its id.
func paired(t *testing.T, ctx *Context) string {
	t.Helper()
	var words []string
	for _, m := range ctx.Messages {
		msg, err := m.Message()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := m.JSON()
		if err != nil || !json.Valid(raw) {
			t.Fatalf("%v: %s", err, raw)
		}
		var ids []string
		switch b := msg.(type) {
		case AssistantMessage:
			for _, c := range b.Content.ToolCalls() {
				ids = append(ids, c.ID)
			}
			words = append(words, "("+strings.Join(ids, " ")+")")
		case ToolResultMessage:
			ids = []string{b.ToolCallID}
			word := b.ToolCallID
			if m.Synthetic {
				word = "!" + word
			}
			words = append(words, word)
		}
		if !slices.Equal(ids, m.ToolCallIDs) {
			t.Errorf("message %s has the calls %q and says %q", m.EntryID, ids, m.ToolCallIDs)
		}
	}
	return strings.Join(words, " ")
}

func TestStrictContextsHaveEachCallIDOnce(t *testing.T) {
	said := 0
	turn := func(ids ...string) string { // each says something else, or it would be a repeat
		said++
		return strings.Replace(answer(ids...), "well", fmt.Sprint(said), 1)
	}
	var many, manyWant, manyResults []string
	for range manyCalls + 1 {
		many = append(many, "x")
		manyResults = append(manyResults, result("x"))
		manyWant = append(manyWant, "x")
	}
	for i := range manyWant[1:] {
		manyWant[i+1] = fmt.Sprintf("x-%d", i+2)
	}
	long := strings.Repeat("l", maxCallID)
	for _, tt := range []struct {
		name    string
		path    []Entry
		want    string
		repairs string
	}{
		{"each its own", chain(turn("x"), result("x"), turn("y"), result("y")), "(x) x (y) y", ""},
		{"one id in two turns", chain(turn("x"), result("x"), turn("x"), result("x")), "(x) x (x-2) x-2", "call-id 3 x"},
		{"in three", chain(turn("x"), result("x"), turn("x"), result("x"), turn("x"), result("x")), "(x) x (x-2) x-2 (x-3) x-3", "call-id 3 x, call-id 5 x"},
		{"a sibling stays", chain(turn("x"), result("x"), turn("y", "x"), result("x"), result("y")), "(x) x (y x-2) x-2 y", "call-id 3 x"},
		{"the new id is in use before", chain(turn("x-2"), result("x-2"), turn("x"), result("x"), turn("x"), result("x")), "(x-2) x-2 (x) x (x-3) x-3", "call-id 5 x"},
		{"or behind", chain(turn("x"), result("x"), turn("x"), result("x"), turn("x-2"), result("x-2")), "(x) x (x-3) x-3 (x-2) x-2", "call-id 3 x"},
		{"the first has no result", chain(turn("x"), turn("x"), result("x")), "(x) !x (x-2) x-2", "interrupted 1 x, call-id 2 x"},
		{"the last has no result", chain(turn("x"), result("x"), turn("x")), "(x) x (x-2) !x-2", "interrupted 3 x, call-id 3 x"},
		{"a turn between that failed", chain(turn("x"), result("x"), ended(StopError, "x"), turn("x"), result("x")), "(x) x (x-2) x-2", "call-id 4 x"},
		{"a turn that failed is not in the way", chain(ended(StopError, "x"), turn("x"), result("x")), "(x) x", ""},
		{"twice in a turn, with two results", chain(turn("x", "x"), result("x"), result("x")), "(x x-2) x x-2", "call-id 1 x"},
		{"twice in a turn, with one result", chain(turn("x", "x"), result("x")), "(x x-2) x !x-2", "interrupted 1 x, call-id 1 x"},
		{"twice in a turn, a result later", chain(turn("x", "x"), result("x"), user("a"), result("x")), "(x x-2) x x-2", "moved 4 x, call-id 1 x"},
		{"an empty id", chain(turn(""), result(""), turn("", "y"), result(""), result("y")), "(call-2) call-2 (call-3 y) call-3 y", "call-id 1 , call-id 3 "},
		{"no id at all", chain(`message "message":{"role":"assistant","content":[{"type":"toolCall","name":"n","arguments":{}}],"stopReason":"toolUse"}`,
			`message "message":{"role":"toolResult","toolName":"n","content":[]}`), "(call-2) call-2", "call-id 1 "},
		{"ids of two parts are told apart by the first", chain(turn("c|a"), result("c|a"), turn("c|b"), result("c|b")), "(c|a) c|a (c-2|b-2) c-2|b-2", "call-id 3 c|b"},
		{
			"a long id stays in its bounds", chain(turn(long), result(long), turn(long), result(long)),
			"(" + long + ") " + long + " (" + long[:38] + "-2) " + long[:38] + "-2", "call-id 3 " + long,
		},
		{"very often in one turn", chain(append([]string{turn(many...)}, manyResults...)...), "(" + strings.Join(manyWant, " ") + ") " + strings.Join(manyWant, " "), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, prepared := range []bool{false, true} {
				before := make([]string, len(tt.path))
				for i, e := range tt.path {
					before[i] = string(e.Raw())
				}
				if prepared {
					PrepareStrict(tt.path)
				}
				ctx := BuildContext(tt.path, ContextOptions{Strict: true})
				if got := paired(t, ctx); got != tt.want {
					t.Errorf("calls %q, want %q", got, tt.want)
				}
				if got := repairs(ctx); got != tt.repairs && tt.repairs != "" {
					t.Errorf("repairs %q, want %q", got, tt.repairs)
				}
				for i, e := range tt.path {
					if string(e.Raw()) != before[i] {
						t.Errorf("entry %d of the path was changed", i)
					}
				}
			}
		})
	}
}

func TestBuildContextWithManyCalls(t *testing.T) {
	var ids []string
	lines := []string{""}
	for i := range 3 * manyCalls {
		id := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		ids = append(ids, id)
		if i%2 == 0 {
			lines = append(lines, result(id))
		}
	}
	lines[0] = answer(append(ids, ids[0])...)
	ctx := BuildContext(chain(append(lines, result(ids[0]))...), ContextOptions{})
	answered := make(map[string]int)
	for _, m := range ctx.Messages[1:] {
		answered[m.ToolCallIDs[0]]++
	}
	for _, id := range ids {
		if answered[id] != 1 {
			t.Errorf("call %q has %d results", id, answered[id])
		}
	}
	if want := "orphan"; len(ctx.Repairs) != len(ids)/2+1 || string(ctx.Repairs[0].Kind) != want {
		t.Errorf("repairs %v", ctx.Repairs)
	}
}

func TestContextMessagesDecode(t *testing.T) {
	path := chain(
		`branch_summary "fromId":"root","summary":"left"`,
		`custom_message "customType":"c","content":"hello","display":true,"details":{"n":1},"attribution":"agent"`,
		answer("x"),
		`compaction "summary":"s","shortSummary":"ss","firstKeptEntryId":"1","tokensBefore":7`,
	)
	const ms = 1767323045678
	want := []Message{
		CompactionSummaryMessage{Summary: "s", ShortSummary: "ss", TokensBefore: 7, Timestamp: ms},
		BranchSummaryMessage{Summary: "left", FromID: "root", Timestamp: ms},
		ExtensionMessage{Role: RoleCustom, CustomType: "c", Content: PlainText("hello"), Display: true, Details: json.RawMessage(`{"n":1}`), Attribution: "agent", Timestamp: ms},
		AssistantMessage{Content: Blocks(TextBlock{Text: "well"}, ToolCallBlock{ID: "x", Name: "bash", Arguments: json.RawMessage("{}")}), Provider: "p", Model: "m", StopReason: StopToolUse},
		ToolResultMessage{ToolCallID: "x", ToolName: "bash", Content: Blocks(TextBlock{Text: InterruptedResult}), IsError: true, Timestamp: ms},
	}
	ctx := BuildContext(path, ContextOptions{})
	if ctx.Compaction != "4" {
		t.Errorf("Compaction = %q", ctx.Compaction)
	}
	if len(ctx.Messages) != len(want) {
		t.Fatalf("%d messages, want %d", len(ctx.Messages), len(want))
	}
	for i, m := range ctx.Messages {
		got, err := m.Message()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("message %d:\n got %+v\nwant %+v", i, got, want[i])
		}
		if got.MessageRole() != m.Role {
			t.Errorf("message %d has role %q, says %q", i, m.Role, got.MessageRole())
		}
		if m.Entry().ID() != m.EntryID {
			t.Errorf("message %d is made of entry %q, says %q", i, m.Entry().ID(), m.EntryID)
		}
		raw, err := m.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeMessage(raw)
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("message %d does not survive its JSON %s: %v", i, raw, err)
		}
	}
}

func TestContextKeepsSignedContentToTheByte(t *testing.T) {
	line := `message "message":{"role":"assistant", "content":[ {"type":"thinking","thinking":"\u0041","thinkingSignature":"c2ln"},{"type":"redactedThinking","data":"eA=="},{"type":"toolCall","id":"x","name":"n","arguments":{},"thoughtSignature":"s"}],"stopReason":"toolUse"}`
	ctx := BuildContext(chain(line), ContextOptions{})
	raw, err := ctx.Messages[0].JSON()
	if err != nil {
		t.Fatal(err)
	}
	if _, want, _ := strings.Cut(line, `"message":`); string(raw) != want {
		t.Errorf("got %s\nwant %s", raw, want)
	}
	if len(ctx.Messages) != 2 || !ctx.Messages[1].Synthetic {
		t.Errorf("messages %q", shape(ctx))
	}
}

func TestDeepNestingIsHarmless(t *testing.T) {
	deep := strings.Repeat(`[{"a":`, 100_000) + "1" + strings.Repeat("}]", 100_000)
	ctx := BuildContext(chain(
		`message "message":{"role":"assistant","content":[{"type":"toolCall","arguments":`+deep+`,"id":"x"}],"stopReason":"toolUse"}`,
		`message "x":`+deep+`,"message":{"role":"user","content":`+deep+`}`,
		`compaction "details":`+deep+`,"summary":"s","firstKeptEntryId":"1"`,
	), ContextOptions{})
	if got := shape(ctx); got != "S3 1 !x 2" {
		t.Errorf("messages %q", got)
	}
	// encoding/json gives up at ten thousand levels; that is an error, not a crash.
	if _, err := ctx.Messages[1].Message(); err == nil {
		t.Error("200,000 levels were decoded")
	}
}

func TestEntriesWithoutAMessageSaySo(t *testing.T) {
	for _, line := range []string{"label", "custom", "message", `message "message":7`, `message "message":{"role":"user","timestamp":"x"}`} {
		if m, err := chain(line)[0].Message(); err == nil {
			t.Errorf("%s gave %v", line, m)
		}
	}
}

func TestRealSessionsBuildValidContexts(t *testing.T) {
	for name, lines := range sessions(t) {
		t.Run(name, func(t *testing.T) {
			entries := path(t, lines)
			ctx := BuildContext(entries, ContextOptions{})
			if len(ctx.Messages) == 0 {
				t.Fatal("no messages")
			}
			checkValid(t, ctx)
			for _, m := range ctx.Messages {
				msg, err := m.Message()
				if err != nil {
					t.Fatal(err)
				}
				if msg.MessageRole() != m.Role {
					t.Errorf("entry %s: role %q decodes to %q", m.EntryID, m.Role, msg.MessageRole())
				}
				if a, ok := msg.(AssistantMessage); ok {
					var ids []string
					for _, c := range a.Content.ToolCalls() {
						ids = append(ids, c.ID)
					}
					if !slices.Equal(ids, m.ToolCallIDs) {
						t.Errorf("entry %s: calls %q decode to %q", m.EntryID, m.ToolCallIDs, ids)
					}
					if a.StopReason == StopError || a.StopReason == StopAborted {
						t.Errorf("entry %s: a failed turn is in", m.EntryID)
					}
				}
			}
			t.Logf("%d entries, %d messages, model %s, %d repairs", len(entries), len(ctx.Messages), ctx.Settings.DefaultModel(), len(ctx.Repairs))
		})
	}
}

// checkValid checks what providers ask of a conversation: behind each turn that
// calls tools exactly one result of each call, and no result anywhere else.
func checkValid(t interface {
	Helper()
	Errorf(string, ...any)
}, ctx *Context,
) {
	t.Helper()
	open := map[string]bool{}
	for i, m := range ctx.Messages {
		if m.Role == RoleToolResult {
			if len(m.ToolCallIDs) != 1 || !open[m.ToolCallIDs[0]] {
				t.Errorf("message %d: a result of %q, which is not waited for", i, m.ToolCallIDs)
				continue
			}
			delete(open, m.ToolCallIDs[0])
			continue
		}
		if len(open) > 0 {
			t.Errorf("message %d: calls %v have no result before it", i, open)
			clear(open)
		}
		for _, id := range m.ToolCallIDs {
			open[id] = true
		}
	}
	if len(open) > 0 {
		t.Errorf("calls %v have no result at the end", open)
	}
}
