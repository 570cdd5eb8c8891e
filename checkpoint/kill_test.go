package checkpoint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/session"
)

// rewinderEnv makes the test binary a process that rewinds:
// "<home> <path of the session> <entry>".
const rewinderEnv = "AGENTRUN_TEST_REWINDER"

func TestMain(m *testing.M) {
	if job := os.Getenv(rewinderEnv); job != "" {
		if err := rewindOnce(strings.Fields(job)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rewindOnce says when it begins to change files, and then each file.
func rewindOnce(job []string) error {
	ctx := context.Background()
	m, err := session.OpenManager(job[0], session.Options{Durability: session.Flush})
	if err != nil {
		return err
	}
	s, err := m.Open(ctx, job[1])
	if err != nil {
		return err
	}
	defer s.Close()
	r := checkpoint.New(m, s, checkpoint.Options{Durability: session.Flush, Progress: func(int, int) { fmt.Println() }})
	p, err := r.Plan(ctx, job[2], checkpoint.PlanOptions{})
	if err != nil {
		return err
	}
	_, err = r.Apply(ctx, p)
	return err
}

// rounds is how often a rewind is killed: AGENTRUN_TEST_ROUNDS, else few enough for
// everyday runs.
func rounds(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("AGENTRUN_TEST_ROUNDS")); err == nil {
		return n
	}
	if testing.Short() {
		return 3
	}
	return 10
}

func TestARewindThatIsKilledIsFinishedByAnother(t *testing.T) {
	const n = 60
	p := newProject(t, checkpoint.Options{Durability: session.Flush}, session.Options{Durability: session.Flush})
	fill := func(what string, last int) {
		for i := range last {
			p.write(fmt.Sprintf("d%d/f%d", i%3, i), fmt.Sprint(what, i))
		}
	}
	fill("one ", n)
	first := p.checkpoint(".").Entry
	wantFirst := p.tree()
	fill("two ", n+10)
	p.remove("d1")
	second := p.checkpoint().Entry
	wantSecond := p.tree()
	killed := 0
	for range rounds(t) {
		for _, to := range []struct{ entry, tree string }{{first, wantFirst}, {second, wantSecond}} {
			from, known := p.tree(), p.rewinds()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), rewinderEnv+"="+p.m.Home()+" "+p.s.Path()+" "+to.entry)
			out, err := cmd.StdoutPipe()
			check(t, err)
			check(t, cmd.Start())
			// Comparing tells once a file, and so does changing them.
			buf := make([]byte, 1)
			for range rand.IntN(2*n + 10) {
				if _, err := out.Read(buf); err != nil {
					break
				}
			}
			cmd.Process.Kill()
			if cmd.Wait() != nil {
				killed++
			}
			last := ""
			if list := p.rewinds(); len(list) > len(known) {
				last = list[len(known)]
			}
			p.rewind(to.entry)
			p.want(to.tree)
			if last != "" { // what the killed one has recorded takes it all back
				p.rewind(last)
				p.want(from)
				p.rewind(to.entry)
			}
			if left := temporaries(t, p.dir); left != "" {
				t.Fatalf("left behind: %s", left)
			}
		}
	}
	t.Logf("%d rewinds were killed", killed)
}
