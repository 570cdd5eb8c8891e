package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// A session is made, appended to, and opened again by its id.
func ExampleManager_Create() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	manager, err := session.OpenManager(home, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := manager.Create(ctx, ".", session.CreateOptions{Title: "fix the pool"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	_, err = s.Append(ctx, entry.MessageBody{Message: json.RawMessage(`{"role":"user","content":"why does it leak?","timestamp":1}`)})
	if err != nil {
		log.Fatal(err)
	}

	info, err := manager.Find(ctx, s.ID())
	if err != nil {
		log.Fatal(err)
	}
	view, err := manager.View(ctx, info.Path)
	if err != nil {
		log.Fatal(err)
	}
	defer view.Close()
	c, err := view.Context(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Title, len(c.Messages))
	// Output: fix the pool 1
}

// A watch hands out what is there and then what any process appends.
func ExampleSession_Watch() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	manager, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		log.Fatal(err)
	}
	s, err := manager.Create(ctx, ".", session.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	_, err = s.AppendAll(ctx, entry.ModelChange{Model: "vendor/model"}, entry.SessionInfo{Name: "counting"})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range s.Watch(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Type())
		if e.Type() == entry.TypeSessionInfo {
			break
		}
	}
	// Output:
	// model_change
	// session_info
}

// A session that was left by a crash goes on: its context is made valid, and what was
// repaired is told.
func ExampleSession_Resume() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "agentrun")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		panic(err)
	}
	s, err := m.Create(ctx, home, session.CreateOptions{})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	for _, b := range []entry.Body{
		entry.UserText("Run the tests."),
		entry.AssistantMessage{
			Content: entry.Blocks(entry.ToolCallBlock{ID: "call-1", Name: "bash"}), StopReason: entry.StopToolUse,
		},
		// Here the power went.
	} {
		if _, err := s.Append(ctx, b); err != nil {
			panic(err)
		}
	}
	resumed, err := s.Resume(ctx, session.ResumeOptions{})
	if err != nil {
		panic(err)
	}
	for _, m := range resumed.Context.Messages {
		fmt.Println(m.Role)
	}
	for _, r := range resumed.Repairs {
		fmt.Println(r.Kind+":", r.What())
	}
	// Output:
	// user
	// assistant
	// toolResult
	// interrupted: tool call "call-1" has no result; one that says so was put in
}
