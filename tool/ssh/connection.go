package ssh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/tool/bash"
)

const (
	// maxDir bounds the path of the directory of sockets, in bytes: sockaddr_un has 108, of which the name of a socket
	// takes 21 with its slash, what ssh appends while it makes one 17, and the NUL one.
	maxDir = 108 - 21 - 17 - 1
	// connecting is how long somebody else may take to connect to a host before this process goes on without that.
	connecting = time.Minute
)

// fallback is what the configuration ends with: values for what it leaves open, and what it has asked ssh to send of this
// process's environment is taken back. ConnectTimeout and the others are seconds.
const fallback = `SendEnv -*
Host *
	ConnectTimeout 20
	ServerAliveInterval 10
	ServerAliveCountMax 3
`

// fixed are options that no configuration changes: nobody is asked, nothing of this machine is reachable from the host, and
// the key of a host is one that a person has accepted.
var fixed = []string{
	"BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes",
	"GSSAPIDelegateCredentials=no", "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no", "Tunnel=no", "LogLevel=INFO", "VisualHostKey=no",
}

// odd are characters that mean something in a configuration of ssh, or to the shell that ssh starts for a ProxyJump.
const odd = " \t\n'\"\\%$*?[]{}()<>|&;`~#!"

// Sockets are the directories in which the sockets of clients without Options.Dir may be. Whoever can open one runs
// scripts on the hosts: what runs in a sandbox must not. The first is there from now on, unless it cannot be made.
func Sockets() []string {
	_, _ = (&Client{}).directory()
	return candidates()
}

// candidates are the directories for the sockets, the first that can be used first.
func candidates() []string {
	var dirs []string
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) && !strings.ContainsAny(run, odd) {
		if own := filepath.Join(run, "agentrun-ssh"); len(own) <= maxDir && private(run) == nil {
			dirs = append(dirs, own)
		}
	}
	return append(dirs, fmt.Sprintf("/tmp/agentrun-ssh-%d", os.Getuid()))
}

// directory is that of the sockets, which nobody else may look into.
func (c *Client) directory() (string, error) {
	dir := c.o.Dir
	if dir == "" {
		dir = candidates()[0]
	}
	if len(dir) > maxDir || strings.ContainsAny(dir, odd) {
		return "", fmt.Errorf("the directory %s cannot hold the sockets of ssh: give one of %d letters at most, without spaces and quotes", dir, maxDir)
	}
	if err := durable.MkdirAll(nil, dir); err != nil {
		return "", fmt.Errorf("making the directory %s for the sockets of ssh: %w", dir, err)
	}
	if err := private(dir); err != nil {
		return "", fmt.Errorf("the directory %s for the sockets of ssh %w: remove it, or set XDG_RUNTIME_DIR", dir, err)
	}
	return dir, nil
}

// private returns what keeps a directory from being this user's alone.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return errors.New("is no directory")
	case !ok || int(owner.Uid) != os.Getuid():
		return errors.New("belongs to another user")
	case info.Mode().Perm()&0o077 != 0:
		return errors.New("is open to other users")
	}
	return nil
}

// configuration is the text of the file that ssh reads: that of the user and that of the system, or the one that is named.
func (c *Client) configuration() (string, error) {
	files := []string{"~/.ssh/config", "/etc/ssh/ssh_config"}
	if c.o.Config != "" {
		abs, err := filepath.Abs(c.o.Config)
		if err != nil {
			return "", fmt.Errorf("finding the configuration of ssh %s: %w", c.o.Config, err)
		}
		if strings.ContainsAny(abs, "\"\\\n*?[") {
			return "", fmt.Errorf("the configuration of ssh %s has a name that ssh would misread: give it another", abs)
		}
		if _, err := os.Stat(abs); err != nil {
			return "", fmt.Errorf("reading the configuration of ssh: %w: name another as ssh.config in config.json", err)
		}
		files = []string{abs}
	}
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "Include \"%s\"\n", f)
	}
	return b.String() + fallback, nil
}

// way is how to reach a host.
type way struct {
	client                  *Client
	program, config, socket string
	host                    Host
}

// way finds it, and writes the configuration down unless it is there.
func (c *Client) way(h Host) (*way, error) {
	dir, err := c.directory()
	if err != nil {
		return nil, err
	}
	text, err := c.configuration()
	if err != nil {
		return nil, err
	}
	// Another configuration may mean another host by the name, and other known keys.
	key := sha256.Sum256([]byte(c.program + "\n" + text + "\n" + h.String()))
	own := sha256.Sum256([]byte(text))
	w := &way{client: c, program: c.program, host: h, socket: filepath.Join(dir, hex.EncodeToString(key[:10])), config: filepath.Join(dir, "config-"+hex.EncodeToString(own[:6]))}
	if there, err := durable.ReadFile(nil, w.config, 1<<20); err == nil && string(there) == text {
		return w, nil
	}
	if err := durable.WriteFile(nil, w.config, false, []byte(text)); err != nil {
		return nil, fmt.Errorf("writing the configuration for ssh: %w", err)
	}
	return w, nil
}

// argv is a call of ssh, whose own words go to log.
func (w *way) argv(log *os.File, options ...string) []string {
	argv := []string{w.program, "-F", w.config, "-E", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), log.Fd()), "-T"}
	for _, o := range append(options, fixed...) {
		argv = append(argv, "-o", o)
	}
	return append(append(argv, "-o", "ControlPath="+w.socket), w.host.args()...)
}

// alive reports whether somebody has a connection to the host, which others may use.
func (w *way) alive() bool {
	conn, err := net.DialTimeout("unix", w.socket, 2*time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// connect makes sure that there is a connection that all share. One process at a time makes one; the others wait for it.
func (w *way) connect(ctx context.Context, persist time.Duration) error {
	if w.alive() {
		return nil
	}
	lock, err := durable.OpenLock(nil, w.socket+".lock")
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", w.host, err)
	}
	defer lock.Close()
	if err := lock.Lock(ctx, connecting); err != nil && !errors.Is(err, durable.ErrLockTimeout) {
		return fmt.Errorf("connecting to %s: %w", w.host, err)
	}
	if w.alive() {
		return nil
	}
	log, err := memoryFile()
	if err != nil {
		return err
	}
	defer log.Close()
	argv := w.argv(log, "ControlMaster=yes", "ControlPersist="+strconv.Itoa(int(persist.Seconds())))
	argv = append(argv[:1:1], append([]string{"-n", "-N", "-f"}, argv[1:]...)...)
	// Not bash.Process, which ends what is left in the process group: a ProxyCommand stays as long as the connection.
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(withhold.Environ(), environment...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w: install OpenSSH's client, or name it as ssh.program in config.json", w.program, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		return fmt.Errorf("connecting to %s: %w", w.host, ctx.Err())
	}
	if err != nil {
		return w.client.explain(w.host, said(log))
	}
	return nil
}

// ask has the host begin and end a session on the connection that there is, and waits for that. Whether it could is no
// matter: nothing else is known then.
func (w *way) ask(ctx context.Context, log *os.File) {
	argv := append(w.argv(log, "ControlMaster=no"), "exit")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(withhold.Environ(), environment...)
	cmd.Dir = "/"
	_ = cmd.Run()
}

// environment is what ssh gets besides that of this process: it opens no window to ask for a password.
var environment = []string{"SSH_ASKPASS_REQUIRE=never"}

// memoryFile is a file without a name.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("agentrun-ssh", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "ssh"), nil
}

// maxSaid bounds what of ssh's words is read, in bytes.
const maxSaid = 16 << 10

// said is what ssh wrote last.
func said(log *os.File) string {
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	text := make([]byte, min(size, maxSaid))
	n, _ := log.ReadAt(text, size-int64(len(text)))
	return string(text[:n])
}

// find finds the client.
func find(program string) (string, error) {
	if program == "" {
		program = "ssh"
	}
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &Error{Kind: ErrNoClient, Code: bash.CodeNotFound, Text: fmt.Sprintf("finding OpenSSH's client: %v: install it (openssh-client), or name it as ssh.program in config.json", err)}
	}
	return path, nil
}
