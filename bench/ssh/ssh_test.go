// Package ssh_test measures scripts on another host beside the client alone, both over a connection that is there. The host is
// this machine.
package ssh_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/internal/sshtest"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/ssh"
)

// open returns what runs scripts on a host, and the socket of its connection.
func open(b *testing.B) (*ssh.Remote, *sshtest.Server, string) {
	b.Helper()
	s := sshtest.Start(b)
	dir, err := os.MkdirTemp("/tmp", "agentrun-bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	client, err := ssh.New(ssh.Options{Config: s.Config, Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	host, err := ssh.ParseHost("box")
	if err != nil {
		b.Fatal(err)
	}
	r := client.On(host, "")
	run(b, r, ":")
	sockets, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, socket := range sockets {
		if info, err := os.Lstat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
			b.Cleanup(func() { _ = exec.Command("ssh", "-F", "/dev/null", "-S", socket, "-O", "exit", "box").Run() })
			return r, s, socket
		}
	}
	b.Fatal("the connection has no socket")
	return nil, nil, ""
}

func run(b *testing.B, r *ssh.Remote, script string) {
	exit, err := r.RunScript(context.Background(), &bash.Script{Text: script, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil || exit.Code != 0 {
		b.Fatalf("status %d, %v, %v", exit.Code, exit.Start, err)
	}
}

// peer runs a script with the client alone.
func peer(b *testing.B, s *sshtest.Server, socket, script string) {
	cmd := exec.Command("ssh", "-F", s.Config, "-S", socket, "-T", "box", "bash -c '"+script+"'")
	cmd.Stdout = io.Discard
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkCall(b *testing.B) {
	r, s, socket := open(b)
	b.Run("ssh", func(b *testing.B) {
		for b.Loop() {
			peer(b, s, socket, ":")
		}
	})
	b.Run("agentrun", func(b *testing.B) {
		for b.Loop() {
			run(b, r, ":")
		}
	})
}

func BenchmarkOutput(b *testing.B) {
	if testing.Short() {
		b.Skip("64 MiB of output")
	}
	const size = 64 << 20
	script := fmt.Sprintf("head -c %d /dev/zero", size)
	r, s, socket := open(b)
	b.Run("ssh", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			peer(b, s, socket, script)
		}
	})
	b.Run("agentrun", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			run(b, r, script)
		}
	})
}
