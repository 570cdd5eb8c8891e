package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("AGENTRUN_TEST_MAKER") != "" {
		maker()
	}
	if os.Getenv("AGENTRUN_TEST_LEAVER") != "" {
		leaver()
	}
	if os.Getenv("AGENTRUN_TEST_SWEEPER") != "" {
		Sweep()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// maker makes a group with a process in it, says where and who, and is killed.
func maker() {
	t, err := NewTree()
	if err != nil {
		panic(err)
	}
	dir, err := t.Open()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Println(t.Path(), cmd.Process.Pid)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func newTree(t *testing.T) *Tree {
	t.Helper()
	tree, err := NewTree()
	if errors.Is(err, ErrNone) {
		t.Skip("this process can make no control groups:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Remove)
	return tree
}

func TestAGroupIsKilledAndRemovedWithThoseMadeBelowIt(t *testing.T) {
	tree := newTree(t)
	dir, err := tree.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.MkdirAll(tree.Path()+"/below/deeper", 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "setsid sleep 1000 & echo begun; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no process can be started in a group:", err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	tree.Remove()
	if _, err := os.Stat(tree.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("what was in it: %v", err)
	}
	tree.Remove() // once more
}

func TestGroupsOfMakersThatAreGoneAreRemoved(t *testing.T) {
	tree := newTree(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "AGENTRUN_TEST_MAKER=1")
	out, err := cmd.Output()
	if err == nil {
		t.Fatalf("the maker was not killed: %s", out)
	}
	var path string
	var pid int
	if _, err := fmt.Sscan(string(out), &path, &pid); err != nil {
		t.Fatal(err, string(out))
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatal("what it started is gone by itself:", err)
	}
	sweepTrees(treeHome())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
		t.Errorf("what was in it lives: %s", b)
	}
	if _, err := os.Stat(tree.Path()); err != nil {
		t.Errorf("that of a maker that lives: %v", err)
	}
}

func TestASweepRemovesTheGroupsOfRunsWhoseMakersAreGone(t *testing.T) {
	run, err := NewRun()
	if err != nil {
		t.Skip(err)
	}
	defer run.Release()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(filepath.Dir(run.Path()), fmt.Sprintf("%s%d-1-1", runPrefix, gone.Process.Pid))
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	defer syscall.Rmdir(left)
	sweeper := exec.Command("/proc/self/exe") // a process sweeps once
	sweeper.Env = append(os.Environ(), "AGENTRUN_TEST_SWEEPER=1")
	if out, err := sweeper.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(run.Path()); err != nil {
		t.Errorf("that of a maker that lives: %v", err)
	}
}

func TestTheGroupOfAProcessIsFound(t *testing.T) {
	const mounts = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"31 23 0:27 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw\n"
	const nested = "31 23 0:27 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ mounts, own, want string }{
		{mounts, "8:memory:/x\n0::/\n", "/sys/fs/cgroup/unified"},
		{mounts, "0::/user.slice/s\n", "/sys/fs/cgroup/unified/user.slice/s"},
		{mounts, "8:memory:/x\n", ""},
		{nested, "0::/a/b\n", "/sys/fs/cgroup/b"},
		{nested, "0::/c\n", ""}, // of another container
		{"", "0::/\n", ""},
		{"31 - cgroup2\n", "0::/\n", ""},
	} {
		if got := unified([]byte(c.mounts), []byte(c.own)); got != c.want {
			t.Errorf("%q with %q: %q, want %q", c.own, c.mounts, got, c.want)
		}
	}
}

func BenchmarkTree(b *testing.B) {
	if _, err := NewTree(); err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		tree, err := NewTree()
		if err != nil {
			b.Fatal(err)
		}
		dir, err := tree.Open()
		if err != nil {
			b.Fatal(err)
		}
		dir.Close()
		tree.Remove()
	}
}

func TestWhoIsInTheGroupOfARunIsLetGoOf(t *testing.T) {
	newTree(t) // where none can be made
	run, err := NewRun()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := run.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	run.Release()
	if _, err := os.Stat(run.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is there: %v", err)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	if err != nil || strings.Contains(string(groups), runPrefix) {
		t.Errorf("%v, and it is in %s", err, groups)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it was ended: %v", err)
	}
}

func TestAProcessLeavesTheGroupsOfRunsThatItIsIn(t *testing.T) {
	newTree(t)
	run, err := NewRun()
	if err != nil {
		t.Fatal(err)
	}
	defer run.Remove()
	dir, err := run.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "AGENTRUN_TEST_LEAVER=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "0::") || strings.Contains(string(out), runPrefix) {
		t.Errorf("%v, and it was in %s", err, out)
	}
}

// leaver leaves the group that it is in, and says where it is then.
func leaver() {
	if err := LeaveRun(); err != nil {
		panic(err)
	}
	own, _ := os.ReadFile("/proc/self/cgroup")
	_, _ = os.Stdout.Write(own)
	os.Exit(0)
}
