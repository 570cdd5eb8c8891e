package transcript_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/transcript"
)

func ExampleWrite() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "transcript")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := session.OpenManager(dir, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.Create(ctx, dir, session.CreateOptions{Title: "A question"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(ctx, entry.UserMessage{Content: entry.PlainText("What is in here?")}); err != nil {
		log.Fatal(err)
	}
	var page strings.Builder
	if _, err := transcript.Write(ctx, &page, transcript.Markdown, s, nil, transcript.Options{}); err != nil {
		log.Fatal(err)
	}
	title, _, _ := strings.Cut(page.String(), "\n")
	fmt.Println(title)
	fmt.Println(strings.Contains(page.String(), "What is in here?"))
	// Output:
	// # A question
	// true
}
