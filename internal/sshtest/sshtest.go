// Package sshtest runs an sshd for tests: OpenSSH's, on a free port of the loopback, with keys of its own, as the current user.
//
// A Server leaves the files of the user and of the system alone: its [Server.Config] is a configuration of ssh that names all that
// a client needs, and the host "box". Only root has to have the directory and the user that sshd wants for privilege
// separation, which the package openssh-server of Debian makes; the directory is made when it is not there.
package sshtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
)

// separation is the empty directory that sshd wants as root.
const separation = "/run/sshd"

// Server is a running sshd.
type Server struct {
	Dir    string // of all its files, and of nothing else
	Config string // of a client
	Known  string // the known hosts of Config
	Port   int

	t    testing.TB
	sshd string
	cmd  *exec.Cmd
	log  string
}

// Start starts a server, which ends with the test. It skips the test where there is no sshd. Options are lines of
// sshd_config(5) that come first.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir()}
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if _, err := os.Stat(path); err == nil {
			s.sshd = path
		}
	}
	for _, need := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(need); err != nil || s.sshd == "" {
			t.Skip("there is no sshd, ssh and ssh-keygen here: install openssh-server and openssh-client")
		}
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll(separation, 0o755); err != nil {
			t.Skip("sshd needs a directory:", err)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s.Config, s.Known, s.log = s.path("ssh_config"), s.path("known"), s.path("sshd.log")
	s.Port = freePort(t)
	s.keygen("host")
	s.keygen("id")
	// With SHLVL above 1 a bash that sshd starts does not read the user's .bashrc, which takes its time and may print.
	s.write("sshd_config", strings.Join(options, "\n")+fmt.Sprintf(`
Port %d
ListenAddress 127.0.0.1
HostKey %s
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
AcceptEnv *
SetEnv SHLVL=5
AllowAgentForwarding yes
X11Forwarding yes
`, s.Port, s.path("host"), s.path("authorized")))
	s.write("ssh_config", fmt.Sprintf(`Host box other
	HostName 127.0.0.1
	Port %d
	User %s
	IdentityFile %s
	IdentitiesOnly yes
	UserKnownHostsFile %s
	GlobalKnownHostsFile /dev/null
`, s.Port, me.Username, s.path("id"), s.Known))
	key, err := os.ReadFile(s.path("id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	s.write("authorized", string(key))
	s.Accept()
	s.Listen()
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) keygen(name string) {
	s.t.Helper()
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path(name)).CombinedOutput(); err != nil {
		s.t.Fatalf("making a key: %v: %s", err, out)
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Listen starts the sshd, and waits until it listens.
func (s *Server) Listen() {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.sshd, "-D", "-e", "-f", s.path("sshd_config"))
	s.cmd.Stderr = log
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port)); err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Skipf("sshd does not listen: %s", s.Log())
		}
	}
}

// Stop ends the sshd and its connections.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	s.Cut()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Cut kills the processes of the connections, as when the machine had lost them, and returns how many there were.
func (s *Server) Cut() int {
	members, err := process.Descendants(s.cmd.Process.Pid)
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for _, m := range members {
		if name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.PID)); err == nil && filepath.Base(name) == "sshd" {
			_ = m.Signal(syscall.SIGKILL)
			n++
		}
	}
	return n
}

// Pause stops the processes of the connections, so that nothing comes and nothing goes, or lets them go on.
func (s *Server) Pause(stop bool) {
	members, err := process.Descendants(s.cmd.Process.Pid)
	if err != nil {
		s.t.Fatal(err)
	}
	sig := syscall.SIGCONT
	if stop {
		sig = syscall.SIGSTOP
	}
	for _, m := range members {
		if name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.PID)); err == nil && filepath.Base(name) == "sshd" {
			_ = m.Signal(sig)
		}
	}
}

// Accept makes the host's key a known one.
func (s *Server) Accept() {
	s.t.Helper()
	key, err := os.ReadFile(s.path("host.pub"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("known", fmt.Sprintf("[127.0.0.1]:%d %s", s.Port, key))
}

// Forget leaves no key known.
func (s *Server) Forget() { s.write("known", "") }

// Rekey gives the host another key, and starts it anew.
func (s *Server) Rekey() {
	s.t.Helper()
	s.Stop()
	for _, name := range []string{"host", "host.pub"} {
		if err := os.Remove(s.path(name)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.keygen("host")
	s.Listen()
}

// Refuse takes the key of the user away from those that the host lets in.
func (s *Server) Refuse() { s.write("authorized", "") }

// Log is what the sshd said.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.log)
	return string(text)
}

// Logins is how many connections were let in.
func (s *Server) Logins() int { return bytes.Count([]byte(s.Log()), []byte("Accepted publickey")) }
