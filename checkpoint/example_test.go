package checkpoint_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/session"
)

// fileRecorder is what a tool asks for that changes files; it need not know of sessions.
type fileRecorder interface {
	Before(ctx context.Context, path string) error
	After(ctx context.Context, path string) error
}

var _ fileRecorder = (*checkpoint.Recorder)(nil)

// write is a tool that replaces a file.
func write(ctx context.Context, r fileRecorder, name, text string) error {
	if err := r.Before(ctx, name); err != nil {
		return err // what cannot be undone is not done
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return err
	}
	return r.After(ctx, name)
}

// A tool that edits files is given a Recorder: each file it makes or changes can be
// brought back to any entry of the session.
func ExampleRecorder_Before() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "project")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := session.OpenManager(filepath.Join(dir, ".home"), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.Create(ctx, dir, session.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	r := checkpoint.New(m, s, checkpoint.Options{})

	if err := write(ctx, r, filepath.Join(dir, "made.txt"), "by the tool"); err != nil {
		log.Fatal(err)
	}
	plan, err := r.Plan(ctx, "", checkpoint.PlanOptions{}) // before the first entry
	if err != nil {
		log.Fatal(err)
	}
	for _, it := range plan.Items {
		fmt.Println(it.Action, filepath.Base(it.Path)+":", it.Reason)
	}
	// Output:
	// delete made.txt: it was made since
}

// A tool records a file before and after it changes it; later the change is undone.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "project")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := session.OpenManager(filepath.Join(dir, ".home"), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.Create(ctx, dir, session.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	r := checkpoint.New(m, s, checkpoint.Options{})

	name := filepath.Join(dir, "greeting")
	if err := os.WriteFile(name, []byte("hello"), 0o644); err != nil {
		log.Fatal(err)
	}
	begin, err := r.Checkpoint(ctx, "begin", name)
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Before(ctx, name); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("good morning"), 0o644); err != nil {
		log.Fatal(err)
	}
	if err := r.After(ctx, name); err != nil {
		log.Fatal(err)
	}

	plan, err := r.Plan(ctx, begin.Entry, checkpoint.PlanOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, it := range plan.Items {
		fmt.Println(filepath.Base(it.Path), it.Action)
	}
	if _, err := r.Apply(ctx, plan); err != nil {
		log.Fatal(err)
	}
	data, err := os.ReadFile(name)
	fmt.Println(string(data), err)
	// Output:
	// greeting restore
	// hello <nil>
}
