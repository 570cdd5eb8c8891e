package session_test

import (
	"bufio"
	"context"
	"encoding/base64"
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
)

// writerEnv makes the test binary a process that appends until it is killed:
// "<home> <path of the session>".
const writerEnv = "AGENTRUN_TEST_WRITER"

// children are what the test binary does as another process, by the variable that
// holds its job.
var children = map[string]func(job string) error{
	writerEnv:   writeForEver,
	repairerEnv: repairAndTell,
	resumerEnv:  resumeOnce,
}

func TestMain(m *testing.M) {
	for name, child := range children {
		job := os.Getenv(name)
		if job == "" {
			continue
		}
		if err := child(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeForEver appends entries, every third with an image that all writers share,
// and says each id that was acknowledged.
func writeForEver(job string) error {
	home, path, _ := strings.Cut(job, " ")
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		return err
	}
	s, err := m.Open(context.Background(), path)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		b := user(fmt.Sprint("message ", i))
		if i%3 == 2 {
			image := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fmt.Sprint("image ", i%9), 500)))
			b = entry.MessageBody{Message: []byte(`{"role":"user","content":[{"type":"image","mimeType":"image/png","data":"` + image + `"}]}`)}
		}
		id, err := s.Append(context.Background(), b)
		if err != nil {
			return err
		}
		fmt.Println(id)
	}
}

// runUntilKilled starts writers and kills each after a random number of
// acknowledged entries. It returns what they acknowledged.
func runUntilKilled(t *testing.T, home string, paths []string) [][]string {
	t.Helper()
	acknowledged := make([][]string, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+home+" "+path)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			after := rand.IntN(12)
			killed := false
			lines := bufio.NewScanner(out)
			for n := 0; lines.Scan(); n++ {
				// What was printed before the kill arrived was acknowledged too.
				if id := lines.Text(); len(id) == 24 {
					acknowledged[i] = append(acknowledged[i], id)
				}
				if n >= after && !killed {
					killed = true
					cmd.Process.Kill()
				}
			}
			cmd.Wait()
			if stderr.Len() > 0 {
				t.Errorf("writer: %s", stderr.String())
			}
		}()
	}
	wg.Wait()
	return acknowledged
}

func checkKilled(t *testing.T, m *session.Manager, path string, all map[string]bool) {
	t.Helper()
	s := must(m.Open(t.Context(), path))
	defer s.Close()
	seen := map[string]bool{}
	var es []entry.Entry
	for e, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.ID()] {
			t.Fatalf("id %s twice", e.ID())
		}
		seen[e.ID()] = true
		es = append(es, e)
	}
	if missing := must(s.RestoreAll(t.Context(), es)); len(missing) > 0 {
		t.Fatalf("blobs are missing: %v", missing)
	}
	for id := range all {
		if !seen[id] {
			t.Fatalf("acknowledged entry %s is missing", id)
		}
	}
	for _, d := range must(s.Damage(t.Context())) {
		if d.Kind != session.KindTorn {
			t.Fatalf("damage %+v", d)
		}
	}
}

// rounds is how often all writers are started and killed: AGENTRUN_TEST_ROUNDS, which
// the checks of the project set to 200, else few enough for everyday runs.
func rounds(t *testing.T) int {
	if n := os.Getenv("AGENTRUN_TEST_ROUNDS"); n != "" {
		return must(strconv.Atoi(n))
	}
	if testing.Short() || raceDetector {
		return 5
	}
	return 20
}

func TestKill9LosesNothingThatWasAcknowledged(t *testing.T) {
	for name, sessions := range map[string]int{"4 writers in 4 sessions that share blobs": 4, "4 writers in one session": 1} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, session.Options{})
			paths := make([]string, 4)
			known := map[string]map[string]bool{}
			for i := range sessions {
				s := newSession(t, m)
				appendOK(t, s, user("first"))
				s.Close()
				for j := i; j < 4; j += sessions {
					paths[j] = s.Path()
				}
				known[s.Path()] = map[string]bool{}
			}
			total := 0
			for range rounds(t) {
				for i, acked := range runUntilKilled(t, m.Home(), paths) {
					total += len(acked)
					for _, id := range acked {
						known[paths[i]][id] = true
					}
				}
				for path, all := range known {
					checkKilled(t, m, path, all)
				}
			}
			leftover := must(filepath.Glob(filepath.Join(m.Home(), "blobs", "*")))
			t.Logf("%d entries acknowledged, %d files among the blobs", total, len(leftover))
		})
	}
}
