package shell

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool/bash"
)

// boxed is a shell in a sandbox, with a workspace.
func boxed(t *testing.T, p sandbox.Policy) (s *Shell, workspace string) {
	t.Helper()
	workspace = t.TempDir()
	p.Roots = []string{workspace}
	s, err := New(Options{Dir: workspace, Sandbox: &p})
	if errors.Is(err, sandbox.ErrImpossible) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, workspace
}

// script runs one and returns what it printed.
func script(t *testing.T, s *Shell, c bash.Script) (string, bash.Exit) {
	t.Helper()
	var out strings.Builder
	c.Stdout = &out
	exit, err := s.RunScript(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), exit
}

func TestAShellInASandboxGoesOn(t *testing.T) {
	s, workspace := boxed(t, sandbox.Policy{Mode: sandbox.Workspace, NetOff: true})
	for _, c := range []struct{ script, want string }{
		{"x=1; f() { echo f $x; }; cd /tmp; echo kept >file; pwd", "/tmp"},
		{"f; cat file; echo y >" + workspace + "/y; (echo no >/etc/agentrun-test) 2>/dev/null || echo refused", "f 1\nkept\nrefused"},
		{"x=2; exit 3", ""},
		{"f; pwd; cat file", "f 2\n/tmp\nkept"},
		{"exec bash -c 'echo another'", "another"},
		{"f", "f 2"},
	} {
		got, exit := script(t, s, bash.Script{Text: c.script})
		if got != c.want {
			t.Errorf("%s prints %q (%+v)", c.script, got, exit)
		}
	}
	if data, err := os.ReadFile(filepath.Join(workspace, "y")); string(data) != "y\n" {
		t.Errorf("%q, %v", data, err)
	}
}
