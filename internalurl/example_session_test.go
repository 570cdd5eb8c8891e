package internalurl_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/read"
)

// A command in a session: its view is bounded, and every line of its output has an address.
func ExampleForSession() {
	home, err := os.MkdirTemp("", "agentrun")
	check(err)
	defer os.RemoveAll(home)
	ctx := context.Background()

	sessions, err := session.OpenManager(home, session.Options{})
	check(err)
	s, err := sessions.Create(ctx, ".", session.CreateOptions{})
	check(err)
	defer s.Close()
	kept := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID})
	run, err := bash.Run(ctx, bash.Options{Argv: []string{"seq", "1", "300000"}, Log: s, Artifacts: kept})
	check(err)
	fmt.Println(run.Summary.Notice)

	router := internalurl.ForSession(sessions, s, nil)
	page, err := read.Read(ctx, router, run.Summary.Artifact+":150000-150002", read.Options{})
	check(err)
	fmt.Print(page)

	// Output:
	// [Showing lines 1-1200 and 298201-300000 of 300000; 297000 lines (1.9 MB) between them: artifact://0]
	// 150000
	// 150001
	// 150002
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
