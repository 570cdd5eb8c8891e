package shim

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/cgroup"
)

// TestAForkBombIsKilled: a bomb goes off as a user who may have 150 processes, in sessions of their own.
func TestAForkBombIsKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have another user bounded")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("setpriv is not there:", err)
	}
	const uid = 61234
	for name, without := range map[string]bool{"with a control group": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			noTrees = without
			defer func() { noTrees = false }()
			s, out := launch(t, "exec setpriv --reuid "+strconv.Itoa(uid)+" --clear-groups bash -c 'ulimit -u 150; b() { b & setsid bash -c \"b\" & b; }; export -f b; echo begun; b' 2>/dev/null")
			line(t, out)
			for of(t, uid) < 100 {
				if t.Context().Err() != nil {
					t.Fatal("it does not go off")
				}
			}
			if !s.Kill(20 * time.Second) {
				t.Errorf("%d processes are left", of(t, uid))
			}
			if n := of(t, uid); n > 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

// of counts the processes of a user.
func of(t *testing.T, uid uint32) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if info, err := os.Stat(name); err == nil && info.Sys().(*syscall.Stat_t).Uid == uid && alive(pid) {
			n++
		}
	}
	return n
}

func TestAKilledShimLeavesNothingWhereThereAreControlGroups(t *testing.T) {
	if tree, err := cgroup.NewTree(); err != nil {
		t.Skip("this process can make no control groups:", err)
	} else {
		tree.Remove()
	}
	s, lines := launch(t, strays+"wait")
	pids := strayed(t, lines)
	if err := syscall.Kill(s.Root(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
	if _, err := os.Stat(s.tree.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its control group is still there: %v", err)
	}
}

func TestTheControlGroupGoesWithTheCommand(t *testing.T) {
	s, lines := launch(t, "cat /proc/self/cgroup; exit 3")
	if s.tree == nil {
		t.Skip("this process can make no control groups")
	}
	if got := all(lines); !strings.Contains(got, filepath.Base(s.tree.Path())) {
		t.Errorf("the command is in %q", got)
	}
	<-s.Done()
	if _, err := os.Stat(s.tree.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its control group is still there: %v", err)
	}
}

func all(lines *bufio.Scanner) string {
	var b strings.Builder
	for lines.Scan() {
		b.WriteString(lines.Text() + "\n")
	}
	return b.String()
}
