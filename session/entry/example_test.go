package entry_test

import (
	"fmt"

	"github.com/agentrun/agentrun/session/entry"
)

// The bodies of a short conversation, and the context at its end. A session makes
// the envelopes and writes the lines; here they are made by hand.
func Example() {
	call := entry.ToolCallBlock{ID: "call_1", Name: "bash", Arguments: []byte(`{"command":"ls"}`)}
	bodies := []entry.Body{
		entry.ModelChange{Model: "anthropic/claude-sonnet-4-5"},
		entry.UserMessage{Content: entry.PlainText("What is in here?"), Timestamp: 1},
		entry.AssistantMessage{
			Content:  entry.Blocks(entry.TextBlock{Text: "I'll look."}, call),
			Provider: "anthropic", Model: "claude-sonnet-4-5", StopReason: entry.StopToolUse, Timestamp: 2,
		},
	}
	var path []entry.Entry
	for i, b := range bodies {
		env := entry.Envelope{Type: b.EntryType(), ID: fmt.Sprint(i), HasParent: i > 0, Parent: fmt.Sprint(i - 1)}
		line, err := entry.AppendFields(fmt.Appendf(nil, `{"type":%q,"id":%q`, env.Type, env.ID), b)
		if err != nil {
			fmt.Println(err)
			return
		}
		path = append(path, entry.New(append(line, '}'), env))
	}

	ctx := entry.BuildContext(path, entry.ContextOptions{})
	fmt.Println("model:", ctx.Settings.DefaultModel())
	for _, m := range ctx.Messages {
		msg, err := m.Message()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q: %s\n", m.Role, m.ToolCallIDs, entry.Text(msg))
	}
	for _, r := range ctx.Repairs {
		fmt.Println("repaired:", r.Kind, r.ToolCallID)
	}
	// Output:
	// model: anthropic/claude-sonnet-4-5
	// user []: What is in here?
	// assistant ["call_1"]: I'll look.
	// toolResult ["call_1"]: Interrupted: no result of this tool call was recorded. It may or may not have run.
	// repaired: interrupted call_1
}
