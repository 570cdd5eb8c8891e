package shell

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/tool/bash"
)

// TestManyCallsGrowNothing counts descriptors and memory of all three processes: this one, the shim and the shell.
func TestManyCallsGrowNothing(t *testing.T) {
	calls := 10_000
	if testing.Short() {
		calls = 1000
	}
	s := open(t, Options{})
	some := func(n int) {
		for i := range n {
			if got, exit := run(t, s, fmt.Sprintf("x=%d; echo $x", i)); exit.Code != 0 || got != fmt.Sprintf("%d\n", i) {
				t.Fatalf("call %d: %q, %+v", i, got, exit)
			}
		}
	}
	some(500)
	pids := []int{os.Getpid(), s.live.shim.Root(), s.live.shim.PID()}
	fds, memory := make([]int, 3), make([]int64, 3)
	for i, pid := range pids {
		fds[i], memory[i] = openFiles(t, pid), resident(t, pid)
	}
	heap := liveHeap()
	some(calls)
	if after := liveHeap(); after > heap+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap, after)
	}
	for i, pid := range pids {
		// A shell that has told the end of a script still closes what it told it through.
		after, end := openFiles(t, pid), time.Now().Add(10*time.Second)
		for after > fds[i] && time.Now().Before(end) {
			after = openFiles(t, pid)
		}
		if after > fds[i] {
			t.Errorf("process %d of us, the shim, the shell: %d descriptors, then %d", i, fds[i], after)
		}
		if after := resident(t, pid); i > 0 && after > memory[i]+4<<20 {
			t.Errorf("process %d of us, the shim, the shell: %d bytes resident, then %d", i, memory[i], after)
		}
	}
	if s.live.shim.PID() != pids[2] {
		t.Error("the shell is another one")
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// TestTenThousandChildrenAreLeftAndEnded: the result does not wait for them, and closing the shell ends them all.
func TestTenThousandChildrenAreLeftAndEnded(t *testing.T) {
	children := 10_000
	if testing.Short() {
		children = 300
	}
	s := open(t, Options{})
	var out bytes.Buffer
	exit, err := s.RunScript(t.Context(), &bash.Script{
		Text: fmt.Sprintf("mkfifo %[1]s; exec 8<>%[1]s; for ((i = 0; i < %[2]d / 100; i++)); do (for ((j = 0; j < 100; j++)); do read x <&8 & done) done; echo done", filepath.Join(t.TempDir(), "fifo"), children), Stdout: &out,
	})
	if err != nil || out.String() != "done\n" || exit.Code != 0 {
		t.Fatalf("%.200q, %+v, %v", out.String(), exit, err)
	}
	group := s.live.shim.PID()
	if n := ofGroup(t, group); n != children+1 {
		t.Errorf("%d processes run, not %d and the shell", n, children)
	}
	if got, exit := run(t, s, "echo more"); got != "more\n" || exit.Code != 0 {
		t.Errorf("the next script: %.200q, %+v", got, exit)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := ofGroup(t, group); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// ofGroup counts the living of a process group.
func ofGroup(t *testing.T, group int) int {
	t.Helper()
	names, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		if s, err := process.ReadStat(pid); err == nil && s.Group == group && !s.Dead() {
			n++
		}
	}
	return n
}
