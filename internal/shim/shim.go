// Package shim starts a command below a small process that owns everything which the command starts, also what left
// its process group, its session and its parent.
//
// The small process, the shim, is this program executed anew. It is a subreaper (PR_SET_CHILD_SUBREAPER of prctl(2)):
// a process below it whose parent has ended becomes its child, so that nobody gets out of the tree. [Main] has to be
// the first call of main, and of TestMain.
//
// # Promises
//
//   - [Shim.Signal] reaches every process of the tree.
//   - When the command has ended, what it left running is ended: SIGTERM, half a second later SIGKILL.
//   - When the owner of the Shim dies, however that happens, all of the tree gets SIGKILL. When the shim itself is
//     killed, the command is (PR_SET_PDEATHSIG), and, where cgroup v2 is mounted and writable, all of the tree; elsewhere what
//     the command had started goes to the next subreaper above, or to init.
//   - SIGKILL goes to a control group as a whole where there is one, so that nobody forks faster than it comes.
//   - The command inherits the files that it was given, and nothing else of the owner.
//
// # Protocol
//
// Owner and shim share a socket, file 3 of the shim. The shim writes lines: "started PID", "failed ERRNO", "exited
// STATUS UTIME STIME MAXRSS" (a wait status, microseconds twice, KiB), "left N" (processes that were ended). The owner writes "signal N". An end of file
// at either side means that the other is gone.
package shim

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/sandbox"
)

// name is argument 0 of a shim. No program is called so.
const name = "agentrun-shim"

// ErrNoMain is returned by Start in a program whose main does not call Main.
var ErrNoMain = errors.New("this program can not own processes: its main has to call shell.Main first")

var hasMain bool

// Main must be called before anything else in main. In a process that was started as a shim it does not return.
func Main() {
	if len(os.Args) > 0 && os.Args[0] == name {
		os.Exit(serve(os.Args[1:]))
	}
	hasMain = true
}

// Command is what to start.
type Command struct {
	Path string   // an absolute path
	Argv []string // with argument 0
	Dir  string   // an absolute path
	Env  []string
	// Files are those of the command by number; a nil entry is a file that is not open. The caller keeps its own
	// and closes them.
	Files []*os.File
	// Terminal makes Files[0] the controlling terminal of the command.
	Terminal bool
	// Box is where the command runs; nil is nowhere in particular. The shim is outside.
	Box *sandbox.Box
}

// Status is how a command ended.
type Status struct {
	Wait         syscall.WaitStatus
	User, System time.Duration // of the command and of those it waited for
	PeakMemory   int64         // bytes that one process of those had resident at most
}

// Shim is a started command. Its methods may be called concurrently.
type Shim struct {
	cmd    *exec.Cmd
	socket *os.File
	tree   *tree
	pid    int
	exited chan struct{}
	done   chan struct{}
	mu     sync.Mutex // guards writes to socket
	status Status     // written before exited is closed
	left   int        // written before done is closed
}

// Start starts the command. An error of execve(2) is returned as syscall.Errno.
func Start(c Command) (*Shim, error) {
	if !hasMain {
		return nil, ErrNoMain
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	launch, err := c.enter()
	if err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return nil, err
	}
	attr := ""
	if launch != nil {
		attr = launch.Attr.String()
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "shim"), os.NewFile(uintptr(pair[1]), "shim")
	defer theirs.Close()
	var open []string // the numbers that the files will have, in the order of ExtraFiles
	extra := []*os.File{theirs}
	for fd, f := range c.Files {
		if f != nil {
			open = append(open, strconv.Itoa(fd))
			extra = append(extra, f)
		}
	}
	group, tree := "", newTree()
	if tree != nil {
		group = tree.Path()
	}
	args := []string{name, strings.Join(open, ","), strconv.FormatBool(c.Terminal), group, attr, c.Path}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append(args, c.Argv...), Dir: c.Dir, Env: c.Env,
		ExtraFiles: extra, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	roots.mu.Lock() // a shim is enrolled before anybody takes it for a stray
	err = cmd.Start()
	if err == nil {
		roots.enroll(cmd.Process.Pid)
	}
	roots.mu.Unlock()
	if err != nil {
		ours.Close()
		tree.remove()
		launch.Abandon()
		return nil, fmt.Errorf("starting a process to own others: %w", err)
	}
	s := &Shim{cmd: cmd, socket: ours, tree: tree, exited: make(chan struct{}), done: make(chan struct{})}
	lines := bufio.NewScanner(ours)
	if err := s.begin(lines); err != nil {
		ours.Close()
		_ = cmd.Wait()
		tree.remove()
		dismiss(cmd.Process.Pid, false)
		launch.Abandon()
		return nil, err
	}
	go s.follow(lines)
	if launch != nil {
		if err := launch.Began(s.pid); err != nil {
			<-s.done // it has told why
			return nil, err
		}
	}
	return s, nil
}

// enter makes a command that has a box one that goes into it first.
func (c *Command) enter() (*sandbox.Launch, error) {
	if c.Box == nil {
		return nil, nil
	}
	var keep []int
	for fd, f := range c.Files {
		if fd > 2 && f != nil {
			keep = append(keep, fd)
		}
	}
	report := max(3, len(c.Files))
	launch, err := c.Box.Launch(sandbox.Command{Path: c.Path, Argv: c.Argv, Dir: c.Dir, Env: c.Env, Report: report, Keep: keep})
	if err != nil {
		return nil, err
	}
	c.Path, c.Argv, c.Env = launch.Path, launch.Argv, launch.Env
	files := make([]*os.File, report+1)
	copy(files, c.Files)
	files[report] = launch.Report
	c.Files = files
	return launch, nil
}

// begin waits for the first line.
func (s *Shim) begin(lines *bufio.Scanner) error {
	if !lines.Scan() {
		return errors.New("starting a process to own others: it ended before it began")
	}
	word, rest, _ := strings.Cut(lines.Text(), " ")
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil:
		return fmt.Errorf("starting a process to own others: it says %q", lines.Text())
	case word == "failed":
		return syscall.Errno(n)
	}
	s.pid = n
	return nil
}

// follow reads what the shim tells until it is gone.
func (s *Shim) follow(lines *bufio.Scanner) {
	defer close(s.done)
	told := false
	for lines.Scan() {
		var wait, left int
		var utime, stime, maxrss int64
		if n, _ := fmt.Sscanf(lines.Text(), "exited %d %d %d %d", &wait, &utime, &stime, &maxrss); n == 4 && !told {
			s.status.Wait = syscall.WaitStatus(wait)
			s.status.User, s.status.System = time.Duration(utime)*time.Microsecond, time.Duration(stime)*time.Microsecond
			s.status.PeakMemory = maxrss << 10
			told = true
			close(s.exited)
		} else if n, _ := fmt.Sscanf(lines.Text(), "left %d", &left); n == 1 {
			s.left = left
		}
	}
	_ = s.cmd.Wait()
	s.tree.remove() // what a shim that was killed left in it too
	dismiss(s.cmd.Process.Pid, !told)
	if !told { // somebody killed the shim, and the command with it
		s.status.Wait = syscall.WaitStatus(syscall.SIGKILL)
		close(s.exited)
	}
	s.mu.Lock()
	s.socket.Close()
	s.mu.Unlock()
}

// PID is that of the command, which leads a session and a process group.
func (s *Shim) PID() int { return s.pid }

// Root is the process that owns the tree.
func (s *Shim) Root() int { return s.cmd.Process.Pid }

// Exited is closed when the command has ended.
func (s *Shim) Exited() <-chan struct{} { return s.exited }

// Done is closed when nothing of the tree is left.
func (s *Shim) Done() <-chan struct{} { return s.done }

// Status is how the command ended. It may be called when Exited is closed.
func (s *Shim) Status() Status { return s.status }

// Left is how many processes the command left running, which were ended. It may be called when Done is closed.
func (s *Shim) Left() int { return s.left }

// Signal sends sig to every process of the tree.
func (s *Shim) Signal(sig syscall.Signal) { s.say(fmt.Sprintf("signal %d\n", int(sig))) }

// Kill ends all of the tree and waits until it is gone, or for so long at most. It reports whether it is.
func (s *Shim) Kill(within time.Duration) bool {
	s.mu.Lock()
	_ = unix.Shutdown(int(s.socket.Fd()), unix.SHUT_WR)
	s.mu.Unlock()
	s.tree.kill()
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // somebody may have stopped it
	return s.wait(within)
}

// Wait waits until nothing of the tree is left, for so long at most, and reports whether that is so.
func (s *Shim) wait(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-s.done:
		return true
	case <-t.C:
		return false
	}
}

func (s *Shim) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.socket.WriteString(line) // an error means that it is gone
}
