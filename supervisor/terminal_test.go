package supervisor

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/tool/bash"
)

// screenful is what a terminal showed, for who waits for a text on it.
type screenful struct {
	mu   sync.Mutex
	seen bytes.Buffer
	want string
	hit  chan struct{}
}

func waitFor(want string) *screenful { return &screenful{want: want, hit: make(chan struct{})} }

func (s *screenful) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := strings.Contains(s.seen.String(), s.want)
	s.seen.Write(b)
	if !before && strings.Contains(s.seen.String(), s.want) {
		close(s.hit)
	}
	return len(b), nil
}

func TestATerminalUnderASupervisorIsTypedAtAndResized(t *testing.T) {
	c, _ := newClient(t)
	for name, run := range map[string]func(term *bash.Terminal, live *screenful, script string) (bash.Result, error){
		"a named shell": func(term *bash.Terminal, live *screenful, script string) (bash.Result, error) {
			return bash.Run(t.Context(), bash.Options{Script: script, Shell: &Shell{Client: c, Name: "s"}, Terminal: term, Live: live, Timeout: time.Minute})
		},
		"a script that may go on": func(term *bash.Terminal, live *screenful, script string) (bash.Result, error) {
			res, moved, err := c.Run(t.Context(), Foreground{Command: Command{Script: script, Terminal: term, Timeout: time.Minute}, Live: live})
			if moved != nil {
				err = errors.Join(err, errors.New("it was moved"))
			}
			return res, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			term, live := &bash.Terminal{Size: bash.TerminalSize{Rows: 20, Cols: 60}}, waitFor("ready")
			if _, err := term.Write([]byte("typed ahead\n")); err != nil {
				t.Fatal(err)
			}
			var typing sync.WaitGroup
			typing.Go(func() {
				<-live.hit
				if err := term.Resize(bash.TerminalSize{Rows: 40, Cols: 120}); err != nil {
					t.Error(err)
				}
				if _, err := term.Write([]byte("then\n")); err != nil {
					t.Error(err)
				}
			})
			res, err := run(term, live, `stty -echo; stty size; echo ready; read -r a; read -r b; stty size; echo "$a, $b"`)
			typing.Wait()
			if err != nil || res.Code != 0 {
				t.Fatalf("code %d, %v: %q", res.Code, err, res.Output)
			}
			if want := "20 60\nready\n40 120\ntyped ahead, then\n"; !strings.HasSuffix(res.Summary.Text, want) {
				t.Errorf("%q", res.Summary.Text)
			}
			if _, err := term.Write([]byte("x")); !errors.Is(err, bash.ErrNoTerminal) && name == "a named shell" {
				t.Error(err)
			}
		})
	}
}

func TestTheScreenOfANamedShellIsKeptWhenItsScriptIsEnded(t *testing.T) {
	c, _ := newClient(t)
	live := waitFor("page")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-live.hit
		cancel()
	}()
	res, err := bash.Run(ctx, bash.Options{
		Script: `trap 'printf "\033[?1049l"; exit' INT TERM; printf '\033[?1049h\033[H\033[2Jthe page\n'; while :; do sleep 0.1; done`,
		Shell:  &Shell{Client: c, Name: "s"}, Terminal: &bash.Terminal{}, Live: live,
	})
	if err != nil || !res.Cancelled || strings.TrimSpace(res.Summary.Text) != "the page" {
		t.Errorf("%q, %v", res.Output, err)
	}
}

func TestNothingIsLeftOfAJobAtATerminalWhoseSupervisorIsKilled(t *testing.T) {
	c, jobs := newClient(t)
	id, err := c.Start(t.Context(), Command{Script: "set -m; sleep 1000 & setsid sleep 1000 & echo $PPID $! $$; trap '' HUP; sleep 1000", Dir: t.TempDir(), Terminal: &bash.Terminal{}})
	if err != nil {
		t.Fatal(err)
	}
	var at []process.Member
	owner := jobs()[0].start.Owner.PID
	for deadline := time.Now().Add(20 * time.Second); len(at) < 5; time.Sleep(10 * time.Millisecond) { // shim, shell, three of sleep
		if at, err = process.Descendants(owner); err != nil || time.Now().After(deadline) {
			t.Fatal(at, err)
		}
	}
	pids := []int{owner} // which takes a moment to be gone, too
	for _, m := range at {
		pids = append(pids, m.PID)
	}
	ends := endsOf(t, pids)
	if err := syscall.Kill(owner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ends.await(t)

	if list := jobs(); list[0].State != Killed || list[0].ID != strconv.FormatInt(id, 10) || list[0].Terminal == nil {
		t.Errorf("%+v", list[0])
	}
}
