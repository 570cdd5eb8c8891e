package bundle_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// A session goes from the home of one user to that of another.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bundle")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	here, err := session.OpenManager(filepath.Join(dir, "here"), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := here.Create(ctx, dir, session.CreateOptions{Title: "on the road"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(ctx, entry.UserMessage{Content: entry.PlainText("hello")}); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := bundle.Export(ctx, &file, here, s, bundle.ExportOptions{}); err != nil {
		log.Fatal(err)
	}

	there, err := session.OpenManager(filepath.Join(dir, "there"), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	made, err := bundle.Import(ctx, there, bytes.NewReader(file.Bytes()), bundle.ImportOptions{
		Map: []session.PathMap{{Old: s.CWD(), New: "/home/bob/work"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(made.ID == s.ID(), made.CWD, made.Entries)
	// Output: true /home/bob/work 2
}
