package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/supervisor"
)

// TestEveryCommandOfTheReadmeRuns runs the README's commands in their order, as a
// newcomer would: in the repository, with an empty home.
func TestEveryCommandOfTheReadmeRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program; run without -short")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	bin, home := t.TempDir(), t.TempDir()
	t.Cleanup(func() { // of the shell that goes on
		if _, err := supervisor.StopAll(context.Background(), filepath.Join(home, "agentrun")); err != nil {
			t.Error(err)
		}
	})
	env := append(os.Environ(), "HOME="+home, "XDG_DATA_HOME=", "AGENTRUN_HOME="+filepath.Join(home, "agentrun"), "AGENTRUN_SESSION=",
		"PATH="+bin+":"+os.Getenv("PATH"), "GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOFLAGS=-buildvcs=false")
	run := func(t *testing.T, command string) string {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = root, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s\n%s\n%v", command, out, err)
		}
		return string(out)
	}
	run(t, "go build -o "+bin+"/agentrun ./cmd/agentrun")
	count := 0
	for i, block := range strings.Split(string(readme), "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "sh\n") {
			continue
		}
		for _, command := range strings.Split(strings.TrimSpace(strings.TrimPrefix(block, "sh\n")), "\n") {
			if strings.HasPrefix(command, "go test") {
				continue // it runs this very test
			}
			// There is no makefile here to run the tests of.
			command = strings.Replace(command, "-- make test", "-- true", 1)
			out := run(t, command)
			count++
			if count == 1 && !strings.HasSuffix(out, lineOf(t, string(readme), "[Showing lines ")+"\n") {
				t.Errorf("the notice is not the one in the README:\n%s", out[max(0, len(out)-200):])
			}
		}
	}
	if count < 10 {
		t.Fatalf("only %d commands found", count)
	}
}

func lineOf(t *testing.T, text, prefix string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	t.Fatalf("no line begins with %q", prefix)
	return ""
}

func goEnv(t *testing.T, name string) string {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
