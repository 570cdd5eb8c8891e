package script_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

func Example() {
	m, err := script.New("demo.jsonl", strings.NewReader(`
{"agent":"main","say":[{"text":"I look. "},{"call":"read","args":{"path":"go.mod"}}]}
{"agent":"main","expect":{"results":[{"text":"module"}]},"say":[{"text":"It is a Go module."}]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	req := &model.Request{Agent: "main", Messages: []entry.Message{entry.UserText("What is this?")}}
	for event, err := range m.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch event := event.(type) {
		case model.TextDelta:
			fmt.Printf("text: %q\n", event.Text)
		case model.Stop:
			call := event.Message.Content.ToolCalls()[0]
			fmt.Println("call:", call.ID, call.Name, string(call.Arguments))
		}
	}
	// Output:
	// text: "I look. "
	// call: call_2_0_1 read {"path":"go.mod"}
}
