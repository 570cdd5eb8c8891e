package entry

import (
	"strings"
	"testing"
)

func TestStrictContextsLeaveOutWhatProvidersRefuse(t *testing.T) {
	timed := func(s string) string { return strings.TrimSuffix(s, "}") + `,"timestamp":1}` }
	turn := timed(answer("x"))
	for _, tt := range []struct {
		name    string
		path    []Entry
		want    string
		repairs string
	}{
		{"messages that say something", chain(user("a"), ended(StopStop), user(" b"), user("\n\"")), "1 2 3 4", ""},
		{
			"blank questions", chain(user(""), user(" \t\n"), `message "message":{"role":"user","content":[]}`, `message "message":{"role":"developer","content":[{"type":"text","text":" "}]}`, user("a")), "5",
			"empty 1 , empty 2 , empty 3 , empty 4 ",
		},
		{"a question without content", chain(`message "message":{"role":"user"}`, user("a")), "2", "empty 1 "},
		{"an image is something", chain(`message "message":{"role":"user","content":[{"type":"text","text":""},{"type":"image","data":"x"}]}`), "1", ""},
		{"text behind a blank block is something", chain(`message "message":{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"a"}]}`), "1", ""},
		{"escapes are looked at", chain(`message "message":{"role":"user","content":"\u0020\n"}`, `message "message":{"role":"user","content":"\u0061"}`), "2", "empty 1 "},
		{"a block with its members in another order", chain(`message "message":{"role":"user","content":[{"text":"a","type":"text"}]}`), "1", ""},
		{"signed reasoning is something", chain(`message "message":{"role":"assistant","content":[{"type":"thinking","thinking":"","thinkingSignature":"s"}],"stopReason":"stop"}`), "1", ""},
		{"an answer without anything", chain(`message "message":{"role":"assistant","content":[{"type":"thinking","thinking":" "}],"stopReason":"stop"}`), "", "empty 1 "},
		{"a call is something", chain(answer("x"), result("x")), "1 2", ""},
		{"an empty result stays", chain(answer("x"), `message "message":{"role":"toolResult","toolCallId":"x","content":[]}`), "1 2", ""},
		{"extensions too", chain(`custom_message "customType":"c","content":" "`, `custom_message "customType":"c","content":"a"`, `message "message":{"role":"custom","content":""}`), "2", "empty 1 , empty 3 "},
		{"executions always say something", chain(`message "message":{"role":"bashExecution","command":"","output":""}`), "1", ""},
		{"the same question at the same time", chain(timed(user("a")), timed(user("a")), user("b")), "1 3", "repeated 2 "},
		{"the same question three times", chain(timed(user("a")), timed(user("a")), timed(user("a"))), "1", "repeated 2 , repeated 3 "},
		{"the same question without a time", chain(user("a"), user("a")), "1 2", ""},
		{"the same question after another", chain(timed(user("a")), user("b"), timed(user("a"))), "1 2 3", ""},
		{"the same turn before its result", chain(turn, turn, result("x")), "1 3", "repeated 2 "},
		{"the same turn behind its result", chain(turn, result("x"), turn, result("x"), user("a")), "1 2 5", "repeated 3 , orphan 4 x"},
		{"a turn that failed is no repetition", chain(timed(ended(StopAborted)), timed(ended(StopAborted)), note), "2~ 3", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := BuildContext(tt.path, ContextOptions{Strict: true})
			if got := shape(ctx); got != tt.want {
				t.Errorf("messages %q, want %q", got, tt.want)
			}
			if got := repairs(ctx); got != tt.repairs {
				t.Errorf("repairs %q, want %q", got, tt.repairs)
			}
			if ctx := BuildContext(tt.path, ContextOptions{}); strings.Contains(repairs(ctx), "empty") || strings.Contains(repairs(ctx), "repeated") {
				t.Errorf("repairs %q without being asked", repairs(ctx))
			}
		})
	}
}

func TestEveryRepairIsASentence(t *testing.T) {
	for _, kind := range []RepairKind{
		RepairInterrupted, RepairOrphan, RepairMoved, RepairUnreadable, RepairEmpty, RepairRepeated, RepairParent, RepairCycle, RepairDuplicateID, RepairTorn,
	} {
		if what := (Repair{Kind: kind, ToolCallID: "x"}).What(); !strings.Contains(what, " ") {
			t.Errorf("%s: %q", kind, what)
		}
	}
	if got := (Repair{Kind: RepairImage, Detail: "as it is"}).What(); got != "as it is" {
		t.Errorf("%q", got)
	}
}

func TestReplaceImages(t *testing.T) {
	notes := map[int]string{0: "a \"note\"", 2: "another"}
	for _, tt := range []struct{ name, line, want string }{
		{
			"blocks of a message", `message "message":{"content":[{"type":"image","data":"x"},{"type":"text","text":"t"},{"type":"image","data":"y"}, {"data":"z","type":"image"}],"role":"user"}`,
			`"message":{"content":[{"type":"text","text":"a \"note\""},{"type":"text","text":"t"},{"type":"image","data":"y"}, {"type":"text","text":"another"}],"role":"user"}`,
		},
		{
			"a message of an extension", `custom_message "content":[{"type":"image","data":"x"}],"customType":"c"`,
			`"content":[{"type":"text","text":"a \"note\""}],"customType":"c"`,
		},
		{
			"images of an execution", `message "message":{"role":"bashExecution","images":[{"type":"image","data":"x"},{"data":"y"},{"data":"z"}],"output":"o"}`,
			`"message":{"role":"bashExecution","images":[{"data":"y"}],"output":"o\na \"note\"\nanother"}`,
		},
		{
			"images of mentioned files", `message "message":{"role":"fileMention","files":[{"path":"p","content":"c","image":{"data":"x"}},{"path":"q","image":{"data":"y"}},{"image":{"data":"z"},"content":""}]}`,
			`"message":{"role":"fileMention","files":[{"path":"p","content":"c\na \"note\"","image":null},{"path":"q","image":{"data":"y"}},{"image":null,"content":"\nanother"}]}`,
		},
		{"nothing to replace", user("a"), `"message":{"role":"user","content":"a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := chain(tt.line)[0]
			got := string(e.ReplaceImages(notes).Raw())
			envelope, _, _ := strings.Cut(string(e.Raw()), `,"message"`)
			if e.Type() == TypeCustomMessage {
				envelope, _, _ = strings.Cut(string(e.Raw()), `,"content"`)
			}
			if want := envelope + "," + tt.want + "}"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
