package search_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/search"
	"github.com/agentrun/agentrun/session"
)

// indexEnv makes this program a process that makes an index anew, again and again.
const indexEnv = "AGENTRUN_TEST_SEARCH_HOME"

func TestMain(m *testing.M) {
	home := os.Getenv(indexEnv)
	if home == "" {
		os.Exit(m.Run())
	}
	fmt.Println("ready")
	manager, err := session.OpenManager(home, session.Options{})
	for n := 0; err == nil; n++ {
		x := search.New(manager, search.Options{})
		if n%3 == 2 {
			err = x.Rebuild(context.Background())
		} else {
			err = x.Update(context.Background())
		}
		if errors.Is(err, search.ErrBusy) {
			err = nil
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// corpus fills a home with a few megabytes and returns queries with their answers.
func corpus(h *home) (check func(when string)) {
	h.Helper()
	for i := range 6 {
		s := h.session(fmt.Sprintf("needle%d in an entry", i), "hay")
		var b strings.Builder
		for n := range 20_000 {
			fmt.Fprintf(&b, "line %d of output %d\n", n, i)
		}
		h.output(s, b.String()+fmt.Sprintf("needle%d in an output\n", i))
	}
	queries := []search.Query{{Words: []string{"needle"}}, {Words: []string{"needle3"}}, {Words: []string{"line", "7777"}}}
	var want [][]string
	for _, q := range queries {
		q.NoIndex = true
		answer, _ := h.find(q)
		want = append(want, answer)
	}
	return func(when string) {
		h.Helper()
		for i, q := range queries {
			got, _ := h.find(q)
			if diff := cmp.Diff(want[i], got); diff != "" {
				h.Fatalf("%s, %q: wanted (-) and found (+):\n%s", when, q.Words, diff)
			}
		}
	}
}

func child(t *testing.T, home string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), indexEnv+"="+home)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	ready := make([]byte, 6)
	if _, err := out.Read(ready); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestAnIndexSurvivesKill9(t *testing.T) {
	rounds := 8
	if n, err := strconv.Atoi(os.Getenv("AGENTRUN_TEST_ROUNDS")); err == nil {
		rounds = n
	}
	if testing.Short() {
		rounds = 3
	}
	h := newHome(t)
	check := corpus(h)
	for round := range rounds {
		cmd := child(t, h.Home())
		delay := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
		time.Sleep(delay) // any moment is the right one
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		when := fmt.Sprintf("round %d, killed after %v", round, delay)
		check(when)
		h.index()
		check(when + ", updated")
	}
}

func TestProcessesIndexAndSearchAtOnce(t *testing.T) {
	h := newHome(t)
	check := corpus(h)
	for range 2 {
		cmd := child(t, h.Home())
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 5 {
				check("while two processes index")
			}
		})
	}
	all.Wait()
}
