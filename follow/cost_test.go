package follow_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/follow"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// A hundred followers, in a process of their own: who writes must not notice them.
const (
	followersHome = "AGENTRUN_TEST_FOLLOWERS_HOME"
	followersPath = "AGENTRUN_TEST_FOLLOWERS_PATH"
	manyFollowers = 100
)

// followers is the child: it says "ready" when all followers have had the first entry,
// and a number when all have had the last one.
func followers(home string) int {
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
		cancel()
	}()
	var first, all sync.WaitGroup
	var entries atomic.Int64
	for range manyFollowers {
		first.Add(1)
		all.Go(func() {
			s, err := m.View(ctx, os.Getenv(followersPath))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			defer s.Close()
			n := 0
			for _, err := range follow.Session(ctx, s, follow.Options{}) {
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				entries.Add(1)
				if n++; n == 1 {
					first.Done()
				}
				if n == 1+costRuns {
					break
				}
			}
		})
	}
	first.Wait()
	fmt.Println("ready")
	all.Wait()
	fmt.Println(entries.Load())
	return 0
}

// counting counts every call of a file system and its files.
type counting struct {
	durable.FS
	calls *atomic.Int64
}

type countingFile struct {
	durable.File
	calls *atomic.Int64
}

func (c counting) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	c.calls.Add(1)
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.calls}, nil
}

func (c counting) Identify(name string) (durable.Identity, error) {
	c.calls.Add(1)
	return c.FS.Identify(name)
}

func (f countingFile) Write(p []byte) (int, error) { f.calls.Add(1); return f.File.Write(p) }
func (f countingFile) Fd() uintptr                 { f.calls.Add(1); return f.File.Fd() } // for flock
func (f countingFile) Identify() (durable.Identity, error) {
	f.calls.Add(1)
	return f.File.Identify()
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	f.calls.Add(1)
	return f.File.ReadAt(p, off)
}

const costRuns = 200

// cost appends costRuns times and returns how many calls an append took, and the fewest allocations that one did: a
// collection in between empties pools, and the race detector drops what is put into one now and then, which makes some
// appends dearer.
func cost(t *testing.T, s *session.Session, calls *atomic.Int64) (perAppend int64, allocs uint64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as testing.AllocsPerRun does
	body := user("an entry")
	allocs = math.MaxUint64
	var before, after runtime.MemStats
	made := calls.Load()
	for range costRuns {
		runtime.ReadMemStats(&before)
		must(s.Append(t.Context(), body))
		runtime.ReadMemStats(&after)
		allocs = min(allocs, after.Mallocs-before.Mallocs)
	}
	return (calls.Load() - made) / costRuns, allocs
}

func TestAHundredFollowersCostTheWriterNothing(t *testing.T) {
	var calls atomic.Int64
	_, alone := open(t, session.Options{FS: counting{durable.OS, &calls}})
	wantCalls, wantAllocs := cost(t, alone, &calls)
	if wantCalls == 0 {
		t.Fatal("no call was counted")
	}

	m, s := open(t, session.Options{FS: counting{durable.OS, &calls}})
	child := exec.Command(must(os.Executable()))
	child.Env = append(os.Environ(), followersHome+"="+m.Home(), followersPath+"="+s.Path())
	child.Stderr = os.Stderr
	in, out := must(child.StdinPipe()), must(child.StdoutPipe())
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() || said.Text() != "ready" {
		t.Fatalf("the followers said %q", said.Text())
	}
	gotCalls, gotAllocs := cost(t, s, &calls)
	if gotCalls != wantCalls || gotAllocs != wantAllocs {
		t.Errorf("an append takes %d calls and %v allocations, alone %d and %v", gotCalls, gotAllocs, wantCalls, wantAllocs)
	}
	if want := fmt.Sprint(manyFollowers * (1 + costRuns)); !said.Scan() || said.Text() != want {
		t.Errorf("the followers had %s entries, want %s", said.Text(), want)
	}
	in.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
