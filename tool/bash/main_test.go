package bash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

// childVariable makes the test binary behave as one of the children below instead of running tests.
const childVariable = "AGENTRUN_TEST_CHILD"

// homeVariable tells a child where its home is.
const homeVariable = "AGENTRUN_TEST_CHILD_HOME"

// newSession makes a session in a home, and opens the directory of its artifacts.
func newSession(home string) (*session.Session, *artifacts.Dir, error) {
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Create(context.Background(), home, session.CreateOptions{})
	if err != nil {
		return nil, nil, err
	}
	return s, artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID}), nil
}

// children are the commands that no shell can be trusted to be.
var children = map[string]func(){
	// deaf ignores what can be ignored, says so, and stays.
	"deaf": func() {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("deaf")
		stay()
	},
	// stubborn ignores SIGINT and leaves on SIGTERM with a word and a code.
	"stubborn": func() {
		signal.Ignore(syscall.SIGINT)
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("stubborn")
		<-c
		fmt.Println("going")
		os.Exit(7)
	},
	// heir starts a process in a session of its own that holds the output and never ends, names it, and leaves.
	"heir": func() { leave("stay", &syscall.SysProcAttr{Setsid: true}) },
	// litter does the same within the process group.
	"litter": func() { leave("stay", nil) },
	// babbler leaves somebody behind who writes for ever.
	"babbler": func() { leave("babble", &syscall.SysProcAttr{Setsid: true}) },
	"stay":    stay,
	"babble": func() {
		line := []byte(strings.Repeat("babble ", 500) + "\n")
		for {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(0)
			}
		}
	},
	// doomed runs a command in a session, and the command kills it.
	"doomed": func() {
		s, kept, err := newSession(os.Getenv(homeVariable))
		if err == nil {
			_, err = Run(context.Background(), Options{Script: "seq 1 50000; kill -KILL $PPID", Log: s, Artifacts: kept})
		}
		fmt.Println("still here:", err)
	},
	// owner runs a command that goes on, with a process in the background, and passes on what both say.
	"owner": func() {
		script := Process{Argv: []string{"sh", "-c", "sleep 1000 & (setsid sh -c 'echo $$; exec sleep 1000' &); (setsid env -i /bin/sh -c 'echo $$; exec sleep 1000' &); echo $! $$; wait"}, Stdout: os.Stdout}
		_, err := script.Run(context.Background())
		fmt.Println("still here:", err)
	},
	// descriptors lists what this process inherited.
	"descriptors": func() {
		for fd := 0; fd < 256; fd++ {
			if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && !strings.Contains(name, "anon_inode") {
				fmt.Println(fd, name)
			}
		}
	},
}

func stay() {
	for {
		time.Sleep(time.Hour)
	}
}

func leave(behind string, attr *syscall.SysProcAttr) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+behind)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, "left", cmd.Process.Pid)
	os.Exit(0)
}

func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv(childVariable)]; ok {
		child()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is the command that runs one of children.
func child(name string) *Process {
	return &Process{Argv: []string{os.Args[0]}, Env: []string{childVariable + "=" + name, "GORACE=atexit_sleep_ms=0"}}
}
