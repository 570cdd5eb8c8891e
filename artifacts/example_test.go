package artifacts_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
)

// A sink that spills into an artifact, and reading three lines of it back.
func Example() {
	home, err := os.MkdirTemp("", "artifacts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	ctx := context.Background()
	dir := artifacts.Open(filepath.Join(home, "session"), artifacts.Options{Sync: true})

	opts := outputsink.DefaultOptions()
	opts.Open = func() (outputsink.File, error) { return dir.Create(ctx, "bash", artifacts.Provenance{Run: "run-1"}) }
	sink := outputsink.New(opts)
	for i := range 300_000 {
		fmt.Fprintln(sink.Stdout(), i+1)
	}
	if _, err := sink.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := dir.Open(ctx, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	lines, err := r.Lines(ctx, 150_000, 150_002)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(os.Stdout, lines); err != nil {
		log.Fatal(err)
	}
	info := r.Info()
	fmt.Println(info.URL(), info.State, info.Lines, "lines")
	// Output:
	// 150000
	// 150001
	// 150002
	// artifact://0 complete 300000 lines
}

// A subagent's output, and a later one after it was revived.
func ExampleDir_WriteAgent() {
	home, err := os.MkdirTemp("", "artifacts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	ctx := context.Background()
	dir := artifacts.Open(filepath.Join(home, "session"), artifacts.Options{})

	id, err := dir.Reserve(ctx, artifacts.AgentID{}, "Scout", artifacts.Provenance{})
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"Found two bugs.", "Found a third."} {
		a, err := dir.WriteAgent(ctx, id, artifacts.Output{Text: []byte(text)})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(filepath.Base(a.Path), a.URL())
	}
	// Output:
	// 0-Scout.md agent://0-Scout
	// 0-Scout.v2.md agent://0-Scout
}
