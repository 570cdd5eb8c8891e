package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

func TestNobodyRewindsASessionThatAnAgentLoopDrives(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	home := filepath.Join(dir, "home")
	if err := os.WriteFile("a", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(stdout, stderr *strings.Builder) *environment {
		return &environment{stdin: os.Stdin, stdout: stdout, stderr: stderr, home: home, json: true}
	}
	var out, said strings.Builder
	c := checkpointCommand{environment: env(&out, &said), name: "first"}
	if err := c.run(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	info, _, err := m.Newest(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	driver, err := s.Drive()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("a", []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rewindCommand{environment: env(&out, &said)}
	r.Changed = true
	if err := r.run(t.Context(), "first"); err == nil || !strings.Contains(err.Error(), "driven") {
		t.Errorf("error %v", err)
	}
	if data, _ := os.ReadFile("a"); string(data) != "2" {
		t.Errorf("it holds %q", data)
	}
	if err := driver.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context(), "first"); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile("a"); string(data) != "1" {
		t.Errorf("it holds %q", data)
	}
}
