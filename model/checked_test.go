package model_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

func TestAConversationThatGrowsIsCheckedAsAWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := rapid.Custom(func(t *rapid.T) entry.Message {
			id := fmt.Sprintf("c%d", rapid.IntRange(0, 3).Draw(t, "id"))
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				return entry.UserText(rapid.SampledFrom([]string{"a", "b", " "}).Draw(t, "text"))
			case 1:
				return entry.AssistantMessage{Content: entry.Blocks(entry.TextBlock{Text: "a"})}
			case 2:
				return entry.AssistantMessage{Content: entry.Blocks(entry.ToolCallBlock{ID: id, Name: "t", Arguments: json.RawMessage("{}")})}
			}
			return entry.ToolResultMessage{ToolCallID: id, ToolName: "t", Content: entry.PlainText("r")}
		})
		all := rapid.SliceOfN(message, 1, 20).Draw(t, "messages")
		var checked model.Checked
		for n := 0; n < len(all); {
			n = rapid.IntRange(n+1, len(all)).Draw(t, "upto")
			got := model.Check(&model.Request{Messages: all[:n], Checked: &checked}, model.Info{})
			want := model.Check(&model.Request{Messages: all[:n]}, model.Info{})
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("after %d messages: %v, checked at once: %v", n, got, want)
			}
		}
	})
}
