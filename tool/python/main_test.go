package python

import (
	"bytes"
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/tool/bash"
)

func TestMain(m *testing.M) {
	shim.Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process sleeps for a second at its end
	goleak.VerifyTestMain(m)
}

// kernel is one that is closed with the test; the test is skipped where there is no Python.
func kernel(t testing.TB, o Options) *Kernel {
	t.Helper()
	if _, err := find(o.Path, "/", os.Environ()); err != nil {
		t.Skip("there is no Python here:", err)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	k, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

// ran is what came of a cell.
type ran struct {
	bash.Exit
	Outcome
	out string
}

func (r ran) result() string {
	if r.Result == nil {
		return "none"
	}
	return *r.Result
}

// cell runs one.
func cell(t testing.TB, k Runner, code string, change ...func(*Cell)) ran {
	t.Helper()
	var out bytes.Buffer
	c := &Cell{Script: bash.Script{Text: code, Stdout: &out, Stderr: &out}}
	for _, f := range change {
		f(c)
	}
	exit, outcome, err := k.RunCell(context.Background(), c)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return ran{exit, outcome, out.String()}
}
