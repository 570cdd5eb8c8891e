package internalurl_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
)

// scratch is a session that has artifacts and nothing else.
type scratch struct{ dir string }

func (scratch) ID() string                               { return "01a1fa9b-9d2c-7c3e-8a4f-0123456789ab" }
func (s scratch) ArtifactsDir() string                   { return s.dir }
func (scratch) Metadata(context.Context) ([]byte, error) { return []byte(`{}`), nil }
func (scratch) EntryJSON(context.Context, string) ([]byte, error) {
	return nil, internalurl.ErrNoEntry
}

// A subagent's structured output: whole, and one value of it.
func Example() {
	home, err := os.MkdirTemp("", "internalurl")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	ctx := context.Background()
	session := scratch{filepath.Join(home, "session")}
	dir := artifacts.Open(session.dir, artifacts.Options{})
	id, err := dir.Reserve(ctx, artifacts.AgentID{}, "Scout", artifacts.Provenance{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := dir.WriteAgent(ctx, id, artifacts.Output{
		Text: []byte("Two bugs.\n"), JSON: []byte(`{"bugs":[{"file":"a.go"},{"file":"b.go"}]}`),
	}); err != nil {
		log.Fatal(err)
	}

	router := internalurl.NewRouter(internalurl.Sources{Session: session})
	for _, url := range []string{"agent://0-Scout", "agent://0-Scout?q=.bugs[1].file", "agent://0-Scout/bugs/0/file", "agent://1-Other"} {
		res, err := router.Open(ctx, url)
		if err != nil {
			fmt.Println(err)
			continue
		}
		size, err := res.Size()
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(io.NewSectionReader(res, 0, size))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %q\n", res.ContentType, text)
		if err := res.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// text/markdown "Two bugs.\n"
	// text/markdown "b.go"
	// text/markdown "a.go"
	// Not found: 1-Other
	// Available: 0-Scout
}

// What a URL may be, and what is wrong with others.
func ExampleParse() {
	for _, raw := range []string{"artifact://3:10-20,15-30:raw", "agent://../x", "artifact://3:5-3"} {
		u, err := internalurl.Parse(raw)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(u, u.Artifact, u.Selector.Ranges)
	}
	// Output:
	// artifact://3:raw:10-30 3 [{10 30}]
	// agent://../x: Path traversal (..) is not allowed
	// Invalid range 5-3: end must be >= start.
}
