package shim

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/sandbox"
)

// How long what a command left running has to end.
const (
	leaving  = 100 * time.Millisecond // by itself
	leftover = 500 * time.Millisecond // from SIGTERM to SIGKILL
)

// serve is the life of a shim. Its arguments are the numbers of the files, whether there is a terminal, the directory of
// the control group ("" for none), what a sandbox needs (the same), and the command.
func serve(args []string) int {
	runtime.LockOSThread() // the command is killed when this thread ends, which is when the process does
	socket := os.NewFile(3, "owner")
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		syscall.CloseOnExec(3) // a kernel before 5.11; what the owner's parent left open stays open
	}
	if len(args) < 6 {
		return 2
	}
	own := openTree(args[2])
	// What a terminal sends, and a closed socket, is not for the shim.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	if err := process.Subreap(); err != nil {
		fmt.Fprintf(socket, "failed %d\n", errno(err))
		return 1
	}
	pid, err := start(args, own)
	if err != nil {
		fmt.Fprintf(socket, "failed %d\n", errno(err))
		return 1
	}
	fmt.Fprintf(socket, "started %d\n", pid)
	orphaned := make(chan struct{})
	go obey(socket, own, orphaned)
	await(socket, pid)
	left := clear(own, orphaned)
	own.remove()
	fmt.Fprintf(socket, "left %d\n", left)
	return 0
}

// start starts the command. This process lets go of the files.
func start(args []string, own *tree) (int, error) {
	numbers, terminal, path, argv := args[0], args[1] == "true", args[4], args[5:]
	box, err := sandbox.ParseAttr(args[3])
	if err != nil {
		return 0, syscall.EINVAL
	}
	var files []uintptr
	next := 4
	if numbers != "" {
		for _, n := range strings.Split(numbers, ",") {
			fd, err := strconv.Atoi(n)
			if err != nil {
				return 0, syscall.EINVAL
			}
			for len(files) <= fd {
				files = append(files, ^uintptr(0))
			}
			syscall.CloseOnExec(next)
			files[fd] = uintptr(next)
			next++
		}
	}
	attr := &syscall.ProcAttr{
		Env: os.Environ(), Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Setctty: terminal},
	}
	box.Apply(attr.Sys)
	pid, err := own.start(path, argv, attr)
	for fd := 4; fd < next; fd++ {
		syscall.Close(fd)
	}
	return pid, err
}

// obey does what the owner says, and ends everything when that is gone.
func obey(socket *os.File, own *tree, orphaned chan<- struct{}) {
	lines := bufio.NewScanner(socket)
	for lines.Scan() {
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "signal %d", &n); err == nil {
			own.signal(syscall.Signal(n))
		}
	}
	close(orphaned)
	for own.signal(syscall.SIGKILL) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// signal sends sig to every process below this one and returns how many there were. SIGKILL goes to those who came
// meanwhile too: everybody is stopped before anybody is killed, so that nobody is left to start another.
func (t *tree) signal(sig syscall.Signal) int {
	if sig == syscall.SIGKILL {
		t.kill() // those who left it are looked for
		stopped := map[int]uint64{}
		for fresh := true; fresh; {
			fresh = false
			members, _ := process.Descendants(os.Getpid())
			for _, m := range members {
				if start, ok := stopped[m.PID]; !ok || start != m.Start {
					_ = m.Signal(syscall.SIGSTOP)
					stopped[m.PID], fresh = m.Start, true
				}
			}
		}
	}
	members, _ := process.Descendants(os.Getpid())
	for _, m := range members {
		_ = m.Signal(sig)
		if sig != syscall.SIGKILL {
			_ = m.Signal(syscall.SIGCONT) // a stopped process would keep it for later
		}
	}
	return len(members)
}

// await reaps whoever ends, until the command has, and tells how that ended.
func await(socket *os.File, pid int) {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		got, err := syscall.Wait4(-1, &status, 0, &usage)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case got == pid:
			fmt.Fprintf(socket, "exited %d %d %d %d\n", status, usage.Utime.Nano()/1000, usage.Stime.Nano()/1000, usage.Maxrss)
			return
		}
	}
}

// clear ends what is left and returns how many there were.
func clear(own *tree, orphaned <-chan struct{}) int {
	if reap(leaving, orphaned) {
		return 0
	}
	left := own.signal(syscall.SIGTERM)
	if !reap(leftover, orphaned) {
		for own.signal(syscall.SIGKILL); !reap(leftover, nil); {
			own.signal(syscall.SIGKILL)
		}
	}
	return left
}

// reap reaps until there is nobody left, for so long at most or until hurry is closed, and reports whether there is
// nobody. There is no waiting for a time in wait4(2), so it looks, at growing distances.
func reap(within time.Duration, hurry <-chan struct{}) bool {
	end := time.Now().Add(within)
	for pause := time.Millisecond / 4; ; {
		got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case got > 0 || errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return true // ECHILD
		case time.Now().After(end):
			return false
		}
		select {
		case <-hurry:
			return false
		case <-time.After(pause):
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// errno is the number of what an error of the system says.
func errno(err error) int {
	var n syscall.Errno
	if errors.As(err, &n) {
		return int(n)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return int(syscall.ENOENT)
	}
	return int(syscall.EIO)
}
