package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attempts are ways out of a sandbox. Each gets the directory outside and a process outside, and returns nil when it
// came through.
var attempts = map[string]func(outside string, pid int) error{
	"create outside":    func(o string, _ int) error { return os.WriteFile(o+"/new", []byte("x"), 0o600) },
	"write outside":     func(o string, _ int) error { return os.WriteFile(o+"/precious", []byte("x"), 0o600) },
	"truncate outside":  func(o string, _ int) error { return os.Truncate(o+"/precious", 0) },
	"remove outside":    func(o string, _ int) error { return os.Remove(o + "/precious") },
	"chmod outside":     func(o string, _ int) error { return os.Chmod(o+"/precious", 0o777) },
	"chown outside":     func(o string, _ int) error { return os.Chown(o+"/precious", os.Getuid(), os.Getgid()) },
	"utimes outside":    func(o string, _ int) error { return unix.Utimes(o+"/precious", make([]unix.Timeval, 2)) },
	"setxattr outside":  func(o string, _ int) error { return unix.Setxattr(o+"/precious", "user.x", []byte("x"), 0) },
	"rename to outside": func(o string, _ int) error { return moved(o + "/moved") },
	"rename from outside": func(o string, _ int) error {
		return os.Rename(o+"/precious", "taken")
	},
	"hard link from outside": func(o string, _ int) error {
		if err := os.Link(o+"/precious", "linked"); err != nil {
			return err
		}
		return os.WriteFile("linked", []byte("x"), 0)
	},
	"symlink to outside": func(o string, _ int) error {
		if err := os.Symlink(o+"/precious", "link"); err != nil {
			return err
		}
		return os.WriteFile("link", []byte("x"), 0)
	},
	"symlinked directory to outside": func(o string, _ int) error {
		if err := os.Symlink(o, "dir"); err != nil {
			return err
		}
		return os.WriteFile("dir/new", []byte("x"), 0o600)
	},
	"read-only descriptor reopened": func(o string, _ int) error {
		f, err := os.Open(o + "/precious")
		if err != nil {
			return err
		}
		defer f.Close()
		return os.WriteFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), []byte("x"), 0)
	},
	"root of another process": func(o string, pid int) error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/root%s/precious", pid, o), []byte("x"), 0)
	},
	"directory of another process": func(o string, pid int) error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/cwd/new", pid), []byte("x"), 0o600)
	},
	"memory of another process": func(_ string, pid int) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err == nil {
			f.Close()
		}
		return err
	},
	"environment of another process": func(_ string, pid int) error {
		_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err
	},
	"descriptors of another process": func(_ string, pid int) error {
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", pid))
		return err
	},
	"process_vm_readv": func(_ string, pid int) error {
		var b [1]byte
		_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
		if errors.Is(err, unix.EFAULT) {
			return nil // it was let in
		}
		return err
	},
	"ptrace":             func(_ string, pid int) error { return unix.PtraceSeize(pid) },
	"signal":             func(_ string, pid int) error { return syscall.Kill(pid, 0) },
	"pidfd of another":   func(_ string, pid int) error { return pidfd(pid) },
	"enter mounts of 1":  func(string, int) error { return enterNamespace("/proc/1/ns/mnt", unix.CLONE_NEWNS) },
	"enter network of 1": func(string, int) error { return enterNamespace("/proc/1/ns/net", unix.CLONE_NEWNET) },
	"mount":              func(string, int) error { return unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "") },
	"remount":            func(string, int) error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	"unmount":            func(string, int) error { return unix.Unmount("/tmp", unix.MNT_DETACH) },
	"chroot":             func(string, int) error { return unix.Chroot("/") },
	"mknod":              func(string, int) error { return unix.Mknod("disk", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) },
	"mount in a new user namespace": func(string, int) error {
		cmd := exec.Command("unshare", "-Um", "mount", "-o", "remount,bind,rw", "/")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	},
	"disk": func(string, int) error {
		found, _ := filepath.Glob("/dev/[vsn]d*")
		if more, _ := filepath.Glob("/dev/nvme*"); len(found)+len(more) == 0 {
			return os.ErrNotExist
		}
		return nil
	},
	"kernel memory":     func(string, int) error { return readable("/dev/mem") },
	"settings of proc":  func(string, int) error { return os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/x"), 0) },
	"sysrq":             func(string, int) error { return os.WriteFile("/proc/sysrq-trigger", []byte("h"), 0) },
	"control groups":    func(string, int) error { return os.Mkdir("/sys/fs/cgroup/memory/escape", 0o700) },
	"leave the group":   func(string, int) error { return os.WriteFile("/sys/fs/cgroup/pids/cgroup.procs", []byte("0"), 0) },
	"setuid":            func(string, int) error { return setuidGains() },
	"socket in /run":    func(string, int) error { return dial("unix", os.Getenv("ESCAPE_RUN")) },
	"abstract socket":   func(string, int) error { return dial("unix", os.Getenv("ESCAPE_ABSTRACT")) },
	"shared memory":     func(string, int) error { return sharedMemory() },
	"inherited file":    func(string, int) error { return inherited() },
	"tmp of everybody":  func(string, int) error { return readable(os.Getenv("ESCAPE_TMP")) },
	"shared files":      func(string, int) error { return readable(os.Getenv("ESCAPE_SHARED")) },
	"hidden directory":  func(string, int) error { return readable(os.Getenv("ESCAPE_HIDDEN") + "/socket") },
	"protected file":    func(string, int) error { return os.WriteFile(os.Getenv("ESCAPE_PROTECTED")+"/log", []byte("x"), 0o600) },
	"protected removed": func(string, int) error { return os.RemoveAll(os.Getenv("ESCAPE_PROTECTED")) },
}

// offline are attempts that come through where the network is on.
var offline = map[string]func(outside string, pid int) error{
	"tcp": func(string, int) error { return dial("tcp", os.Getenv("ESCAPE_TCP")) },
	"udp": func(string, int) error {
		c, err := net.Dial("udp", "192.0.2.1:53")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	},
	"dns": func(string, int) error {
		c, err := net.Dial("udp", "1.1.1.1:53")
		if err == nil {
			c.Close()
		}
		return err
	},
	"raw packets": func(string, int) error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"interfaces": func(string, int) error {
		all, err := net.Interfaces()
		if err == nil && len(all) == 1 && all[0].Name == "lo" && all[0].Flags&net.FlagUp != 0 {
			return errors.New("there is lo alone")
		}
		return err
	},
}

func escape(args []string) int {
	if len(args) != 2 {
		return 2
	}
	pid, _ := strconv.Atoi(args[1])
	status := 0
	for _, list := range []map[string]func(string, int) error{attempts, offline} {
		for name, attempt := range list {
			if err := attempt(args[0], pid); err != nil {
				fmt.Printf("%s: refused: %v\n", name, err)
			} else {
				fmt.Printf("%s: ESCAPED\n", name)
				status = 1
			}
		}
	}
	return status
}

func moved(to string) error {
	if err := os.WriteFile("mine", nil, 0o600); err != nil {
		return err
	}
	return os.Rename("mine", to)
}

func pidfd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.PidfdGetfd(fd, 0, 0)
	return err
}

func enterNamespace(path string, kind int) error {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, kind)
}

func readable(path string) error {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

func dial(network, address string) error {
	c, err := net.Dial(network, address)
	if err == nil {
		c.Close()
	}
	return err
}

// setuidGains runs a setuid program of root, which the test has put in the workspace's neighbourhood.
func setuidGains() error {
	out, err := exec.Command(os.Getenv("ESCAPE_SETUID"), "-c", "grep -E 'CapEff|Uid' /proc/self/status").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(string(own), line) {
			return nil
		}
	}
	return errors.New("nothing is gained")
}

func sharedMemory() error {
	id, _ := strconv.Atoi(os.Getenv("ESCAPE_SHM"))
	_, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
	return err
}

// inherited looks for files that nobody has given.
func inherited() error {
	for fd := 3; fd < 256; fd++ {
		to, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/sys/fs/cgroup") {
			return nil
		}
	}
	return errors.New("there is none")
}

func TestNoAttemptGetsOut(t *testing.T) {
	for _, mode := range []Mode{ReadOnly, Workspace} {
		t.Run(string(mode), func(t *testing.T) {
			ways(t, func(t *testing.T) { tryAll(t, mode) })
		})
	}
}

// tryAll makes every attempt in a box.
func tryAll(t *testing.T, mode Mode) {
	outside, workspace := place(t)
	protected, hidden := filepath.Join(workspace, "home"), filepath.Join(workspace, "home", "run")
	if err := os.MkdirAll(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{hidden + "/socket", protected + "/log"} {
		if err := os.WriteFile(file, []byte("log\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, outside)
	neighbour := exec.Command("sleep", "1000")
	neighbour.Dir = outside
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = neighbour.Process.Kill(); _ = neighbour.Wait() }()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@escape-%d-%s", os.Getpid(), t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	t.Setenv("ESCAPE_RUN", "/run/nothing")
	if path := fmt.Sprintf("/run/agentrun-test-%d.sock", os.Getpid()); unix.Access("/run", unix.W_OK) == nil {
		run, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		t.Setenv("ESCAPE_RUN", path)
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }()
	t.Setenv("ESCAPE_TCP", tcp.Addr().String())
	t.Setenv("ESCAPE_ABSTRACT", abstract.Addr().String())
	t.Setenv("ESCAPE_SHM", strconv.Itoa(id))
	t.Setenv("ESCAPE_PROTECTED", protected)
	t.Setenv("ESCAPE_HIDDEN", hidden)
	for variable, dir := range map[string]string{"ESCAPE_TMP": "/tmp", "ESCAPE_SHARED": "/dev/shm"} {
		f, err := os.CreateTemp(dir, "agentrun-test")
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		defer os.Remove(f.Name())
		t.Setenv(variable, f.Name())
	}
	t.Setenv("ESCAPE_SETUID", setuidShell(t, workspace))
	leak, err := unix.Open(outside+"/precious", unix.O_RDWR, 0) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := box(t, Policy{Mode: mode, NetOff: true, Roots: []string{workspace}, Protected: []string{outside, protected}, Hidden: []string{hidden}})
	got := command(t, b, workspace, exe, exe, "escape", outside, strconv.Itoa(neighbour.Process.Pid))
	t.Log(got.output)
	if strings.Contains(got.output, "ESCAPED") || got.status.ExitStatus() != 0 {
		t.Errorf("status %d", got.status.ExitStatus())
	}
	if n := strings.Count(got.output, ": refused: "); n != len(attempts)+len(offline) {
		t.Errorf("%d attempts were refused, of %d", n, len(attempts)+len(offline))
	}
	if after := listing(t, outside); after != before {
		t.Errorf("outside there was\n%s\nand now there is\n%s", before, after)
	}
}

// setuidShell is a shell with the setuid bit of who runs the test.
func setuidShell(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "setuid-sh")
	if err := errors.Join(os.WriteFile(path, data, 0o755), os.Chmod(path, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	return path
}

// listing is what is in a directory, but for the workspace.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %v %v %q\n", e.Name(), info.Mode(), info.ModTime(), data)
	}
	return b.String()
}

// TestTheAttemptsComeThroughWithoutASandbox shows that they are refused by the sandbox and by nothing else: those that
// harm nobody are made without one.
func TestTheAttemptsComeThroughWithoutASandbox(t *testing.T) {
	for _, name := range []string{
		"create outside", "write outside", "truncate outside", "remove outside", "chmod outside", "chown outside", "utimes outside",
		"rename to outside", "rename from outside", "hard link from outside", "symlink to outside", "symlinked directory to outside",
		"read-only descriptor reopened", "root of another process", "directory of another process", "memory of another process",
		"environment of another process", "descriptors of another process", "process_vm_readv", "signal", "pidfd of another",
	} {
		t.Run(name, func(t *testing.T) {
			outside, workspace := place(t)
			t.Chdir(workspace)
			neighbour := exec.Command("sleep", "1000")
			neighbour.Dir = outside
			if err := neighbour.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = neighbour.Process.Kill(); _ = neighbour.Wait() }()
			if err := attempts[name](outside, neighbour.Process.Pid); err != nil {
				t.Error(err)
			}
		})
	}
}
