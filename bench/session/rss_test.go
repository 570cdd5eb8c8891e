package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// openEnv makes the test binary a process that opens one session, builds its
// context and prints the most memory it ever had resident, in KiB.
const openEnv = "AGENTRUN_BENCH_OPEN"

func TestMain(m *testing.M) {
	path := os.Getenv(openEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := openOnce(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openOnce(path string) error {
	if path != "idle" {
		m, err := session.OpenManager(path+".home", session.Options{})
		if err != nil {
			return err
		}
		s, err := m.View(context.Background(), path)
		if err != nil {
			return err
		}
		if _, err := s.Context(context.Background()); err != nil {
			return err
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Println(strings.Fields(after)[0])
	return nil
}

// residentMiB is the peak memory of a process that opens the session at path.
func residentMiB(b *testing.B, path string) float64 {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), openEnv+"="+path)
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	kib, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
