package grep_test

import (
	"context"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/tool/grep"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Lines of the files of a directory that match an expression.
func ExampleSearch() {
	dir, err := os.MkdirTemp("", "project")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if _, err := grep.Search(context.Background(), w, nil, grep.Options{Pattern: `^func \w+`}, os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// main.go:3:func main() {}
}
