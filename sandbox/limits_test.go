package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
)

// limitNames are those of what was reached.
func limitNames(all []Reached) []string {
	var names []string
	for _, r := range all {
		names = append(names, r.Limit)
	}
	return names
}

// grouped skips where limits are not held by control groups.
func grouped(t *testing.T, b *Box) {
	t.Helper()
	if b.group == nil {
		t.Skip("this user can make no control groups")
	}
}

func TestMemoryIsBoundedForAllTogether(t *testing.T) {
	b := box(t, Policy{Limits: Limits{Memory: 64 << 20}})
	grouped(t, b)
	got := in(t, b, "/", `hog() { head -c 30000000 /dev/zero | tail -c 30000000 >/dev/null; }; hog & hog & hog & hog & wait; head -c 200000000 /dev/zero | tail -c 190000000 >/dev/null; echo $?`)
	if !slices.Contains(limitNames(got.reached), LimitMemory) || !strings.Contains(got.output, "137") {
		t.Errorf("%+v", got)
	}
	if got = in(t, b, "/", "echo fine"); got.output != "fine" || got.reached != nil {
		t.Errorf("the next one: %+v", got)
	}
}

func TestMemoryOfOneProcessIsBoundedWithoutControlGroups(t *testing.T) {
	b := box(t, Policy{Limits: Limits{Memory: 64 << 20}})
	if b.group != nil {
		t.Skip("this user can make control groups")
	}
	got := in(t, b, "/", `while x+=$(head -c 1000000 /dev/zero | tr '\0' a); do :; done`)
	if !slices.Equal(limitNames(got.reached), []string{LimitMemory}) {
		t.Errorf("%.300q %+v", got.output, got.reached)
	}
}

func TestMemoryOfAllIsLookedAtWithoutControlGroups(t *testing.T) {
	b := box(t, Policy{Limits: Limits{Memory: 64 << 20}})
	if b.group != nil {
		t.Skip("this user can make control groups")
	}
	got := in(t, b, "/", `for i in 1 2 3 4 5 6; do { x=$(head -c 15000000 /dev/zero | tr '\0' a); sleep 1000; } & done; wait; echo not reached`)
	if !slices.Equal(limitNames(got.reached), []string{LimitMemory}) || strings.Contains(got.output, "not reached") {
		t.Errorf("%.300q %+v", got.output, got.reached)
	}
	if got = in(t, b, "/", "echo fine"); got.output != "fine" || got.reached != nil {
		t.Errorf("the next one: %+v", got)
	}
}

func TestAForkBombIsBounded(t *testing.T) {
	for _, mode := range []Mode{Off, ReadOnly} {
		t.Run(string(mode), func(t *testing.T) {
			b := box(t, Policy{Mode: mode, Limits: Limits{Processes: 40, CPU: 20 * time.Second}})
			script := `bomb() { bomb | bomb & }; bomb >/dev/null 2>&1; while ((SECONDS < 1)); do :; done; exit 0`
			if mode == Off && b.group == nil {
				script = `for i in {1..60}; do sleep 5 & done 2>/dev/null; exit 0` // nobody could end a bomb
			}
			most := 0
			done, counted := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(counted)
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Millisecond):
						most = max(most, len(b.members()))
					}
				}
			}()
			got := in(t, b, "/", script)
			close(done)
			<-counted
			if most > 42 && (b.group != nil || mode != Off) { // else it is what the user has, who may have had others that ended
				t.Errorf("there were %d processes", most)
			}
			if b.group != nil && !slices.Contains(limitNames(got.reached), LimitProcesses) {
				t.Errorf("%+v", got)
			}
			b.end("")
			if left := b.members(); len(left) > 0 {
				t.Errorf("%d are left", len(left))
			}
		})
	}
}

func TestProcessorTimeIsBoundedForAllTogether(t *testing.T) {
	b := box(t, Policy{Limits: Limits{CPU: time.Second}})
	script := `for i in 1 2 3; do (while :; do :; done) & done; wait; echo not reached`
	got := in(t, b, "/", script)
	if !slices.Equal(limitNames(got.reached), []string{LimitCPU}) || strings.Contains(got.output, "not reached") {
		t.Errorf("%+v", got)
	}
}

func TestTheSizeOfAFileIsBounded(t *testing.T) {
	_, workspace := place(t)
	b := box(t, Policy{Mode: Workspace, Roots: []string{workspace}, Limits: Limits{File: 1 << 20}})
	got := in(t, b, workspace, `exec head -c 3000000 /dev/zero >big`)
	if info, err := os.Stat(workspace + "/big"); err != nil || info.Size() != 1<<20 {
		t.Errorf("%v, %v", info, err)
	}
	if !slices.Equal(limitNames(got.reached), []string{LimitFile}) {
		t.Errorf("%+v", got)
	}
}

func TestDiskIsBounded(t *testing.T) {
	for name, script := range map[string]string{
		"files of a workspace":   `while :; do i=$((i+1)); head -c 1000000 /dev/zero >$i; done`,
		"private files":          `cd /tmp; while :; do i=$((i+1)); head -c 1000000 /dev/zero >$i; done`,
		"a file without a name":  `exec 3>gone; rm gone; while :; do head -c 1000000 /dev/zero >&3; done`,
		"files of a subprocess":  `(setsid bash -c 'while :; do i=$((i+1)); head -c 1000000 /dev/zero >$i; done' &) & while :; do sleep 1; done`,
		"a file that is written": `while :; do head -c 1000000 /dev/zero >>same; done`,
	} {
		t.Run(name, func(t *testing.T) {
			_, workspace := place(t)
			b := box(t, Policy{Mode: Workspace, Roots: []string{workspace}, Limits: Limits{Disk: 32 << 20}})
			got := in(t, b, workspace, script)
			if !slices.Equal(limitNames(got.reached), []string{LimitDisk}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestWhatOthersWriteIsNotCounted(t *testing.T) {
	_, workspace := place(t)
	elsewhere := t.TempDir()
	b := box(t, Policy{Mode: Workspace, Roots: []string{workspace}, Limits: Limits{Disk: 8 << 20}})
	watch := newDiskWatch(b.disk.dirs, b.disk.limit) // the box looks at its own all the time
	file := filepath.Join(elsewhere, "file")
	if err := os.WriteFile(file, make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if watch.full(b.members) {
		t.Error("it counts")
	}
	if err := os.WriteFile(filepath.Join(workspace, "file"), make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	watch.next = time.Time{}
	if !watch.full(b.members) {
		t.Error("what is written in the workspace does not count")
	}
}

// ownerVariable makes the test binary the owner of a box, which it fills until it is killed.
const ownerVariable = "AGENTRUN_TEST_BOX"

func owner(workspace string) int {
	b, err := New(Policy{Mode: Workspace, Roots: []string{workspace}, Limits: Limits{Processes: 20}})
	if err != nil {
		fmt.Println("refused", err)
		return 0
	}
	l, err := b.Launch(Command{Path: "/bin/bash", Argv: []string{"bash", "-c", "echo >/tmp/x; mkdir -m 0 /tmp/locked; echo ready; sleep 1000"}, Dir: workspace, Env: os.Environ(), Report: 3})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	cmd := &exec.Cmd{Path: l.Path, Args: l.Argv, Env: l.Env, Dir: workspace, ExtraFiles: []*os.File{l.Report}, Stdout: os.Stdout, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	l.Attr.Apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("command", cmd.Process.Pid)
	fmt.Println("box", b.tmp, strings.Join(b.spec.Groups, " "))
	fmt.Println(l.Began(cmd.Process.Pid), cmd.Wait())
	return 1
}

func TestTheNextStartRemovesWhatAKilledOneLeft(t *testing.T) {
	_, workspace := place(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), ownerVariable+"="+workspace)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var left []string
	for lines.Scan() && lines.Text() != "ready" {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "refused":
			_ = cmd.Wait()
			t.Skip(rest)
		case "command":
			pid, _ := strconv.Atoi(rest)
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }() // without a control group it lives
		case "box":
			left = strings.Fields(rest)
		}
	}
	if len(left) == 0 {
		t.Fatal("it has told nothing")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, name := range left {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s is gone before: %v", name, err)
		}
	}
	b := box(t, Policy{Mode: ReadOnly, Limits: Limits{Processes: 20}})
	for i, name := range left {
		if i > 0 {
			name = filepath.Dir(name)
		}
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if b.group != nil && lines.Scan() { // the command had its output open
		t.Errorf("the command lives, and says %q", lines.Text())
	}
}

func TestACloseKillsAndRemoves(t *testing.T) {
	b := box(t, Policy{Mode: ReadOnly, Limits: Limits{Processes: 20}})
	grouped(t, b)
	dirs := b.group.Entrances()
	if got := in(t, b, "/", "(setsid sleep 1000 >/dev/null 2>&1 &) ; echo begun"); got.output != "begun" {
		t.Fatalf("%+v", got)
	}
	members := b.members()
	b.Close()
	b.Close()
	for _, pid := range members {
		if s, err := process.ReadStat(pid); err == nil && !s.Dead() {
			t.Errorf("process %d lives", pid)
		}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestAFileLimitThatSomebodyElseRunsIntoIsTold(t *testing.T) {
	_, workspace := place(t)
	b := box(t, Policy{Mode: Workspace, Roots: []string{workspace}, Limits: Limits{File: 64 << 10}})
	for _, c := range []struct{ name, script, want string }{
		{"a child", "head -c 100000 /dev/zero >big; true", "size of a file, 64KiB: " + workspace + "/big has as much"},
		{"nobody, who comes later", "cat big >/dev/null", ""},
		{"who does not mind", `trap '' XFSZ; { head -c 100000 /dev/zero >/tmp/other; } 2>/dev/null; true`, "size of a file, 64KiB: /tmp/other has as much"},
		{"the command", "rm -f big; exec head -c 100000 /dev/zero >big", "size of a file, 64KiB: " + workspace + "/big has as much"},
		{"the command, whose file is gone", "exec 3>gone; rm gone; exec head -c 100000 /dev/zero >&3", "size of a file, 64KiB"},
		{"nobody", "head -c 1000 /dev/zero >small", ""},
	} {
		got := in(t, b, workspace, c.script)
		var told string
		for _, r := range got.reached {
			told += strings.TrimPrefix(r.Text, "Limit reached: ")
		}
		if told != c.want {
			t.Errorf("%s: %q, %+v", c.name, told, got)
		}
	}
}
