package session_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// withArtifacts is a session with entries and artifacts.
func withArtifacts(t *testing.T, m *session.Manager) (path string, entries []string) {
	t.Helper()
	s := newSession(t, m)
	for i := range 3 {
		id := artifactOf(t, s, fmt.Sprintf("artifact %d\n", i))
		appendOK(t, s, user(fmt.Sprintf("artifact://%d", id)))
	}
	appendOK(t, s, bigMessage)
	entries = ids(t, s)
	if err := os.WriteFile(filepath.Join(s.ArtifactsDir(), "Anna.jsonl"), []byte(headerLine+say("a", "null")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Path(), entries
}

// checkForks checks every log beside a session: it has the entries, whole, and the
// artifacts except those that failed to come along. It returns how many there are.
func checkForks(t *testing.T, m *session.Manager, path string, entries []string, failed bool) int {
	t.Helper()
	forks := 0
	listing := must(m.List(t.Context(), ""))
	if len(listing.Unreadable) > 0 {
		t.Fatalf("unreadable: %+v", listing.Unreadable)
	}
	for _, info := range listing.Sessions {
		if info.Path == path {
			continue
		}
		forks++
		fork := must(m.Open(t.Context(), info.Path))
		noDamage(t, fork)
		if got := ids(t, fork); !slices.Equal(got, entries) {
			t.Fatalf("%s has the entries %v, want %v", info.Path, got, entries)
		}
		for i := range int64(3) {
			if failed {
				continue
			}
			if got := artifactText(t, fork, i); got != fmt.Sprintf("artifact %d\n", i) {
				t.Fatalf("artifact %d of %s holds %q", i, info.Path, got)
			}
		}
		if id := artifactOf(t, fork, "new"); id != 3 {
			t.Fatalf("the next artifact of %s is %d", info.Path, id)
		}
		appendOK(t, fork, user("goes on"))
		fork.Close()
	}
	return forks
}

func TestEveryFaultOfAForkLeavesNoneOrAWholeOne(t *testing.T) {
	faults := map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	}
	for way, set := range faults {
		for system, fsys := range map[string]durable.FS{"links": faultfs.Unsynced{FS: durable.OS}, "reflinks": shared{faultfs.Unsynced{FS: durable.OS}}} {
			t.Run(system+"/"+way, func(t *testing.T) {
				t.Parallel()
				enumerated(t, t.Name())
				for n := 0; ; n++ {
					good := newManager(t, session.Options{Durability: session.Flush})
					path, entries := withArtifacts(t, good)
					before := string(must(os.ReadFile(path)))
					ffs := faultfs.New(fsys)
					set(ffs, n)
					bad := must(session.OpenManager(good.Home(), session.Options{FS: ffs}))
					forked, err := bad.Fork(t.Context(), path, session.ForkOptions{PathOnly: n%2 == 1})
					if !ffs.Fired() && err != nil {
						t.Fatal(err)
					}
					op := "none"
					if ops := ffs.Ops(); n < len(ops) {
						op = ops[n]
					}
					again := must(session.OpenManager(good.Home(), session.Options{Durability: session.Flush}))
					forks := checkForks(t, again, path, entries, len(forked.Artifacts.Failed) > 0)
					if got := string(must(os.ReadFile(path))); got != before {
						t.Fatalf("operation %d (%s): the original was changed", n, op)
					}
					if err == nil && forks != 1 || err != nil && forks > 0 && way != "crash" {
						t.Fatalf("operation %d (%s): there are %d forks after %v", n, op, forks, err)
					}
					left := must(filepath.Glob(filepath.Join(filepath.Dir(path), "*Z_*")))
					left = slices.DeleteFunc(left, func(name string) bool {
						return strings.HasPrefix(name, strings.TrimSuffix(path, ".jsonl")) ||
							forks == 1 && strings.HasPrefix(name, strings.TrimSuffix(forked.Path, ".jsonl"))
					})
					if err != nil && way != "crash" && len(left) > 0 && !strings.HasPrefix(op, "remove") {
						t.Fatalf("operation %d (%s): %v, and there are %q", n, op, err, left)
					}
					if !ffs.Fired() {
						t.Logf("%d operations", n)
						return
					}
				}
			})
		}
	}
}

// forkerEnv makes the test binary a process that forks a session until it is killed:
// "<home> <path of the session>".
const forkerEnv = "AGENTRUN_TEST_FORKER"

func init() { children[forkerEnv] = forkForEver }

func forkForEver(job string) error {
	home, path, _ := strings.Cut(job, " ")
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		return err
	}
	for {
		forked, err := m.Fork(context.Background(), path, session.ForkOptions{})
		if err != nil {
			return err
		}
		fmt.Println(forked.Path)
	}
}

func TestKill9OfAForkLeavesNoneOrAWholeOne(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path, entries := withArtifacts(t, m)
	total, orphans := 0, 0
	for range rounds(t) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), forkerEnv+"="+m.Home()+" "+path)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said []string
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if said = append(said, lines.Text()); len(said) == 1 {
				// At any step of one of the next.
				time.AfterFunc(rand.N(20*time.Millisecond), func() { cmd.Process.Kill() })
			}
		}
		cmd.Wait()
		if stderr.Len() > 0 {
			t.Fatal(stderr.String())
		}
		total += checkForks(t, m, path, entries, false)
		for _, fork := range said {
			if _, err := os.Lstat(fork); err != nil {
				t.Fatalf("a fork that was reported: %v", err)
			}
		}
		// What is left is an orphan, and everything else goes for the next round.
		for _, name := range must(filepath.Glob(filepath.Join(filepath.Dir(path), "*Z_*"))) {
			if strings.HasPrefix(name, strings.TrimSuffix(path, ".jsonl")) {
				continue
			}
			if at, err := os.Stat(name); err == nil && at.IsDir() {
				if _, err := os.Stat(name + ".jsonl"); err != nil {
					orphans++
				}
			}
		}
		for _, name := range must(filepath.Glob(filepath.Join(filepath.Dir(path), "*Z_*"))) {
			if !strings.HasPrefix(name, strings.TrimSuffix(path, ".jsonl")) {
				if err := os.RemoveAll(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Logf("%d forks, %d directories without a log", total, orphans)
}
