package gc_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/gc"
)

// childEnv makes the test binary a process that works until it is killed: "write HOME"
// or "collect HOME".
const childEnv = "AGENTRUN_TEST_GC"

func child(job string) error {
	what, home, _ := strings.Cut(job, " ")
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		return err
	}
	for {
		if what == "collect" {
			_, err := gc.Run(context.Background(), m, gc.Options{Apply: true})
			if locked := (*gc.LockedError)(nil); err != nil && !errors.As(err, &locked) {
				return err
			}
			fmt.Println("collected")
			continue
		}
		if err := writeOne(m); err != nil {
			return err
		}
	}
}

// images is how many images all writers share.
const images = 300

func imageOf(i int) []byte {
	return []byte(strings.Repeat(string(binary.LittleEndian.AppendUint32(nil, uint32(i)))+"pixels", 200))
}

// writeOne makes a session of some images and says which it is when all are
// acknowledged.
func writeOne(m *session.Manager) error {
	ctx := context.Background()
	s, err := m.Create(ctx, os.TempDir(), session.CreateOptions{})
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := s.Append(ctx, image(imageOf(rand.IntN(images)))); err != nil {
			return err
		}
		fmt.Println(s.Path())
	}
	return s.Close()
}

// worker is a child process.
type worker struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	err   strings.Builder
}

func start(t *testing.T, job string) *worker {
	t.Helper()
	w := &worker{cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), childEnv+"="+job)
	w.cmd.Stderr = &w.err
	w.lines = bufio.NewScanner(must(w.cmd.StdoutPipe()))
	ok(t, w.cmd.Start())
	return w
}

// killAfter reads n lines and kills the process; what it said is returned.
func (w *worker) killAfter(n int) (said []string) {
	for w.lines.Scan() {
		said = append(said, w.lines.Text())
		if len(said) == n {
			w.cmd.Process.Kill()
		}
	}
	w.cmd.Wait()
	return said
}

func rounds(t *testing.T) int {
	if n := os.Getenv("AGENTRUN_TEST_ROUNDS"); n != "" {
		return max(1, must(strconv.Atoi(n))/10)
	}
	if testing.Short() {
		return 2
	}
	return 4
}

// TestCollectorsAndWritersAreKilledAndNothingNamedGoes lets eight writers store images
// of which old blobs lie about, that nothing names until a writer does, while
// collectors remove those; all are killed somewhere.
func TestCollectorsAndWritersAreKilledAndNothingNamedGoes(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "home"))
	blobs := filepath.Join(m.Home(), "blobs")
	acked := map[string]int{}
	collected := 0
	for round := range rounds(t) {
		// Nobody is at work: all blobs may be old, and some are garbage again.
		for i := range images {
			plant(t, m.Home(), string(imageOf(i)))
		}
		old(t, blobs)
		for path := range acked {
			if rand.IntN(2) == 0 {
				ok(t, os.Remove(path))
				delete(acked, path)
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range 10 {
			job, after := "write ", 5+rand.IntN(120)
			if i >= 8 {
				job, after = "collect ", 1+rand.IntN(6)
			}
			w := start(t, job+m.Home())
			wg.Go(func() {
				said := w.killAfter(after)
				mu.Lock()
				defer mu.Unlock()
				if w.err.Len() > 0 {
					t.Errorf("%s: %s", job, w.err.String())
				}
				for _, line := range said {
					if line == "collected" {
						collected++
					} else {
						acked[line]++
					}
				}
			})
		}
		wg.Wait()
		check(t, m, acked, fmt.Sprint("round ", round))
		must(gc.Run(t.Context(), m, gc.Options{Apply: true})) // of what they left
		check(t, m, acked, fmt.Sprint("round ", round, ", after one more"))
	}
	left := must(os.ReadDir(filepath.Join(blobs, ".gc")))
	if len(left) > 1 {
		t.Errorf("%d blobs are left between", len(left)-1)
	}
	t.Logf("%d sessions, %d collections", len(acked), collected)
}

// check reads every acknowledged entry with its blobs.
func check(t *testing.T, m *session.Manager, acked map[string]int, when string) {
	t.Helper()
	for path, n := range acked {
		s := must(m.View(t.Context(), path))
		var es []entry.Entry
		for e, err := range s.Entries(t.Context()) {
			ok(t, err)
			es = append(es, e)
		}
		if len(es) < n {
			t.Fatalf("%s: %s has %d entries of %d", when, path, len(es), n)
		}
		if missing := must(s.RestoreAll(t.Context(), es)); len(missing) > 0 {
			t.Fatalf("%s: %s lacks %v", when, path, missing)
		}
		ok(t, s.Close())
	}
}
