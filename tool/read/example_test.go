package read_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/tool/read"
)

// Three lines of a file, and how to go on.
func ExampleRead() {
	dir, err := os.MkdirTemp("", "read")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chdir(dir); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "build.log"), []byte(strings.Repeat("compiling\n", 100)), 0o600); err != nil {
		log.Fatal(err)
	}
	p, err := read.Read(context.Background(), nil, "build.log", read.Options{Offset: 10, Limit: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p)
	// Output:
	// compiling
	// compiling
	//
	// [Showing lines 10-11 of 100. Use build.log:12 to continue]
}
