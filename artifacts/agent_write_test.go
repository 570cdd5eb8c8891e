package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
)

// swept is a file system on which somebody removes all temporaries before a name is given.
type swept struct {
	durable.FS
	dir   string
	again *int
}

func (s swept) RenameNoReplace(from, to string) error {
	if *s.again--; *s.again >= 0 {
		left, _ := filepath.Glob(filepath.Join(s.dir, ".tmp-*"))
		for _, name := range left {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return s.FS.RenameNoReplace(from, to)
}

func TestAnOutputIsKeptWhoseTemporaryWasSweptAway(t *testing.T) {
	path, once := t.TempDir(), 1
	d := Open(path, Options{FS: swept{durable.OS, path, &once}})
	if _, err := d.WriteAgent(t.Context(), agentID(t, "0-A"), Output{Text: []byte("text"), JSON: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if got, err := outputOf(t, d, "0-A"); err != nil || got != "text" || once != -1 {
		t.Fatalf("%q, %v, %d", got, err, once)
	}
	noTemporaries(t, path, nil, 0)
}

func TestOutputsWrittenAtOnceByTwoProcessesHaveAllTheirVersions(t *testing.T) {
	path := t.TempDir()
	var group sync.WaitGroup
	for i := range 8 {
		d := Open(path, Options{}) // as another process has
		group.Go(func() {
			for j := range 4 {
				text := fmt.Sprint(i, j)
				a, err := d.WriteAgent(context.Background(), AgentID{"0-A"}, Output{Text: []byte(text)})
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(a.Path); err != nil || string(got) != text {
					t.Errorf("version %d is %q, %v, and was written as %s", a.Version, got, err, text)
				}
			}
		})
	}
	group.Wait()
	a, err := Open(path, Options{}).LookupAgent(t.Context(), AgentID{"0-A"}, 0)
	if err != nil || a.Version != 32 || len(a.Versions) != 32 {
		t.Fatal(a, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".tmp-") {
			t.Errorf("left %s", e.Name())
		}
	}
}
