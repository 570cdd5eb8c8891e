package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentrun/agentrun/internal/sshtest"
)

// TestScriptOnAHost runs the scripts that need an sshd: $CONFIG is a configuration of ssh for the host "box", and "other" is
// the same one.
func TestScriptOnAHost(t *testing.T) {
	server := sshtest.Start(t)
	sockets, err := os.MkdirTemp("/tmp", "agentrun-run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		names, _ := filepath.Glob(filepath.Join(sockets, "agentrun-ssh", "*"))
		for _, name := range names {
			if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSocket != 0 {
				_ = exec.Command("ssh", "-F", "/dev/null", "-o", "ControlPath="+name, "-O", "exit", "box").Run()
			}
		}
		os.RemoveAll(sockets)
	})
	p := scripts(t)
	p.Dir = "testdata/host"
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("CONFIG", server.Config)
		env.Setenv("KNOWN", server.Known)
		env.Setenv("SSH_PORT", strconv.Itoa(server.Port))
		env.Setenv("XDG_RUNTIME_DIR", sockets)
		return setup(env)
	}
	testscript.Run(t, p)
}
