package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/supervisor"
)

// TestRunAsksAServer: a run with a provider's protocol and a key, from the command line to the
// log. The key is in none of what it prints or keeps, also when the server tells it.
func TestRunAsksAServer(t *testing.T) {
	const key = "sk-planted-8c1f0e55aa"
	var mu sync.Mutex
	var bodies []string
	answers := []string{
		`data: {"id":"1","choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"read","arguments":"{\"path\":\"note.txt\"}"}}]}}]}` + "\n\n" +
			`data: {"id":"1","choices":[{"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n",
		`data: {"id":"2","choices":[{"delta":{"content":"It says hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":5}}` + "\n\ndata: [DONE]\n\n",
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+key || len(bodies) > len(answers) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s"}}`, key)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answers[len(bodies)-1])
	}))
	defer s.Close()

	dir, home := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("hello from the note\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := supervisor.StopAll(context.Background(), filepath.Join(home, "data")); err != nil {
			t.Error(err)
		}
	})
	asks := []string{"--new", "run", "--model", "openai:test-model", "What does note.txt say?"}
	agentrun := func(args ...string) (stdout, stderr string, status int) {
		var out, log bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "agentrun", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &log
		cmd.Env = append(os.Environ(), "AGENTRUN_HOME="+filepath.Join(home, "data"), "HOME="+home, "XDG_STATE_HOME="+home, "OPENAI_API_KEY="+key, "OPENAI_BASE_URL="+s.URL+"/v1")
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return out.String(), log.String(), status
	}
	stdout, stderr, status := agentrun(asks...)
	if status != 0 || !strings.Contains(stdout, "It says hello.") {
		t.Fatalf("status %d\n%s\n%s", status, stdout, stderr)
	}
	mu.Lock() // the server may still be closing its side
	if len(bodies) != 2 || !strings.Contains(bodies[1], "hello from the note") {
		t.Errorf("%d requests: %s", len(bodies), bodies)
	}
	mu.Unlock()
	told := stdout + stderr

	mu.Lock()
	bodies = nil
	mu.Unlock()
	stdout, stderr, status = agentrun(append(asks, "--detach")...)
	told += stdout + stderr
	if status != 0 {
		t.Fatalf("detached: status %d\n%s\n%s", status, stdout, stderr)
	}
	said, _, status := agentrun("jobs", "wait", "--status", "0")
	told += said
	if said, _, _ = agentrun("jobs", "tail", "0"); status != 0 || !strings.Contains(said, "It says hello.") {
		t.Errorf("detached: status %d\n%s", status, said)
	}
	told += said
	stdout, stderr, status = agentrun(asks...) // which is refused
	if status != 1 || !strings.Contains(stderr, "does not take the key") {
		t.Errorf("status %d\n%s\n%s", status, stdout, stderr)
	}
	told += stdout + stderr
	_, _ = supervisor.StopAll(t.Context(), filepath.Join(home, "data")) // nothing writes from now on
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(key)) {
			t.Errorf("%s holds the key", path)
		}
		return err
	})
	if err != nil || strings.Contains(told, key) {
		t.Errorf("the key is told: %v\n%s", err, told)
	}
}
