package model_test

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// echo is a model that says what it is told.
type echo struct{}

func (echo) Info() model.Info { return model.Info{Provider: "example", API: "example", ID: "echo"} }

func (e echo) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return model.Assemble(ctx, e.Info(), req, func(_ context.Context, a *model.Answer) error {
		last := req.Messages[len(req.Messages)-1]
		return errors.Join(a.Text(0, "You said: "), a.Text(0, entry.Text(last)), a.Finish(entry.StopStop))
	})
}

// A model is a function that reports what comes; Assemble makes the events and the answer.
func ExampleAssemble() {
	req := &model.Request{Messages: []entry.Message{entry.UserText("hello")}}
	for event, err := range (echo{}).Stream(context.Background(), req) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch event := event.(type) {
		case model.TextDelta:
			fmt.Printf("delta %q\n", event.Text)
		case model.Stop:
			fmt.Printf("%s: %q\n", event.Message.StopReason, event.Message.Content.Text())
		}
	}
	// Output:
	// delta "You said: "
	// delta "hello"
	// stop: "You said: hello"
}
