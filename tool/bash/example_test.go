package bash_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
)

// A command that prints too much for anybody to read: the view is bounded, and its notice tells where the rest is.
func ExampleRun() {
	home, err := os.MkdirTemp("", "agentrun")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)

	ctx := context.Background()
	sessions, err := session.OpenManager(home, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := sessions.Create(ctx, ".", session.CreateOptions{Title: "counting"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	kept := artifacts.Open(s.ArtifactsDir(), artifacts.Options{Sync: true, LoggedMax: s.MaxArtifactID})

	res, err := bash.Run(ctx, bash.Options{Argv: []string{"seq", "1", "300000"}, Timeout: time.Minute, Log: s, Artifacts: kept})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", res.Code)
	fmt.Println(res.Summary.Notice)

	whole, err := kept.Open(ctx, res.Finish.Artifact.ID)
	if err != nil {
		log.Fatal(err)
	}
	defer whole.Close()
	line, err := whole.Lines(ctx, 150000, 150000)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(os.Stdout, line); err != nil {
		log.Fatal(err)
	}
	// Output:
	// exit code 0
	// [Showing lines 1-1200 and 298201-300000 of 300000; 297000 lines (1.9 MB) between them: artifact://0]
	// 150000
}
